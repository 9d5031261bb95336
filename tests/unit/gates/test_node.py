from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.gates.gate import GateCheck
from kafka_rollout.gates.node import (
    check_after_start,
    check_before_stop,
    find_lost_leaderships,
    state_before_stop,
)
from kafka_rollout.model.state import (
    ClusterState,
    NodeMetrics,
    NodeState,
    ProcessState,
    RegisteredNodes,
)
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.model.unclean_elections import UNKNOWN_ELECTIONS, UncleanElections
from kafka_rollout.releases.facts import Release
from tests.unit.builders import (
    COMBINED,
    NOW,
    R391,
    R431,
    SEPARATE,
    cluster,
    node_state,
    partition,
    quorum,
    replace_node,
    silent,
    state,
)


def _failing(checked: GateCheck) -> set[str]:
    return {c.name for c in checked.conditions if not c.is_met}


def _before(spec: ClusterSpec, seen: ClusterState, node_id: int) -> GateCheck:
    return check_before_stop(spec, seen, spec.node(node_id))


@pytest.mark.parametrize("spec", [COMBINED, SEPARATE], ids=["combined", "separate"])
def test_every_node_of_a_well_cluster_may_be_stopped(spec: ClusterSpec) -> None:
    for node in spec.nodes:
        checked = check_before_stop(spec, state(spec), node)
        assert checked.passes, checked.waits_for
        assert all(c.evidence for c in checked.conditions)


def test_a_node_that_is_down_is_named_with_the_error_of_its_log() -> None:
    seen = replace(state(), nodes=replace_node(state(), replace(silent(6), log_error="No space left on device")))
    checked = _before(SEPARATE, seen, 4)
    assert "node 6 is down (its log: No space left on device)" in checked.waits_for


def test_a_single_replica_is_never_taken() -> None:
    seen = state(partitions=(partition("single", 0, [4], min_isr=1),))
    checked = _before(SEPARATE, seen, 4)
    assert _failing(checked) == {"another in-sync replica"}
    assert "single-0" in checked.waits_for
    assert _before(SEPARATE, seen, 5).passes


def test_a_single_replica_of_an_accepted_topic_is_taken_and_named() -> None:
    single, full = partition("tmp-1", 0, [4], min_isr=1), partition("audit", 0, [4, 5], min_isr=2)
    seen = state(partitions=(single, full))
    node = SEPARATE.node(4)
    assert _failing(check_before_stop(SEPARATE, seen, node, accept_unavailable=("tmp-*",))) == {"min ISR without it"}
    checked = check_before_stop(SEPARATE, seen, node, accept_unavailable=("tmp-*", "audit"))
    assert checked.passes
    assert [c.evidence for c in checked.conditions if "accepted" in c.name] == [
        "2 partitions, not checked: audit-0, tmp-1-0"
    ]


@pytest.mark.parametrize(("most", "unmet"), [(None, False), (0, True), (1, True), (2, False)])
def test_under_replicated_partitions_of_other_nodes_are_limited(most: int | None, unmet: bool) -> None:
    lacking = [partition("t", number, [4, 5, 6], isr=[4, 5], min_isr=1) for number in (0, 1)]
    of_the_node = partition("t", 2, [4, 5, 6], isr=[5, 6], min_isr=1)
    seen = state(partitions=(*lacking, of_the_node))
    checked = check_before_stop(SEPARATE, seen, SEPARATE.node(4), max_under_replicated=most)
    assert _failing(checked) == ({"under-replicated partitions"} if unmet else set())
    assert ("t-0, t-1" in checked.waits_for) is unmet
    batch = check_before_stop(SEPARATE, seen, SEPARATE.node(5), together=[4, 6], max_under_replicated=0)
    assert "under-replicated partitions" not in _failing(batch)  # the batch itself lacks them


