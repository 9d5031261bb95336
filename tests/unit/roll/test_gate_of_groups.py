"""The gate before features fall, on a fake cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.formats.log_types import RecordKind
from kafka_rollout.gates.gate import Gate, GateKind
from kafka_rollout.groups.group_records import GroupRecords, conversion_conditions
from kafka_rollout.model.plan import Direction, FeatureChange, Plan, Undo
from kafka_rollout.model.state import GroupState
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.frozen_plan import recheck
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import REBALANCE_PROTOCOLS
from kafka_rollout.roll.gate_checks import check_conversion, check_gate
from tests.fakes.cluster import INCLUDE, R391, FakeCluster

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


@pytest.mark.parametrize(
    ("file", "override", "is_met"),
    [
        ("classic,consumer", None, True),
        (None, "classic,consumer", True),
        ("classic,consumer", "classic", False),
        (None, None, False),
    ],
)
def test_records_are_judged_for_the_group_coordinator_of_the_next_start(
    ports: ClusterPorts, cluster: FakeCluster, file: str | None, override: str | None, is_met: bool
) -> None:
    """The classic one of 3.9 fails on a committed offset of a version that the new one loads."""
    commit = RecordKind(topic=GROUPS_TOPIC, partition=0, key_version=1, value_version=9, count=1, first_offset=0)
    cluster.group_records = GroupRecords(read_at=0.0, offsets=1, classes=(commit,), partitions=((GROUPS_TOPIC, 0),))
    if file is not None:
        for node in cluster.nodes.values():
            node.config[REBALANCE_PROTOCOLS] = file
    lines = {} if override is None else {str(R391): {REBALANCE_PROTOCOLS: override}}
    ports = replace(ports, cluster=replace(ports.cluster, release_overrides=lines))
    (loads,) = check_conversion(ports, (), [R391]).conditions
    assert loads.is_met is is_met


def test_a_release_whose_group_coordinator_is_unknown_is_not_proved() -> None:
    read = GroupRecords(read_at=0.0, offsets=0, partitions=((GROUPS_TOPIC, 0),), new_group_coordinator=None)
    (loads,) = conversion_conditions((), read, (), catalogue=load_catalogue(INCLUDE), releases=[R391])
    assert not loads.is_met
    assert "It has two group coordinators" in loads.evidence
