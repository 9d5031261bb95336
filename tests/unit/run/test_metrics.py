"""Gauges of a run from its history."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.gates.gate import GateCheck, GateCondition, GateKind, GateRef
from kafka_rollout.model.plan import Plan
from kafka_rollout.run.events import ApprovalOf, Asked, Event
from kafka_rollout.run.metrics import Metric, run_gauges
from kafka_rollout.run.step_events import GateChecked, GateFailed, GatePassed, Stopping
from kafka_rollout.run.view import RunView
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_upgrade
from tests.records import failed_step

KEY, BACK = "3.9.1-to-4.3.1", "4.3.1-to-3.9.1"


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return plan_upgrade(fake_ports(FakeCluster(R391), tmp_path), R431, finalize=False)


def after_start(node: int, key: str = KEY) -> GateRef:
    return GateRef(kind=GateKind.AFTER_START, release_step=key, node_id=node)


def passed(node: int) -> list[Event]:
    gate = GatePassed(ref=after_start(node), gate="after start", message="")
    return [Stopping(node_id=node, release_step=KEY), gate]


def checked(node: int, *, passes: bool) -> GateChecked:
    conditions = (GateCondition(name="isr", is_met=passes, evidence=""),)
    return GateChecked(ref=after_start(node), check=GateCheck(gate="after start", at=1.0, conditions=conditions))


def test_nodes_are_done_when_their_gate_passed(plan: Plan) -> None:
    events = [*passed(1), *passed(2), Stopping(node_id=3, release_step=KEY)]
    gauges = run_gauges(plan, RunView.of(events), is_parked=False)
    assert (gauges[Metric.NODES_DONE], gauges[Metric.NODES_LEFT]) == (2, 4)


def test_a_node_that_is_rolled_back_is_not_done(plan: Plan) -> None:
    gauges = run_gauges(
        plan, RunView.of([*passed(1), *passed(2), Stopping(node_id=2, release_step=BACK)]), is_parked=False
    )
    assert (gauges[Metric.NODES_DONE], gauges[Metric.NODES_LEFT]) == (1, 5)


def test_without_a_plan_the_nodes_are_not_counted() -> None:
    assert Metric.NODES_LEFT not in run_gauges(None, RunView(), is_parked=False)


def test_a_gate_waits_from_its_first_check_until_it_passes_or_fails() -> None:
    def waiting(*events: Event) -> int:
        return run_gauges(None, RunView.of(events), is_parked=True)[Metric.GATES_WAITING]

    ended = {"ref": after_start(1), "gate": "after start", "message": ""}
    assert waiting() == 0
    assert waiting(checked(1, passes=False)) == 1
    assert waiting(checked(1, passes=True)) == 1, "it is still being watched"
    assert waiting(checked(1, passes=False), GatePassed(**ended)) == 0
    assert waiting(checked(1, passes=False), GateFailed(**ended)) == 0
    assert waiting(GatePassed(**ended), checked(1, passes=True)) == 0, "checked once more before the act"
    assert waiting(GatePassed(**ended), checked(2, passes=False)) == 1


def test_a_request_is_open_while_its_task_is_parked() -> None:
    asked: Event = Asked(what=ApprovalOf.ROLL, task_id="approve_plan", record_id="r", text="", options=("Approve",))

    def is_open(*events: Event, is_parked: bool = True) -> int:
        return run_gauges(None, RunView.of(events), is_parked=is_parked)[Metric.ANSWERS_WAITING]

    assert is_open(asked) == 1
    assert is_open(asked, is_parked=False) == 0, "the time for the answer has ended"
    assert is_open(asked, failed_step("approve_plan", "")) == 0