def test_an_offline_partition_blocks_the_stop_of_its_own_replicas_only() -> None:
    seen = state(partitions=(partition("t", 0, [4, 5], isr=[4], leader=-1, min_isr=1),))
    assert "every partition is served" in _failing(_before(SEPARATE, seen, 4))
    assert "every partition is served" in _failing(_before(SEPARATE, seen, 5))
    for node_id in (6, 1):
        checked = _before(SEPARATE, seen, node_id)
        assert checked.passes, checked.waits_for
        assert any("1 without a leader have no replica" in c.evidence for c in checked.conditions)


def test_the_last_in_sync_replica_stays() -> None:
    seen = state(partitions=(partition("t", 0, [4, 5, 6], isr=[4], min_isr=1),))
    assert _failing(_before(SEPARATE, seen, 4)) == {"another in-sync replica"}


def test_min_isr_must_hold_without_the_node() -> None:
    seen = state(partitions=(partition("t", 0, [4, 5, 6], isr=[4, 5], min_isr=2),))
    assert _failing(_before(SEPARATE, seen, 4)) == {"min ISR without it"}
    assert _before(SEPARATE, seen, 6).passes


def test_a_fenced_broker_does_not_count_as_another_replica() -> None:
    registered = RegisteredNodes(brokers=frozenset({4, 5, 6}), fenced=frozenset({5, 6}), controllers=None)
    checked = _before(SEPARATE, state(registered=registered), 4)
    assert {"another in-sync replica", "all other nodes are up"} <= _failing(checked)


def test_where_a_release_lists_only_unfenced_brokers_a_missing_one_is_fenced() -> None:
    registered = RegisteredNodes(brokers=frozenset({4, 5}), fenced=None, controllers=None)
    assert "all other nodes are up" in _failing(_before(SEPARATE, state(registered=registered), 4))


def test_nothing_is_stopped_while_another_node_is_down() -> None:
    seen = state()
    seen = replace(seen, nodes=replace_node(seen, silent(6)))
    checked = _before(SEPARATE, seen, 1)
    assert "all other nodes are up" in _failing(checked)
    assert "node 6 is down" in checked.waits_for
    half_gone = replace(state().nodes[6], process=ProcessState(pid=None))
    assert "node 6 is down" in _before(SEPARATE, replace(seen, nodes=replace_node(seen, half_gone)), 1).waits_for


def test_a_voter_stays_while_another_one_lags() -> None:
    seen = state(quorum=quorum([1, 2, 3], 3, [4, 5, 6], n2=5_000))
    assert _failing(_before(SEPARATE, seen, 1)) == {"quorum without it"}
    assert _before(SEPARATE, seen, 2).passes, "the one that lags may go"
    assert _before(SEPARATE, seen, 4).passes, "a broker is no voter"


def test_two_voters_cannot_spare_one() -> None:
    spec = cluster(controllers=[1, 2], brokers=[4, 5, 6])
    assert _failing(_before(spec, state(spec), 1)) == {"quorum without it"}


def test_a_quorum_without_a_spare_voter_is_stopped_only_if_this_is_accepted_and_the_other_one_is_caught_up() -> None:
    for controllers in ([1], [1, 2]):
        spec = cluster(controllers=controllers, brokers=[4, 5, 6])
        checked = check_before_stop(spec, state(spec), spec.node(1), accept_unavailable=["__cluster_metadata"])
        assert checked.passes
        assert "It is accepted that the quorum is unavailable" in str(checked.conditions)
        assert not check_before_stop(spec, state(spec), spec.node(1), accept_unavailable=["__*"]).passes
    spec = cluster(controllers=[1, 2], brokers=[4, 5, 6])
    late = state(spec, quorum=quorum([1, 2], 1, [4, 5, 6], n2=5_000))
    accepted = ["__cluster_metadata"]
    assert _failing(check_before_stop(spec, late, spec.node(1), accept_unavailable=accepted)) == {"quorum without it"}
    assert check_before_stop(spec, late, spec.node(2), accept_unavailable=accepted).passes
    late = state(quorum=quorum([1, 2, 3], 3, [4, 5, 6], n2=5_000))
    assert not check_before_stop(SEPARATE, late, SEPARATE.node(1), accept_unavailable=accepted).passes


