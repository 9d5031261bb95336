"""Conditions from outside in the gates of a run over a fake cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError, UserError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.control import Reading
from kafka_rollout.gates.gate import GateKind, GatePolicy
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import OutsideCondition
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.node_checks import check_inventory
from kafka_rollout.procedure import actions
from kafka_rollout.procedure.approval_requests import approval_body
from kafka_rollout.procedure.step import StepCall
from kafka_rollout.roll.gate_checks import check_gate
from kafka_rollout.roll.walk import RollProgress, roll_back, roll_release_steps
from kafka_rollout.run.events import ApprovalOf, Channel, Decision, PauseAsked, Responder, ResumeAsked, events_of
from kafka_rollout.run.step_events import GateChecked, GatePassed, Started
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports, gate_of

LAG = OutsideCondition(name="lag", query="sum(lag)", requires="< 5")
GOOD, BAD, UNKNOWN = Reading(value=1), Reading(value=9), Reading(problem="No response.", remedy="Start it.")
QUICK = GatePolicy(checks=1, interval_s=1, timeout_s=30)
ORDER = [2, 3, 1, 11, 12, 13]


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(R391)
    cluster.outside["lag"] = [GOOD]
    return cluster


@pytest.fixture
def planned(cluster: FakeCluster, tmp_path: Path) -> Callable[..., tuple[ClusterPorts, Plan]]:
    """Plan and approve on a cluster with the conditions."""

    def plan(*conditions: OutsideCondition, **fields: Any) -> tuple[ClusterPorts, Plan]:
        cluster.spec = replace(cluster.spec, conditions=conditions or (LAG,))
        ports = fake_ports(cluster, tmp_path, run_id=tmp_path.name)
        actions.plan_change(StepCall(ports=ports, request=Request(target=R431, scan=False, **fields)), RunOf.UPGRADE)
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
        return ports, ports.run.load_plan()

    return plan


def set_when(cluster: FakeCluster, message: str, *readings: Reading) -> Callable[[RollProgress], None]:
    """Set the readings once, when the run shows the message."""
    left = [list(readings)]

    def on_progress(progress: RollProgress) -> None:
        if left and message in f"{progress.node} {progress.message}":
            cluster.outside["lag"] = left.pop()

    return on_progress


Planned = Callable[..., tuple[ClusterPorts, Plan]]


@pytest.mark.parametrize(
    ("bad", "shown"), [(BAD, "condition lag: 9, required < 5"), (UNKNOWN, "unknown: No response.")]
)
def test_a_value_that_rises_stops_the_run_before_the_next_node_until_it_falls(
    cluster: FakeCluster, planned: Planned, bad: Reading, shown: str
) -> None:
    ports, plan = planned()
    waits: list[list[int]] = []
    rises = set_when(cluster, "(3) is done", *[bad] * 5, GOOD)

    def on_progress(progress: RollProgress) -> None:
        rises(progress)
        if shown in progress.message:
            waits.append(list(cluster.stops))

    assert roll_release_steps(Run(ports, plan), QUICK, on_progress=on_progress)
    assert cluster.stops == ORDER
    assert waits == [[2, 3]] * 5
    evidence = [c.evidence for e in events_of(ports.run.events(), GateChecked) for c in e.check.conditions]
    assert "1, required < 5" in evidence


def test_a_condition_that_stays_unmet_fails_the_gate_after_its_timeout(cluster: FakeCluster, planned: Planned) -> None:
    ports, plan = planned()
    cluster.outside["lag"] = [BAD]
    with pytest.raises(RefusedError, match="failed after 30 s: condition lag: 9, required < 5"):
        roll_release_steps(Run(ports, plan), QUICK)
    assert cluster.stops == []


def test_a_condition_that_fails_between_the_gate_and_the_stop_returns_to_the_gate(
    cluster: FakeCluster, planned: Planned
) -> None:
    ports, plan = planned()
    # 20 readings are more than the tries of a stop.
    assert roll_release_steps(
        Run(ports, plan), QUICK, on_progress=set_when(cluster, "(2) gate before node 2: passed", *[BAD] * 20, GOOD)
    )
    assert cluster.stops == ORDER


def test_a_condition_that_fails_after_each_pass_of_the_gate_ends_the_wait(
    cluster: FakeCluster, planned: Planned
) -> None:
    ports, plan = planned()

    def on_progress(progress: RollProgress) -> None:
        if "gate before node 2" in progress.message:
            cluster.outside["lag"] = [BAD] if "passed" in progress.message else [GOOD]

    for passes in (7, 14):  # the gate is waited for again three times, then as often as a stop is tried again
        with pytest.raises(TransientError, match="Node 2 cannot be stopped safely yet: condition lag: 9"):
            roll_release_steps(Run(ports, plan), QUICK, on_progress=on_progress)
        assert len(events_of(ports.run.events(), GatePassed)) == passes
        record_approval(ports, ApprovalOf.FAILED_GATE, "alice", Decision.RETRY, "watch the consumers")
    cluster.outside["lag"] = [GOOD]
    assert roll_release_steps(Run(ports, plan), QUICK)


def test_a_value_from_before_the_last_start_does_not_count_and_the_last_check_before_a_stop_reads_again(
    cluster: FakeCluster, planned: Planned
) -> None:
    ports, plan = planned()
    stops: list[float] = []

    def on_progress(progress: RollProgress) -> None:
        if "is stopped" in progress.message:
            stops.append(cluster.clock.now())

    cluster.outside_not_before.clear()
    assert roll_release_steps(Run(ports, plan), QUICK, on_progress=on_progress)
    starts = [event.at for event in events_of(ports.run.events(), Started)]
    assert cluster.outside_not_before[::2] == [0.0, *starts[:-1]]
    assert all(read >= stop for read, stop in zip(cluster.outside_not_before[1::2], stops, strict=True))


def test_a_value_from_before_the_start_does_not_count_after_it(cluster: FakeCluster, planned: Planned) -> None:
    ports, plan = planned(replace(LAG, applies_to=("after_start",)))
    cluster.outside_not_before.clear()
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert set(cluster.outside_not_before) == {event.at for event in events_of(ports.run.events(), Started)}


def test_a_condition_is_met_for_its_time_before_the_stop(cluster: FakeCluster, planned: Planned) -> None:
    ports, plan = planned(replace(LAG, for_s=20.0))
    cluster.outside["lag"] = [GOOD] * 5 + [BAD] + [GOOD]
    began = cluster.clock.now()
    stopped: list[float] = []

    def on_progress(progress: RollProgress) -> None:
        if "is stopped" in progress.message:
            stopped.append(cluster.clock.now())

    assert roll_release_steps(Run(ports, plan), QUICK, on_progress=on_progress)
    assert stopped[0] - began >= 25
    assert all(after - before >= 20 for before, after in pairwise(stopped))


def test_a_condition_after_the_start_is_checked_there_alone(cluster: FakeCluster, planned: Planned) -> None:
    ports, plan = planned(replace(LAG, applies_to=("after_start",)))
    cluster.outside["lag"] = [BAD]
    with pytest.raises(RefusedError, match=r"after node 2 .*condition lag: 9"):
        roll_release_steps(Run(ports, plan), QUICK)
    assert cluster.stops == [2]


def test_a_rollback_waits_for_no_condition(cluster: FakeCluster, planned: Planned) -> None:
    ports, plan = planned(replace(LAG, applies_to=("before_stop", "after_start"), for_s=20.0))
    cluster.cannot_start.add((11, R431))
    with pytest.raises(RefusedError, match="gate after node 11"):
        roll_release_steps(Run(ports, plan), QUICK)
    cluster.outside["lag"] = [BAD]
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "errors of clients")
    cluster.outside_reads.clear()
    began = cluster.clock.now()
    assert roll_back(Run(ports, plan), QUICK)
    assert cluster.clock.now() - began < 60  # of 160 s, if its gates kept the time
    assert {node.running for node in cluster.nodes.values()} == {R391}
    assert cluster.outside_reads == []


def test_a_paused_run_shows_the_value_and_stays_where_it_is_not_met(cluster: FakeCluster, planned: Planned) -> None:
    ports, plan = planned()
    shell = Responder(channel=Channel.SHELL, user="bob", host="jump")
    cluster.outside["lag"] = [BAD]
    ports.run.record(PauseAsked(by="bob", reason="errors", responder=shell))
    gate = gate_of(ports, plan, GateKind.BEFORE_STOP, plan.release_steps[0].key, 2)
    seen = check_gate(Run(ports, plan), gate)
    assert seen.is_held
    assert [condition.name for condition in seen.conditions] == ["no pause", "condition lag"]
    ports.run.record(ResumeAsked(by="bob", reason="no errors", responder=shell))
    seen = check_gate(Run(ports, plan), gate)
    assert not seen.is_held
    assert seen.waits_for == "condition lag: 9, required < 5"


def test_a_planned_pause_shows_the_value_to_the_approver(cluster: FakeCluster, planned: Planned) -> None:
    ports, plan = planned(pause_after="2")
    asked: list[str] = []

    def pause(what: ApprovalOf, why: str, _has_replaced: bool) -> bool:
        assert what is ApprovalOf.PAUSE
        asked.append(why)
        record_approval(ports, ApprovalOf.PAUSE, "alice", Decision.APPROVED, "fine")
        return True

    rises = set_when(cluster, "(3) is done", *[BAD] * 3, GOOD)
    assert roll_release_steps(Run(ports, plan), QUICK, on_progress=rises, continues=pause)
    assert asked[0].endswith("Now: condition lag: 9, required < 5 (not met: the next node waits).")
    assert asked[1].endswith("Now: condition lag: 1, required < 5.")
    assert cluster.stops == ORDER


def test_the_plan_shows_the_value_and_is_refused_without_one(cluster: FakeCluster, planned: Planned) -> None:
    _, plan = planned()
    assert "Condition lag (before stop) is met now: 1, required < 5." in approval_body(plan).replace("\\", "")
    cluster.outside["lag"] = [UNKNOWN]
    with pytest.raises(RefusedError, match="The value of condition lag is unknown: No response"):
        planned()


def test_a_run_can_skip_a_condition_and_the_approval_names_it(cluster: FakeCluster, planned: Planned) -> None:
    cluster.outside["lag"] = [UNKNOWN]
    ports, plan = planned(skip_conditions=("lag",))
    assert plan.blockers == ()
    assert "- Conditions from outside that the gates do **not** check: lag" in approval_body(plan)
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert cluster.outside_reads == []
    with pytest.raises(UserError, match="The inventory has no condition lags"):
        planned(skip_conditions=("lags",))


def test_the_check_of_an_inventory_evaluates_the_conditions_once(cluster: FakeCluster, planned: Planned) -> None:
    ports, _ = planned()
    cluster.outside_reads.clear()
    cluster.outside["lag"] = [UNKNOWN]
    _, verdict = check_inventory(ports, [])
    assert [found.code for found in verdict.blockers] == ["OUTSIDE-CONDITION-UNKNOWN"]
    assert cluster.outside_reads == ["lag"]


def test_a_batch_passes_its_gates_with_the_condition(cluster: FakeCluster, planned: Planned) -> None:
    ports, plan = planned()
    cluster.outside["lag"] = [UNKNOWN, BAD, GOOD]
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert [event.ref.node_id for event in events_of(ports.run.events(), GatePassed)][:2] == [2, 2]
