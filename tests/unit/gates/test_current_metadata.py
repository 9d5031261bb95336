"""Whether nodes have the newest metadata: without it, what a broker answers can be hours old."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.gates.gate import GateCheck
from kafka_rollout.gates.node import check_after_start, check_before_stop, state_before_stop
from kafka_rollout.model.state import ClusterState, QuorumState, RegisteredNodes, ReplicaState, find_current_brokers
from kafka_rollout.model.topology import ClusterSpec
from tests.unit.builders import APPLIED, NOW, R391, R431, SEPARATE, node_state, quorum, replace_node, state


def _failing(checked: GateCheck) -> set[str]:
    return {c.name for c in checked.conditions if not c.is_met}


def _before(spec: ClusterSpec, seen: ClusterState, node_id: int) -> GateCheck:
    return check_before_stop(spec, seen, spec.node(node_id))


def _after(seen: ClusterState, node_id: int = 4) -> GateCheck:
    before = state_before_stop(state(), node_id, R391, NOW - 30)
    return check_after_start(SEPARATE, seen, SEPARATE.node(node_id), before=before, expected=R431)


def _rolled(node_id: int = 4, **other: object) -> ClusterState:
    seen = state(**other)
    return replace(seen, nodes=replace_node(seen, node_state(node_id, R431)))


def _silent_since(seen: QuorumState, node_id: int, since_ms: int | None) -> QuorumState:
    """The replica fetched last `since_ms` ago, by the leader's clock; None: the leader does not report when."""
    at = None if since_ms is None else int(NOW * 1000) - since_ms

    def changed(replicas: tuple[ReplicaState, ...]) -> tuple[ReplicaState, ...]:
        return tuple(replace(r, last_fetch_ms=at) if r.replica_id == node_id else r for r in replicas)

    return replace(seen, voters=changed(seen.voters), observers=changed(seen.observers))


@pytest.mark.parametrize(("since_ms", "passes"), [(4_900, True), (5_100, False), (3_600_000, False), (None, False)])
def test_a_voter_that_does_not_fetch_is_not_caught_up_however_few_records_are_missing(
    since_ms: int | None, passes: bool
) -> None:
    """With metadata.max.idle.interval.ms=0 an idle cluster writes nothing: the lag stays small."""
    cut = _silent_since(quorum([1, 2, 3], 3, [4, 5, 6], n2=15), 2, since_ms)
    checked = _before(SEPARATE, state(quorum=cut), 1)
    assert (_failing(checked) == set()) is passes, checked.waits_for
    assert _failing(checked) <= {"quorum without it"}
    assert _before(SEPARATE, state(quorum=cut), 2).passes, "the silent one can go"


def test_the_fetch_timeout_of_the_controllers_extends_the_limit() -> None:
    slow = replace(_silent_since(quorum([1, 2, 3], 3, [4, 5, 6]), 2, 9_000), fetch_timeout_ms=10_000)
    assert _before(SEPARATE, state(quorum=slow), 1).passes


def test_only_the_clock_of_the_leader_counts() -> None:
    """This machine's clock is an hour ahead: nothing follows from it."""
    seen = replace(state(), observed_at=NOW + 3_600)
    assert _before(SEPARATE, seen, 1).passes


@pytest.mark.parametrize("node_id", [1, 4, 5])
def test_no_node_stops_while_a_broker_is_cut_off_from_the_controllers(node_id: int) -> None:
    """A broker without the controllers answers from its last metadata, in which all is well."""
    behind = quorum([1, 2, 3], 3, [4, 5, 6], n6=9_000)
    silent_one = _silent_since(quorum([1, 2, 3], 3, [4, 5, 6]), 6, 60_000)
    gone = quorum([1, 2, 3], 3, [4, 5])
    for seen in (behind, silent_one, gone):
        checked = _before(SEPARATE, state(quorum=seen), node_id)
        assert _failing(checked) == {"every broker is caught up"}, checked.waits_for
        assert "broker 6" in checked.waits_for
        assert _before(SEPARATE, state(quorum=seen), 6).passes, "the broker itself can be stopped"


def test_a_broker_that_fetches_the_metadata_and_does_not_apply_it_is_not_caught_up() -> None:
    seen = state()
    stuck = replace(seen, nodes=replace_node(seen, node_state(6, R391, epoch=APPLIED - 40)))
    checked = _before(SEPARATE, stuck, 4)
    assert _failing(checked) == {"every broker is caught up"}
    assert f"applied its metadata up to offset {APPLIED - 40}" in checked.waits_for
    unknown = replace(seen, nodes=replace_node(seen, node_state(6, R391, epoch=None)))
    assert _failing(_before(SEPARATE, unknown, 4)) == {"every broker is caught up"}
    back = _rolled()
    itself = replace(back, nodes=replace_node(back, node_state(4, R431, epoch=APPLIED - 40)))
    assert _failing(_after(itself)) == {"quorum"}


def test_after_a_start_a_serving_broker_must_be_caught_up_and_one_that_is_down_blocks_the_next_stop() -> None:
    cut = _silent_since(quorum([1, 2, 3], 3, [4, 5, 6]), 6, 60_000)
    assert _failing(_after(_rolled(quorum=cut))) == {"every broker is caught up"}
    down = RegisteredNodes(brokers=frozenset({4, 5, 6}), fenced=frozenset({6}), controllers=None)
    without = _rolled(quorum=quorum([1, 2, 3], 3, [4, 5]), registered=down)
    assert _after(without).passes, _after(without).waits_for


def test_partitions_and_registrations_are_read_from_brokers_that_are_current() -> None:
    cut = _silent_since(quorum([1, 2, 3], 3, [4, 5, 6]), 4, 60_000)
    seen = state()
    assert find_current_brokers(SEPARATE, cut, seen.nodes) == (5, 6)
    stuck = replace_node(seen, node_state(5, R391, epoch=APPLIED - 40))
    assert find_current_brokers(SEPARATE, cut, stuck) == (6,)
    assert find_current_brokers(SEPARATE, None, seen.nodes) == ()