@pytest.mark.parametrize("seen", [state(quorum=None), state(quorum=quorum([1, 2, 3], -1))])
def test_an_unknown_quorum_holds_every_node(seen: ClusterState) -> None:
    for node in SEPARATE.nodes:
        assert "quorum without it" in _failing(check_before_stop(SEPARATE, seen, node))


def test_unanswered_questions_hold_but_the_silence_of_the_node_itself_does_not() -> None:
    assert _failing(_before(SEPARATE, state(unanswered=("groups",)), 4)) == {"every query answered"}
    seen = state(unanswered=("connection refused",))
    seen = replace(seen, nodes=replace_node(seen, replace(seen.nodes[4], features=None, problem="connection refused")))
    assert _before(SEPARATE, seen, 4).passes


def test_a_partition_under_min_isr_anywhere_holds_every_node() -> None:
    bad = partition("t", 0, [4, 5, 6], isr=[5], min_isr=2)
    for node in SEPARATE.nodes:
        assert "every partition is served" in _failing(_before(SEPARATE, state(partitions=(bad,)), node.node_id))


@st.composite
def _clusters(draw: st.DrawFn) -> ClusterState:
    brokers = [1, 2, 3, 4]
    spec = cluster(combined=brokers)
    partitions = []
    for number in range(draw(st.integers(1, 4))):
        replicas = draw(st.lists(st.sampled_from(brokers), min_size=1, unique=True))
        isr = draw(st.lists(st.sampled_from(replicas), unique=True))
        leader = draw(st.sampled_from(isr)) if isr else -1
        partitions.append(partition("t", number, replicas, isr=isr, leader=leader, min_isr=draw(st.integers(1, 3))))
    fenced = frozenset(draw(st.lists(st.sampled_from(brokers), max_size=1)))
    down = draw(st.none() | st.sampled_from(brokers))
    seen = state(
        spec,
        partitions=tuple(partitions),
        registered=RegisteredNodes(brokers=frozenset(brokers), fenced=fenced, controllers=None),
        quorum=quorum(brokers, draw(st.sampled_from(brokers)), n2=draw(st.sampled_from([0, 10, 500]))),
    )
    return replace(seen, nodes=replace_node(seen, silent(down))) if down else seen


@given(seen=_clusters(), node_id=st.integers(1, 4))
def test_a_stop_that_is_let_through_leaves_every_partition_a_living_in_sync_replica_and_min_isr(
    seen: ClusterState, node_id: int
) -> None:
    spec = cluster(combined=[1, 2, 3, 4])
    if not _before(spec, seen, node_id).passes:
        return
    alive = {i for i, n in seen.nodes.items() if n.process.pid is not None and i != node_id}
    alive -= seen.registered.fenced or frozenset()
    assert len(alive) == 3
    for p in seen.partitions:
        if p.leader < 0 and node_id not in p.replicas:
            continue
        left = (set(p.isr) - {node_id}) & alive
        assert left, f"{p.name} lost its last in-sync replica"
        assert len(left) >= p.min_isr
    assert seen.quorum is not None
    assert sum(seen.quorum.lag(i) == 0 for i in alive) + sum(seen.quorum.lag(i) == 10 for i in alive) >= 3


def _after(seen: ClusterState, node_id: int = 4, *, spec: ClusterSpec = SEPARATE) -> GateCheck:
    before = state_before_stop(state(spec), node_id, R391, NOW - 30)
    return check_after_start(spec, seen, spec.node(node_id), before=before, expected=R431)


def _rolled(node_id: int = 4, *, spec: ClusterSpec = SEPARATE, **other: object) -> ClusterState:
    seen = state(spec, **other)
    return replace(seen, nodes=replace_node(seen, node_state(node_id, R431)))


