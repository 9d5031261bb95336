"""The gate before features fall, on a fake cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.gates.gate import Gate, GateKind
from kafka_rollout.groups.group_records import GroupRecords
from kafka_rollout.model.plan import Direction, FeatureChange, Plan, Undo
from kafka_rollout.model.state import GroupState
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.frozen_plan import recheck
from kafka_rollout.roll.gate_checks import check_gate
from tests.fakes.cluster import FakeCluster

GATE = Gate(kind=GateKind.GROUPS)
ACTIVE = GroupState(group_id="g", type="consumer", state="Stable", members=2)


def falling(plan: Plan, *, to: int = 0, unsafe: bool = False) -> Plan:
    change = FeatureChange(
        feature="group.version", current=1, target=to, undo=Undo.POSSIBLE, undo_source="the test", loss=""
    )
    return replace(plan, direction=Direction.DOWNGRADE, release_steps=(), feature_changes=(change,), unsafe=unsafe)


def test_members_first_then_tombstones_then_it_holds(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    plan = falling(plan)
    cluster.groups = [ACTIVE]
    cluster.group_records = GroupRecords(read_at=0.0, offsets=9, alive={"consumer": frozenset({"g"})})
    assert "1 group to convert: g" in check_gate(Run(ports, plan), GATE).waits_for
    cluster.groups = [replace(ACTIVE, type="classic")]
    assert "tombstones" in check_gate(Run(ports, plan), GATE).waits_for
    cluster.group_records = GroupRecords(read_at=0.0, offsets=9)
    assert check_gate(Run(ports, plan), GATE).passes


def test_on_a_way_up_groups_that_the_next_release_serves_only_from_a_level_on_are_waited_for(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.groups = [ACTIVE]
    assert "1 group to convert: g" in check_gate(Run(ports, plan), GATE).waits_for
    assert "GROUPS-NOT-SERVED" in {finding.code for finding in recheck(Run(ports, plan)).blockers}, (
        "it came after the gate"
    )
    assert recheck(Run(ports, plan), waits=True).ok, "the gate is still ahead"
    cluster.groups = [replace(ACTIVE, members=0, state="Empty")]
    assert check_gate(Run(ports, plan), GATE).passes


@pytest.mark.parametrize("kept", ["a level that serves them", "accepted losses", "a way up"])
def test_where_no_type_falls_or_a_person_accepted_it_there_is_nothing_to_wait_for(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, kept: str
) -> None:
    cluster.groups = [ACTIVE]
    plans = {
        "a level that serves them": falling(plan, to=1),
        "accepted losses": falling(plan, unsafe=True),
        "a way up": replace(plan, release_steps=()),
    }
    seen = check_gate(Run(ports, plans[kept]), GATE)
    assert [condition.name for condition in seen.conditions] == ["nothing to wait for"]
