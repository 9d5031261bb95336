"""The gate before features fall, on a fake cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.domain.errors import RefusedError
from kafka_rollout.domain.group_records import GroupRecords
from kafka_rollout.domain.plan import Direction, FeatureChange, Plan, Undo
from kafka_rollout.domain.scan_inventory import StateRecord
from kafka_rollout.domain.state import GroupState
from kafka_rollout.steps.gate import GateKind, GateRef, look
from kafka_rollout.steps.groups import look_at_conversion
from kafka_rollout.steps.workbench import Workbench
from tests.fake_cluster import FakeCluster
from tests.fakes import FakeLogs

GATE = GateRef(kind=GateKind.GROUPS)
ACTIVE = GroupState(group_id="g", type="consumer", state="Stable", members=2)
LIVE = StateRecord(
    topic="__consumer_offsets",
    partition=0,
    record="ConsumerGroupMetadata",
    key={"GroupId": "g"},
    value={"Epoch": 1},
    offset=3,
)


def falling(plan: Plan, *, to: int = 0, unsafe: bool = False) -> Plan:
    change = FeatureChange(
        feature="group.version", current=1, target=to, undo=Undo.POSSIBLE, undo_source="the test", loss=""
    )
    return replace(plan, direction=Direction.DOWNGRADE, hops=(), feature_changes=(change,), unsafe=unsafe)


def test_members_first_then_tombstones_then_it_holds(bench: Workbench, cluster: FakeCluster, plan: Plan) -> None:
    plan = falling(plan)
    cluster.groups = [ACTIVE]
    cluster.group_records = GroupRecords(read_at=0.0, offsets=9, newest=(LIVE,))
    assert "1 group to be converted: g" in look(bench, plan, GATE).waits_for
    cluster.groups = [replace(ACTIVE, type="classic")]
    assert "tombstones" in look(bench, plan, GATE).waits_for
    cluster.group_records = GroupRecords(read_at=0.0, offsets=9, newest=(replace(LIVE, value=None),))
    assert look(bench, plan, GATE).holds


@pytest.mark.parametrize("kept", ["a level that serves them", "accepted losses", "a way up"])
def test_where_no_type_falls_or_a_person_accepted_it_there_is_nothing_to_wait_for(
    bench: Workbench, cluster: FakeCluster, plan: Plan, kept: str
) -> None:
    cluster.groups = [ACTIVE]
    plans = {
        "a level that serves them": falling(plan, to=1),
        "accepted losses": falling(plan, unsafe=True),
        "a way up": plan,
    }
    seen = look(bench, plans[kept], GATE)
    assert [condition.name for condition in seen.conditions] == ["nothing to wait for"]


def test_a_log_that_is_too_long_to_be_read_is_left_to_the_scans_but_members_are_not(
    bench: Workbench, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_long(_: FakeLogs) -> GroupRecords:
        raise RefusedError("It has 3,000,000 offsets.", remedy="Let Spark read it.")

    monkeypatch.setattr(FakeLogs, "group_records", too_long)
    cluster.groups = [ACTIVE]
    assert "1 group to be converted" in look(bench, falling(plan), GATE).waits_for
    cluster.groups = []
    seen = look(bench, falling(plan), GATE)
    assert seen.holds
    assert "3,000,000" in seen.conditions[-1].evidence
    with pytest.raises(RefusedError, match="3,000,000"):  # without a run there is no scan that it could be left to
        look_at_conversion(bench, ("consumer",), ())