def test_what_a_node_is_in_is_seen_before_its_stop() -> None:
    before = state_before_stop(state(COMBINED), 3, R391, NOW)
    assert before.in_isr == {"orders-0", "orders-1", "orders-2"}
    assert before.leads == {"orders-2"}
    assert before.was_active_controller
    assert not state_before_stop(state(COMBINED), 1, R391, NOW).was_active_controller


@pytest.mark.parametrize("node_id", [1, 3, 4])
def test_a_node_that_is_back_passes(node_id: int) -> None:
    checked = _after(_rolled(node_id), node_id)
    assert checked.passes, checked.waits_for
    assert all(c.evidence for c in checked.conditions)


@pytest.mark.parametrize(
    ("jars", "app_info", "is_met"),
    [(R431, None, True), (R431, R431, True), (R391, None, False), (R431, R391, False), (None, None, False)],
)
def test_the_jars_of_the_process_and_app_info_must_agree_with_the_expected_release(
    jars: Release | None, app_info: Release | None, is_met: bool
) -> None:
    back = _rolled()
    node = back.nodes[4]
    process = replace(node.process, running=jars)
    seen = replace(
        back, nodes=replace_node(back, replace(node, process=process, metrics=NodeMetrics(release=app_info)))
    )
    assert _after(seen).passes is is_met
    assert seen.nodes[4].release == (app_info or jars)


@pytest.mark.parametrize(("age", "is_met"), [(5.0, False), (61.0, True)])
def test_a_process_that_systemd_restarted_counts_when_it_has_run_for_a_minute(age: float, is_met: bool) -> None:
    back = _rolled()
    node = back.nodes[4]
    process = replace(node.process, restarts=3, started_at=back.observed_at - age)
    checked = _after(replace(back, nodes=replace_node(back, replace(node, process=process))))
    assert checked.passes is is_met
    assert "systemd has restarted it 3 times since its start" in checked.conditions[0].evidence


def test_each_thing_that_is_missing_holds_the_gate_by_its_name() -> None:
    back = _rolled()
    gone = NodeState(node_id=4, process=ProcessState(pid=None), features=None, metrics=None, problem="refused")
    fenced = RegisteredNodes(brokers=frozenset({4, 5, 6}), fenced=frozenset({4}), controllers=None)
    absent = RegisteredNodes(brokers=frozenset({5, 6}), fenced=None, controllers=None)
    cases = {
        "release": state(),
        "process": replace(back, nodes=replace_node(back, gone)),
        "unfenced": replace(back, registered=fenced),
        "quorum": replace(back, quorum=quorum([1, 2, 3], 3, [4, 5, 6], n4=5_000)),
    }
    for name, seen in cases.items():
        assert name in _failing(_after(seen)), name
    assert "unfenced" in _failing(_after(replace(back, registered=absent)))
    assert "quorum" in _failing(_after(replace(back, quorum=quorum([1, 2, 3], 3, [5, 6]))))


def test_being_out_of_an_isr_that_it_was_in_holds_the_gate_and_names_the_partition() -> None:
    out = tuple(partition("orders", i, [4, 5, 6], isr=[5, 6], leader=5) for i in range(9))
    seen = _rolled(partitions=out)
    before = replace(state_before_stop(state(), 4, R391, NOW), in_isr=frozenset(p.name for p in out), leads=frozenset())
    checked = check_after_start(SEPARATE, seen, SEPARATE.node(4), before=before, expected=R431)
    assert _failing(checked) == {"in every ISR it was in"}
    assert "9 ISRs" in checked.waits_for
    assert "orders-0" in checked.waits_for
    assert "5 more" in checked.waits_for


