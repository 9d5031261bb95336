"""Records keep coming: the coordinator logs are read on right before the first node goes down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.coordinator_logs.findings import CLEANED_AT_GATE
from kafka_rollout.coordinator_logs.replicas import unread_replica
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.groups.group_records import GroupRecords
from kafka_rollout.model.plan import Direction, Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.preparation.frozen_plan import SCAN_BEFORE_ROLL, find_new_in_logs
from kafka_rollout.roll.gate_checks import check_gate
from kafka_rollout.roll.node import replace_node
from kafka_rollout.run.events import ApprovalOf, Decision, events_of
from kafka_rollout.run.step_events import IncrementalScan
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports, in_step
from tests.plans import plan_upgrade

OFFSETS = "__consumer_offsets"
COMMITS = RecordKind(topic=OFFSETS, partition=0, key_version=1, value_version=3, count=4, first_offset=0)
UNREADABLE = RecordKind(topic=OFFSETS, partition=0, key_version=1, value_version=9, count=1, first_offset=4)
UNKNOWN_TYPE = RecordKind(topic=OFFSETS, partition=0, key_version=99, value_version=0, count=2, first_offset=4)
RELEASE_STEP = "3.9.1-to-4.3.1"


@pytest.fixture
def world() -> FakeCluster:
    return FakeCluster(R391)


@pytest.fixture
def ports(world: FakeCluster, tmp_path: Path) -> ClusterPorts:
    return fake_ports(world, tmp_path)


def planned(ports: ClusterPorts, *classes: RecordKind) -> Plan:
    """A plan made with a scan of these records, which lies in the run's record; approved unless it has blockers."""
    scan = ScanResult(
        cluster="fake",
        scanned_at=1.0,
        logs=(LogRange(topic=OFFSETS, partition=0, start=0, end=sum(c.count for c in classes)),),
        classes=classes,
        verdicts=evaluate_records(ports.catalogue, classes, list(ports.catalogue), partitions=[(OFFSETS, 0)]),
    )
    ports.run.attach(SCAN_BEFORE_ROLL, scan)
    plan = plan_upgrade(ports, R431, finalize=True, scan=True)
    if not plan.blockers:
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a quiet evening")
    return plan


def tails(ports: ClusterPorts) -> list[int]:
    return [scan.offsets for scan in events_of(ports.run.events(), IncrementalScan)]


def test_what_the_target_cannot_load_blocks_the_plan(ports: ClusterPorts) -> None:
    plan = planned(ports, COMMITS, UNREADABLE)
    assert [finding.code for finding in plan.blockers] == ["LOGS-NOT-LOADABLE"]
    assert "at offset 4" in plan.blockers[0].sentence


@pytest.mark.parametrize("written", [UNREADABLE, UNKNOWN_TYPE])
def test_a_verdict_that_got_worse_since_stops_before_the_first_node(
    ports: ClusterPorts, world: FakeCluster, written: RecordKind
) -> None:
    plan = planned(ports, COMMITS)
    world.written_since.append(written)
    with pytest.raises(RefusedError, match="approval is no longer valid") as refused:
        replace_node(
            NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, plan.release_steps[0].order[0].node_id))
        )
    assert "start a new run" in refused.value.remedy
    assert world.stops == []
    with pytest.raises(RefusedError, match="is invalid"):  # also the one after it, until a new approval
        replace_node(
            NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, plan.release_steps[0].order[0].node_id))
        )


def test_a_replica_that_no_broker_returns_now_is_waited_for_and_voids_no_approval(
    ports: ClusterPorts, world: FakeCluster
) -> None:
    plan = planned(ports, COMMITS)
    at = NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, plan.release_steps[0].order[0].node_id))
    world.unread_replicas = [unread_replica(OFFSETS, 0, 12)]
    with pytest.raises(TransientError, match="1 replica could not be read") as waits:
        replace_node(at)
    assert "Start broker 12" in waits.value.remedy
    assert world.stops == []
    world.written_since.append(UNREADABLE)
    found = {finding.code for finding in find_new_in_logs(at.run, at.release_step)}
    assert "LOGS-NOT-LOADABLE" in found, "what was read decides"
    world.unread_replicas, world.written_since = [], []
    assert replace_node(at), "the approval still counts"


def test_what_was_approved_with_the_plan_stops_nothing(ports: ClusterPorts, world: FakeCluster) -> None:
    plan = planned(ports, COMMITS, UNKNOWN_TYPE)
    world.written_since.append(UNKNOWN_TYPE)
    assert replace_node(
        NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, plan.release_steps[0].order[0].node_id))
    )


def test_the_logs_are_read_on_once_before_the_first_stop_of_a_release_step(
    ports: ClusterPorts, world: FakeCluster
) -> None:
    plan = planned(ports, COMMITS)
    first, second = (node_step.node_id for node_step in plan.release_steps[0].order[:2])
    world.written_since += [COMMITS, COMMITS]
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, first)))
    assert tails(ports) == [2]
    ref = GateRef(kind=GateKind.AFTER_START, release_step=RELEASE_STEP, node_id=first)
    while not check_gate(Run(ports, plan), ref.resolve(plan, ports.cluster)).passes:
        pass
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, second)))
    assert world.stops == [first, second]
    assert tails(ports) == [2]


@pytest.mark.parametrize("still_there", [False, True])
def test_what_the_gate_waited_for_is_read_again_and_voids_the_approval_if_it_is_there(
    ports: ClusterPorts, world: FakeCluster, still_there: bool
) -> None:
    plan = planned(ports, COMMITS, UNREADABLE)
    waited = CLEANED_AT_GATE.found(f"{R431}, topic {OFFSETS}", "")
    plan = replace(plan, findings=(waited,), direction=Direction.DOWNGRADE)
    left = (COMMITS, UNREADABLE) if still_there else (COMMITS,)
    world.group_records = GroupRecords(read_at=0.0, offsets=9, classes=left)
    found = [finding.code for finding in find_new_in_logs(Run(ports, plan), plan.release_steps[0])]
    assert ("LOGS-NOT-LOADABLE" in found) is still_there
