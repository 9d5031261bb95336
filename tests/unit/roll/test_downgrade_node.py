"""A node step on the way down: refused while the older release could not start, and finished when it was killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.control.approval import record_approval, renew_invalid_approval
from kafka_rollout.metadata_log.metadata_scan import LogReadiness
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.procedure.approval_requests import roll_body
from kafka_rollout.roll.metadata_logs import check_metadata_logs
from kafka_rollout.roll.node import replace_node, restart_node
from kafka_rollout.run.events import ApprovalOf, Asked, Channel, Decision, Responder, Voided, events_of
from kafka_rollout.run.projections.observations import planned_trims
from kafka_rollout.run.step_events import MetadataScanned
from tests.fakes.cluster import R341, R431, FakeCluster
from tests.fakes.ports import fake_ports, in_step
from tests.plans import plan_downgrade
from tests.unit.roll.test_node import Killed, killed_after

RELEASE_STEP = "4.3.1-to-3.4.1"
NODE = 11


@pytest.fixture
def cluster() -> FakeCluster:
    world = FakeCluster(R431, finalized={"metadata.version": 8})
    world.unreadable = {(NODE, R341)}
    return world


@pytest.fixture
def plan(ports: ClusterPorts) -> Plan:
    plan = plan_downgrade(ports, R341)
    assert plan.blockers == ()
    check_metadata_logs(Run(ports, plan))
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "with its trim")
    return plan


def test_the_log_is_trimmed_while_the_node_is_stopped(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    assert planned_trims(ports.run.events()) == (NODE,)
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert (cluster.trims, cluster.release_of(NODE)) == ([NODE], R341)


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize("calls", range(1, 90, 4))
def test_a_turn_that_is_killed_anywhere_ends_on_the_release_with_one_trim_and_one_start(
    cluster: FakeCluster, tmp_path: Path, calls: int
) -> None:
    ports = fake_ports(cluster, tmp_path)
    plan = plan_downgrade(ports, R341)
    check_metadata_logs(Run(ports, plan))
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "with its trim")
    try:
        replace_node(NodeRun(Run(killed_after(ports, calls), plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    except Killed:
        again = fake_ports(cluster, tmp_path)
        replace_node(NodeRun(Run(again, plan), *in_step(again, plan, RELEASE_STEP, NODE)))
    assert cluster.release_of(NODE) == R341
    assert cluster.trims == [NODE]
    assert [start.release for start in cluster.nodes[NODE].starts] == [R341]


def test_a_trim_that_nobody_approved_is_refused_before_the_stop(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.unreadable.add((12, R341))
    with pytest.raises(RefusedError, match="needs a trim that was not approved"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12)))
    assert cluster.stops == []


def test_a_trim_that_is_found_after_the_approval_is_not_approved_until_it_is_given_again(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    run, at = Run(ports, plan), in_step(ports, plan, RELEASE_STEP, 12)
    cluster.unreadable.add((12, R341))
    check_metadata_logs(run)
    with pytest.raises(RefusedError, match="needs a trim that was not approved"):
        replace_node(NodeRun(run, *at))
    assert (cluster.stops, cluster.trims) == ([], [])
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "with both trims")
    assert replace_node(NodeRun(run, *at))
    assert (cluster.trims, cluster.release_of(12)) == ([12], R341)


@pytest.mark.parametrize("checked", ["never", "all readable", "waits for a snapshot"])
def test_the_approver_reads_only_of_logs_that_were_checked_that_they_can_be_read(
    ports: ClusterPorts, cluster: FakeCluster, checked: str
) -> None:
    """The task of the check can be marked as successful, or its gate be accepted as it is."""
    cluster.unreadable.clear()
    run = Run(ports, plan_downgrade(ports, R341))
    if checked != "never":
        check_metadata_logs(run)
    if checked == "waits for a snapshot":
        scan = events_of(ports.run.events(), MetadataScanned)[-1]
        waits = [replace(log, readiness=LogReadiness.SNAPSHOT) if log.node_id == NODE else log for log in scan.nodes]
        ports.run.record(replace(scan, at=0.0, nodes=tuple(waits)))
    text = roll_body(run)
    assert ("can read the metadata log of every node" in text) is (checked == "all readable")
    named = {"never": "nodes 1, 2, 3, 11", "waits for a snapshot": f"node {NODE}. Each stop"}.get(checked, "")
    assert named in text


def test_a_trim_that_is_found_while_the_approver_reads_is_not_approved(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    run = Run(ports, plan)
    by = Responder(channel=Channel.AIRFLOW, user="alice", record_id="first")
    asked = Asked(what=ApprovalOf.ROLL, task_id="approve_roll", record_id="first", text=roll_body(run), options=())
    ports.run.record(asked)
    cluster.unreadable.add((12, R341))
    check_metadata_logs(run)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "one trim", responder=by, text=asked.text)
    with pytest.raises(RefusedError, match="needs a trim that was not approved"):
        replace_node(NodeRun(run, *in_step(ports, plan, RELEASE_STEP, 12)))
    assert (cluster.stops, cluster.trims) == ([], [])


def test_an_approver_who_retries_at_a_gate_approves_the_trims_of_the_approval_and_no_others(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    run = Run(ports, plan)
    cluster.unreadable.add((12, R341))
    check_metadata_logs(run)
    ports.run.record(Voided(plan_hash=plan.hash, blockers=("X: a node was down",)))
    by = Responder(channel=Channel.AIRFLOW, user="alice", record_id="gate")
    asked = Asked(what=ApprovalOf.FAILED_GATE, task_id="gate", record_id="gate", text="How to continue?", options=())
    ports.run.record(asked)
    given = {"responder": by, "text": asked.text}
    decided = record_approval(ports, ApprovalOf.FAILED_GATE, "alice", Decision.RETRY, "it is up again", **given)
    renew_invalid_approval(run, decided)
    with pytest.raises(RefusedError, match="needs a trim that was not approved"):
        replace_node(NodeRun(run, *in_step(ports, plan, RELEASE_STEP, 12)))
    assert replace_node(NodeRun(run, *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.trims == [NODE]


def test_nothing_goes_down_before_the_levels_have_fallen(ports: ClusterPorts, cluster: FakeCluster) -> None:
    cluster.finalized = {"metadata.version": 8, "group.version": 1}
    plan = plan_downgrade(ports, R341)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "too early")
    with pytest.raises(RefusedError, match=r"group\.version is not at 0"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []


def test_a_log_without_a_usable_snapshot_is_waited_for(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = ports.metadata_logs.scan

    def without_snapshot(*args: object, **kwargs: object) -> object:
        found = scan(*args, **kwargs)  # type: ignore[arg-type]
        return (
            found
            if found.remedy_facts is None
            else replace(found, remedy_facts=replace(found.remedy_facts, newest_snapshot=None))
        )

    monkeypatch.setattr(ports.metadata_logs, "scan", without_snapshot)
    with pytest.raises(TransientError, match="cannot be stopped yet"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []


def test_a_trim_that_fails_leaves_a_node_that_can_be_retried(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    trim = ports.metadata_logs.trim

    def no_room(*args: object, **kwargs: object) -> None:
        raise RefusedError("The backup needs 3 MiB, and 1 MiB are free.", remedy="Make room first.")

    monkeypatch.setattr(ports.metadata_logs, "trim", no_room)
    with pytest.raises(FatalError, match=r"is stopped and cannot be started on 3\.4\.1: The backup needs"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    monkeypatch.setattr(ports.metadata_logs, "trim", trim)
    restart_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert (cluster.trims, cluster.release_of(NODE)) == ([NODE], R341)