def test_an_isr_that_it_was_not_in_before_and_a_deleted_partition_are_nothing_to_wait_for() -> None:
    kept = partition("orders", 0, [4, 5, 6])
    foreign = partition("other", 0, [5, 6, 4], isr=[5, 6])
    before = state_before_stop(state(partitions=(kept, partition("gone", 0, [4, 5, 6]))), 4, R391, NOW)
    checked = check_after_start(
        SEPARATE, _rolled(partitions=(kept, foreign)), SEPARATE.node(4), before=before, expected=R431
    )
    assert checked.passes, checked.waits_for


def test_without_a_record_every_replica_must_be_in_sync() -> None:
    seen = _rolled(partitions=(partition("other", 0, [5, 6, 4], isr=[5, 6]),))
    checked = check_after_start(SEPARATE, seen, SEPARATE.node(4), before=None, expected=R431)
    assert _failing(checked) == {"in every ISR it was in"}


def test_leadership_that_it_had_as_preferred_leader_must_come_back() -> None:
    elsewhere = (partition("orders", 0, [4, 5, 6], leader=5),)
    seen = _rolled(partitions=elsewhere)
    before = state_before_stop(state(), 4, R391, NOW)
    assert _failing(_after(seen)) == {"leadership back"}
    assert [p.name for p in find_lost_leaderships(seen, 4, before)] == ["orders-0"]
    out_of_sync = replace(seen, partitions=(partition("orders", 0, [4, 5, 6], isr=[5, 6], leader=5),))
    assert find_lost_leaderships(out_of_sync, 4, before) == (), "an election could not bring it back yet"
    not_led_before = replace(before, leads=frozenset())
    assert find_lost_leaderships(seen, 4, not_led_before) == ()
    assert check_after_start(SEPARATE, seen, SEPARATE.node(4), before=not_led_before, expected=R431).passes


def test_a_controller_must_be_a_voter_that_is_caught_up() -> None:
    lagging = _rolled(1, quorum=quorum([1, 2, 3], 3, [4, 5, 6], n1=400))
    assert _failing(_after(lagging, 1)) == {"quorum"}
    lost = _rolled(1, quorum=quorum([2, 3], 3, [4, 5, 6]))
    assert "not a voter" in _after(lost, 1).waits_for


def test_a_voter_whose_directory_is_gone_is_not_caught_up_because_another_of_the_node_observes() -> None:
    """KIP-853: a directory that was formatted again has no vote; the gate of the next node cannot count on it."""
    lost = quorum([1, 2, 3], 3, [4, 5, 6], n1=400)
    (voter,) = [v for v in lost.voters if v.replica_id == 1]
    anew = replace(voter, log_end_offset=max(v.log_end_offset for v in lost.voters), last_caught_up_ms=int(NOW * 1000))
    lost = replace(lost, observers=(*lost.observers, anew))
    seen = _after(_rolled(1, quorum=lost), 1)
    assert _failing(seen) == {"quorum"}
    assert "remove-controller, add-controller" in seen.waits_for
    joining = _after(_rolled(1, quorum=replace(lost, joins_itself=frozenset({1}))), 1)
    assert _failing(joining) == {"quorum"}
    assert "it replaces the old voter itself (controller.quorum.auto.join.enable)" in joining.waits_for
    assert "remove-controller" not in joining.waits_for
    assert "quorum without it" in _failing(_before(SEPARATE, state(quorum=lost), 2)), "no second one can be spared"


def test_a_replaced_voter_is_named_by_the_directories_that_run_and_vote() -> None:
    """Waiting does not help: the leader counts on a directory that is gone."""
    seen = quorum([1, 2, 3], 3, [1, 4, 5, 6])
    gone = [
        replace(v, directory_id="old", log_end_offset=-1, last_fetch_ms=None, last_caught_up_ms=None)
        if v.replica_id == 1
        else v
        for v in seen.voters
    ]
    replaced = replace(
        seen,
        voters=tuple(gone),
        observers=tuple(replace(o, directory_id=f"new-{o.replica_id}") for o in seen.observers),
    )
    waits_for = _after(_rolled(1, quorum=replaced), 1).waits_for
    assert "node 1 runs with directory new-1, and the voter is directory old: remove the old voter" in waits_for
    same = replace(replaced, observers=tuple(replace(o, directory_id="old") for o in seen.observers))
    assert same.replaced_voters == frozenset(), "the directory that observed has the vote now"


