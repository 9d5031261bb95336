"""Gates in one process: leaders are elected, the record stays short, a failed gate stops everything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.errors import LockHeldError, RefusedError, StoppedError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.control.approval import accept_doubts
from kafka_rollout.gates.coordinators import LOADING, ids_for
from kafka_rollout.gates.gate import GateKind, GatePolicy, GateRef
from kafka_rollout.gates.reasons import IN_ISRS
from kafka_rollout.groups.group_records import GroupRecords
from kafka_rollout.model.configs import DynamicConfigs
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.state import GroupState
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.roll.gate_checks import CHECKS, check_conversion, check_gate, wait_for_gate
from kafka_rollout.roll.node import replace_node
from kafka_rollout.run.events import Approval, ApprovalOf, ApprovalRefuted, Channel, Responder, StopAsked, events_of
from kafka_rollout.run.projections.approvals import find_doubts
from kafka_rollout.run.projections.nodes import gate_is_passed
from kafka_rollout.run.step_events import GateChecked, Started, Stopping
from tests.fakes.cluster import FakeCluster
from tests.fakes.logs import FakeLogs
from tests.fakes.ports import gate_of, in_step

RELEASE_STEP = "3.9.1-to-4.3.1"
AFTER = GateRef(kind=GateKind.AFTER_START, release_step=RELEASE_STEP, node_id=12)


def log_line(level: str, message: str) -> str:
    return f"[2026-11-24 02:14:07,123] {level} {message} (kafka.coordinator.group.GroupMetadataManager)"


def test_every_kind_of_gate_has_a_check() -> None:
    assert CHECKS.keys() == set(GateKind)


def test_leadership_comes_back_because_it_is_asked_for(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    assert cluster.topics["orders-1"].leader != 12
    wait_for_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster), GatePolicy(checks=2, interval_s=1))
    assert gate_is_passed(ports.run.events(), AFTER)
    assert cluster.topics["orders-1"].leader == 12


def test_a_gate_that_held_is_passed_until_the_node_is_started_again(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    assert not gate_is_passed(ports.run.events(), AFTER)
    wait_for_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster), GatePolicy(checks=1, interval_s=1))
    assert gate_is_passed(ports.run.events(), AFTER)
    ports.run.record(Started(node_id=12, release_step=RELEASE_STEP, release=plan.target, pid=None, seconds=0.0))
    assert not gate_is_passed(ports.run.events(), AFTER)


def test_a_gate_that_never_holds_fails_and_says_what_it_waited_for(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.catch_up_rounds = 10_000
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    heard: list[str] = []
    reason = r"after node 12 failed after 30 s: quorum: \d+ records behind the leader; 3 more conditions need it\."
    with pytest.raises(RefusedError, match=reason):
        wait_for_gate(
            Run(ports, plan),
            AFTER.resolve(plan, ports.cluster),
            GatePolicy(checks=1, interval_s=1, timeout_s=30),
            lambda _, message: heard.append(message),
        )
    assert heard


def test_a_node_whose_coordinators_load_is_waited_for_and_a_failed_load_fails_the_gate(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    for number in range(3):
        cluster.add_partition(GROUPS_TOPIC, number, [11 + number, 11 + (number + 1) % 3], min_isr=1)
    own = f"{GROUPS_TOPIC}-1"
    cluster.groups.append(GroupState(group_id=next(iter(ids_for({1}, 3))), type="classic", state="Stable"))
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    cluster.coordinator_answers[own] = LOADING
    with pytest.raises(RefusedError, match=rf"coordinators loaded: loads 1 of 1 coordinator partition: {own}"):
        wait_for_gate(
            Run(ports, plan), AFTER.resolve(plan, ports.cluster), GatePolicy(checks=1, interval_s=1, timeout_s=30)
        )
    cluster.coordinator_answers.clear()
    cluster.groups.clear()
    failed_load = f"[GroupMetadataManager brokerId=12] Error loading offsets from {own}"
    cluster.nodes[12].log += [log_line("ERROR", failed_load), "java.lang.IllegalStateException: version 3"]
    failed = check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster))
    assert not failed.passes
    assert f"Error loading offsets from {own} java.lang.IllegalStateException: version 3" in failed.waits_for
    assert "1 id of groups or transactions from before the stop is gone" in failed.waits_for
    finished = f"Finished loading offsets and group metadata from {own} in 5 milliseconds for epoch 3"
    cluster.nodes[12].log[:] = [log_line("INFO", finished)] * 3  # rotated
    again = check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster))
    assert f"Error loading offsets from {own}" in again.waits_for, "the run history keeps the error"
    cluster.stop(12)
    cluster.start(12)
    cluster.nodes[12].log.append(log_line("INFO", finished))
    wait_for_gate(
        Run(ports, plan), AFTER.resolve(plan, ports.cluster), GatePolicy(checks=1, interval_s=1)
    )  # a new process


def test_an_acceptance_of_the_log_lets_the_gate_pass(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    for number in range(3):
        cluster.add_partition(GROUPS_TOPIC, number, [11 + number, 11 + (number + 1) % 3], min_isr=1)
    cluster.groups.append(GroupState(group_id=next(iter(ids_for({1}, 3))), type="classic", state="Stable"))
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    cluster.groups.clear()
    gate = AFTER.resolve(plan, ports.cluster)
    cluster.advance()
    with pytest.raises(RefusedError, match=f"the log does not show the load of {GROUPS_TOPIC}-1"):
        wait_for_gate(Run(ports, plan), gate, GatePolicy(checks=1, interval_s=1, timeout_s=30))
    doubts = find_doubts(ports.run.events())
    assert len(doubts) == 1
    with pytest.raises(RefusedError, match="There is nothing to accept"):
        accept_doubts(ports, (), "alice", "x")
    accept_doubts(ports, doubts, "alice", "The group was deleted on purpose.", text=f"Gate?\n\n- {doubts[0]}")
    passed = check_gate(Run(ports, plan), gate)
    assert passed.passes, passed.waits_for
    (given,) = [one for one in events_of(ports.run.events(), Approval) if one.what is ApprovalOf.NODE_LOG]
    assert (given.by, given.reason, given.doubts) == ("alice", "The group was deleted on purpose.", doubts)
    assert given.text == f"Gate?\n\n- {doubts[0]}", "what the approver saw"
    ports.run.record(ApprovalRefuted(what=ApprovalOf.NODE_LOG, by="alice", record_id="", sentence="no such answer"))
    cluster.stop(12)
    cluster.start(12)
    wait = GatePolicy(checks=1, interval_s=1, timeout_s=30)
    with pytest.raises(RefusedError, match="does not show the load"):  # of a new process
        wait_for_gate(Run(ports, plan), gate, wait)


def test_a_node_that_was_down_for_longer_than_deletions_are_kept_needs_an_approver(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    """Its replicas can have keys that were deleted meanwhile, and it would lead them."""
    cluster.add_partition("state", 0, [12, 11], min_isr=1)
    compact = {"cleanup.policy": "compact"}
    cluster.dynamic_configs = DynamicConfigs(topics={"state": compact, "alone": compact, "events": {}})
    step = in_step(ports, plan, RELEASE_STEP, 12)
    replace_node(NodeRun(Run(ports, plan), *step))
    gate = AFTER.resolve(plan, ports.cluster)
    cluster.nodes[12].behind = 10_000  # its start is of now, and it reads for 25 hours
    (isrs,) = (one for one in check_gate(Run(ports, plan), gate).conditions if one.name == IN_ISRS)
    assert "not yet in" in isrs.evidence
    cluster.add_partition("alone", 0, [12], min_isr=1)  # no other broker has cleaned it
    before = ports.run.load_before_stop(RELEASE_STEP, 12)
    assert before is not None
    ports.run.save_before_stop(RELEASE_STEP, replace(before, in_isr=before.in_isr | {"alone-0"}), replace=True)
    ports.clock.sleep(25 * 3600)
    cluster.nodes[12].behind = 1
    cluster.advance()
    held = check_gate(Run(ports, plan), gate)
    assert cluster.topics["orders-1"].leader != 12, "as the leader it would show deleted keys"
    assert {one.name for one in held.conditions if not one.is_met} == {"no deletion was missed", "leadership back"}
    assert held.doubts == (
        "node 12 was down or behind for longer than delete.retention.ms of 1 compacted topic with replicas on it",
    )
    assert "compacted topic with replicas on it: state. It can have older values" in held.waits_for
    # A restart does not bring the deletions back.
    ports.run.record(Stopping(node_id=12, release_step=RELEASE_STEP))
    ports.run.record(Started(node_id=12, release_step=RELEASE_STEP, release=plan.target, pid=None, seconds=0.0))
    assert check_gate(Run(ports, plan), gate).doubts == held.doubts
    accept_doubts(ports, held.doubts, "alice", "No key was deleted.", text=f"- {held.doubts[0]}")
    wait_for_gate(Run(ports, plan), gate, GatePolicy(checks=2, interval_s=1, timeout_s=60))
    assert cluster.topics["orders-1"].leader == 12


def test_a_refused_registration_is_quoted(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    cluster.catch_up_rounds = 10_000
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    refused = "[BrokerLifecycleManager id=12] Unable to register broker 12 because the controller returned error "
    logger = "(kafka.server.BrokerLifecycleManager)"
    cluster.nodes[12].log.append(f"[2026-11-23 02:00:01,000] INFO {refused}INVALID_REGISTRATION {logger}")
    waits = check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster)).waits_for
    assert "its log shows: Unable to register broker 12 because the controller returned error INVALID_REGIS" in waits
    registered = "[BrokerLifecycleManager id=12] Successfully registered broker 12 with broker epoch 7"
    cluster.nodes[12].log.append(f"[2026-11-23 02:00:02,000] INFO {registered} {logger}")
    assert "Unable to register" not in check_gate(Run(ports, plan), AFTER.resolve(plan, ports.cluster)).waits_for


def test_the_record_keeps_first_looks_changes_and_the_last(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.catch_up_rounds = 100
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    heard: list[bool] = []
    wait_for_gate(
        Run(ports, plan),
        AFTER.resolve(plan, ports.cluster),
        GatePolicy(checks=3, interval_s=1),
        lambda seen, _: heard.append(seen.passes),
    )
    checks_made = [one.check for one in events_of(ports.run.events(), GateChecked) if one.ref == AFTER]
    assert len(heard) > 90
    assert len(checks_made) < 20
    assert not checks_made[0].passes
    assert [check.passes for check in checks_made[-3:]] == [True] * 3


def test_a_check_renews_the_lock_and_stops_at_somebody_else_s(ports: ClusterPorts, plan: Plan) -> None:
    ref = GateRef(kind=GateKind.BEFORE_STOP, release_step=RELEASE_STEP, node_id=12)
    assert check_gate(Run(ports, plan), ref.resolve(plan, ports.cluster)).passes
    held = ports.lock.holder("fake")
    assert held is not None
    assert held.holder == ports.run_id
    ports.lock.release("fake", ports.run_id)
    ports.lock.acquire("fake", "another run", "features", for_s=60)
    with pytest.raises(LockHeldError):
        check_gate(Run(ports, plan), ref.resolve(plan, ports.cluster))


@pytest.mark.parametrize("kind", GateKind)
def test_every_check_of_a_gate_reads_the_request_to_stop(ports: ClusterPorts, plan: Plan, kind: GateKind) -> None:
    is_of_node = kind in {GateKind.BEFORE_STOP, GateKind.AFTER_START}
    ref = GateRef(kind=kind, release_step=RELEASE_STEP, node_id=12) if is_of_node else GateRef(kind=kind)
    gate = ref.resolve(plan, ports.cluster)
    ports.run.record(StopAsked(by="bob", reason="errors", responder=Responder(channel=Channel.SHELL, user="bob")))
    with pytest.raises(StoppedError, match="stopped by bob"):
        check_gate(Run(ports, plan), gate)
    assert ports.lock.holder("fake") is None, "it renews no lock"


@pytest.mark.parametrize("kind", [GateKind.FINALIZED, GateKind.SNAPSHOT, GateKind.METADATA_VERSION, GateKind.GROUPS])
def test_a_gate_after_the_last_change_takes_no_lock(ports: ClusterPorts, plan: Plan, kind: GateKind) -> None:
    check_gate(Run(ports, plan), GateRef(kind=kind).resolve(plan, ports.cluster))
    assert (ports.lock.holder("fake") is None) == (kind is not GateKind.GROUPS)
    if kind is not GateKind.GROUPS:
        ports.lock.acquire("fake", "run-2", "upgrade", for_s=60)
        check_gate(Run(ports, plan), GateRef(kind=kind).resolve(plan, ports.cluster))


def test_the_lock_knows_the_cluster_by_its_id_and_keeps_its_other_names_out(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    ref = GateRef(kind=GateKind.BEFORE_STOP, release_step=RELEASE_STEP, node_id=12)
    cluster.silent.update({11, 12, 13})
    check_gate(Run(ports, plan), ref.resolve(plan, ports.cluster))
    cluster.silent.clear()
    ports.lock.acquire("alias", "another run", "features", for_s=60, cluster_id=ports.admin.cluster_id())
    with pytest.raises(LockHeldError, match="under its other name alias"):
        check_gate(Run(ports, plan), ref.resolve(plan, ports.cluster))
    ports.lock.break_("alias", "bob")
    assert check_gate(Run(ports, plan), ref.resolve(plan, ports.cluster)).passes
    held = ports.lock.holder("fake")
    assert held is not None
    assert held.cluster_id == ports.admin.cluster_id()


def test_a_cluster_that_does_not_answer_is_a_condition_that_does_not_hold(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.silent.update({11, 12, 13})
    seen = check_gate(
        Run(ports, plan),
        gate_of(ports, plan, GateKind.BEFORE_STOP, RELEASE_STEP, 12),
    )
    assert not seen.passes
    assert seen.waits_for.startswith("the cluster responds: ")


def test_the_gate_of_the_groups_passes_by_a_reading_of_the_whole_log_alone(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was added to an earlier reading lacks what a follower alone has."""
    asked: list[bool] = []
    alive = {"consumer": frozenset({"billing"})}
    readings = {True: replace(cluster.group_records, is_whole=False), False: cluster.group_records}

    def read(_: FakeLogs, *, planned: bool | None, by_spark: bool, incremental: bool = False) -> GroupRecords:
        asked.append(incremental)
        return readings[incremental]

    monkeypatch.setattr(FakeLogs, "group_records", read)
    for added, whole, passes, read_as in (
        (alive, {}, False, [True]),
        ({}, alive, False, [True, False]),
        ({}, {}, True, [True, False]),
    ):
        asked.clear()
        readings = {True: replace(readings[True], alive=added), False: replace(readings[False], alive=whole)}
        seen = check_conversion(ports, {"consumer"}, [])
        assert (seen.passes, asked) == (passes, read_as)
    readings[True] = cluster.group_records
    asked.clear()
    assert check_conversion(ports, {"consumer"}, []).passes
    assert asked == [True], "it was whole"
