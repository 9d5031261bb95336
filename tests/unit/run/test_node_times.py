"""Elapsed and remaining time of the node steps of a run."""

from __future__ import annotations

from pathlib import Path

from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.model.plan import Plan
from kafka_rollout.rehearsal.result import RehearsalOutcome
from kafka_rollout.run.estimates import Estimate, estimate_of
from kafka_rollout.run.events import Event
from kafka_rollout.run.projections.nodes import (
    expected_commands_s,
    expected_node_step_s,
)
from kafka_rollout.run.step_events import (
    GateFailed,
    GatePassed,
    PreparingStop,
    Rehearsed,
    Started,
    Stopping,
    StopPrepared,
)
from kafka_rollout.run.view import RunView
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_upgrade

FORTH, BACK = "3.9.1-to-4.3.1", "4.3.1-to-3.9.1"


def node_step(key: str, node_id: int, began: float, ended: float) -> list[Event]:
    ref = GateRef(kind=GateKind.AFTER_START, release_step=key, node_id=node_id)
    return [
        Stopping(at=began, node_id=node_id, release_step=key),
        GatePassed(at=ended, ref=ref, gate=f"after node {node_id}", message="passed"),
    ]


def plan_of_six(tmp_path: Path) -> Plan:
    return plan_upgrade(fake_ports(FakeCluster(R391), tmp_path), R431, finalize=True)


def test_the_nodes_that_are_left_take_as_long_as_those_before(tmp_path: Path) -> None:
    plan = plan_of_six(tmp_path)
    assert estimate_of(RunView(), plan) is None
    events = [*node_step(FORTH, 2, 100, 120), *node_step(FORTH, 3, 130, 170)]
    expected = Estimate(remaining_s=4 * 30.0, at_least_s=80.0, at_most_s=160.0, left=4, batches=4)
    assert estimate_of(RunView.of(events), plan) == expected


def test_before_the_first_node_is_done_the_nodes_take_as_long_as_in_the_rehearsal(tmp_path: Path) -> None:
    plan, seconds = plan_of_six(tmp_path), {"a": 10.0, "b": 30.0}
    rehearsed = Rehearsed(outcome=RehearsalOutcome.PASSED, sentence="", seconds=1.0, node_seconds=seconds, findings=())
    found = estimate_of(RunView.of([rehearsed]), plan)
    assert found == Estimate(left=6, batches=6, remaining_s=6 * 20.0, at_least_s=60.0, at_most_s=180.0)


def test_a_rollback_has_the_nodes_that_the_run_touched_left(tmp_path: Path) -> None:
    events = [*node_step(FORTH, 2, 0, 10), Stopping(at=20, node_id=3, release_step=FORTH), *node_step(BACK, 3, 30, 40)]
    found = estimate_of(RunView.of(events), plan_of_six(tmp_path))
    assert found == Estimate(remaining_s=10.0, at_least_s=10.0, at_most_s=10.0, left=1, batches=1)


def test_a_node_step_that_waited_for_a_person_is_not_expected_again() -> None:
    release = R431
    failed = GateRef(kind=GateKind.AFTER_START, release_step=FORTH, node_id=3)
    events: list[Event] = [
        *node_step(FORTH, 2, 0, 100),
        Stopping(at=100, node_id=3, release_step=FORTH),
        GateFailed(at=200, ref=failed, gate="after node 3", message="failed"),
        GatePassed(at=9000, ref=failed, gate="after node 3", message="passed"),
        Stopping(at=9000, node_id=1, release_step=FORTH),
        Started(at=9010, node_id=1, release_step=FORTH, release=release, pid=1, seconds=10.0),
        Started(at=20000, node_id=1, release_step=FORTH, release=release, pid=2, seconds=10.0),
        *node_step(FORTH, 1, 20010, 20130)[1:],
        Stopping(at=20130, node_id=11, release_step=FORTH),
        *node_step(FORTH, 11, 30000, 30200),
    ]
    assert expected_node_step_s(events, soak_s=30.0) == 150.0  # of node 2, and of node 11 from its last stop
    assert expected_node_step_s(events[1:5], soak_s=30.0) == 90.0  # none counts


def test_commands_before_a_stop_take_as_long_as_the_last_ones_with_their_limit() -> None:
    events: list[Event] = []
    for node_id, limit_s, took_s in ((11, 60.0, 50.0), (12, 60.0, 40.0), (2, 10.0, 1.0)):
        prepared = StopPrepared(node_id=node_id, release_step=FORTH, seconds=took_s)
        events += [PreparingStop(node_id=node_id, release_step=FORTH, commands=1, at_most_s=limit_s), prepared]
    events.append(PreparingStop(node_id=13, release_step=FORTH, commands=1, at_most_s=60.0))  # it failed
    assert [expected_commands_s(events, limit_s) for limit_s in (60.0, 10.0, 3600.0, 0.0)] == [40.0, 1.0, 3600.0, 0.0]