def test_a_controller_that_was_an_observer_before_its_stop_is_back_as_one() -> None:
    """A standby (KIP-853) has no vote, so the gate of its start, and that of its rollback, cannot require one."""
    standby = quorum([2, 3], 3, [1, 4, 5, 6])
    before = state_before_stop(state(quorum=standby), 1, R391, NOW)
    assert not before.was_voter
    node, started = SEPARATE.node(1), _rolled(1, quorum=standby)
    assert check_after_start(SEPARATE, started, node, before=before, expected=R431).passes
    lagging = _rolled(1, quorum=quorum([2, 3], 3, [1, 4, 5, 6], n1=400))
    assert _failing(check_after_start(SEPARATE, lagging, node, before=before, expected=R431)) == {"quorum"}
    gone = _rolled(1, quorum=quorum([2, 3], 3, [4, 5, 6]))
    assert _failing(check_after_start(SEPARATE, gone, node, before=before, expected=R431)) == {"quorum"}
    voter = state_before_stop(state(), 1, R391, NOW)
    assert _failing(check_after_start(SEPARATE, started, node, before=voter, expected=R431)) == {"quorum"}
    promoted = _rolled(1, quorum=quorum([1, 2, 3], 3, [4, 5, 6]))
    assert check_after_start(SEPARATE, promoted, node, before=before, expected=R431).passes


def test_a_lag_that_was_caught_up_seconds_ago_is_no_lag() -> None:
    busy = quorum([1, 2, 3], 3, [4, 5, 6], n1=400)
    voters = tuple(replace(v, last_caught_up_ms=int(NOW * 1000) - 900) if v.replica_id == 1 else v for v in busy.voters)
    assert _after(_rolled(1, quorum=replace(busy, voters=voters)), 1).passes


@pytest.mark.parametrize(
    ("elections", "isr", "passes"),
    [
        (UNKNOWN_ELECTIONS, [4], False),
        (UncleanElections(topics={"logs": True}, controllers={1: False}), [4], False),
        (UncleanElections(controllers={1: True, 2: False}), [4], False),
        (UncleanElections(topics={"logs": False}, controllers={1: True}), [4], True),
        (UncleanElections(controllers={1: False, 2: False}), [4], True),
        (UNKNOWN_ELECTIONS, [4, 5], True),
    ],
)
def test_a_stop_that_lets_a_replica_out_of_sync_lead_loses_records_which_no_one_accepted(
    elections: UncleanElections, isr: list[int], *, passes: bool
) -> None:
    seen = replace(state(), partitions=(partition("logs", 0, [4, 5], isr=isr, min_isr=1),))
    checked = check_before_stop(SEPARATE, seen, SEPARATE.node(4), accept_unavailable=("logs",), elections=elections)
    assert checked.passes is passes
    assert _failing(checked) == (set() if passes else {"no unclean leader"})


def test_the_other_nodes_of_a_batch_are_no_leaders_in_sync() -> None:
    seen = replace(state(), partitions=(partition("logs", 0, [4, 5, 6], isr=[4, 5], min_isr=1),))
    assert check_before_stop(SEPARATE, seen, SEPARATE.node(4), accept_unavailable=("logs",)).passes
    checked = check_before_stop(SEPARATE, seen, SEPARATE.node(4), accept_unavailable=("logs",), together=[5])
    assert "no unclean leader" in _failing(checked)


def test_a_single_replica_has_nobody_to_elect() -> None:
    seen = replace(state(), partitions=(partition("logs", 0, [4], isr=[4], min_isr=1),))
    assert check_before_stop(SEPARATE, seen, SEPARATE.node(4), accept_unavailable=("logs",)).passes
