"""The console of a downgrade that stops all nodes, or all controllers: steps, nodes, clients, and the undo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_rollout.console.cluster_status import Phase, RunState, build_status
from kafka_rollout.console.run_console import Console, build_console
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import Gate, GateKind, GatePolicy
from kafka_rollout.lowering.live import lower_live
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.kinds import DOWNGRADE, build_report_of_run
from kafka_rollout.procedure.progress import Progress
from kafka_rollout.procedure.step_lines import step_lines
from kafka_rollout.report.spans import spans_of_report, spans_of_run
from kafka_rollout.roll.gate_checks import wait_for_gate
from kafka_rollout.roll.loop import roll_of
from kafka_rollout.roll.walk import wait_until_back
from kafka_rollout.run.events import Approval, ApprovalOf, Asked, Decision, Event, StepBegan, StepEnded, StepOutcome
from kafka_rollout.run.projections.open_batches import RollOf
from kafka_rollout.run.step_events import LiveLowered, OfflineStopping
from kafka_rollout.run.view import NodeStage, RunView, StepState
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.integration.harness.faults.without_live import stage_no_live
from tests.unit.lowering.test_live import approved as approved_live
from tests.unit.lowering.test_offline import FORWARD, approved, take_back

SOON = GatePolicy(checks=1, interval_s=1, timeout_s=60)


@pytest.fixture
def ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterPorts:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    return fake_ports(FakeCluster(R431), tmp_path)


@pytest.fixture
def offline_plan(ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch) -> Plan:
    stage_no_live(monkeypatch)
    return approved(ports)


def run_of(ports: ClusterPorts, plan: Plan, events: Sequence[Event] = ()) -> RunState:
    view = RunView.of(events or ports.run.events())
    steps = step_lines(DOWNGRADE, view, plan)
    return RunState(run_id="r", view=view, plan=plan, steps=steps, has_lock=True, command="downgrade")


def console_of(ports: ClusterPorts, plan: Plan, events: Sequence[Event] = ()) -> Console:
    run = run_of(ports, plan, events)
    return build_console(run, build_status("c", (run,), None, ports.clock.now()))


def states(console: Console) -> dict[str, StepState]:
    return {step.id: step.state for step in console.steps}


def go(ports: ClusterPorts, plan: Plan, steps: int) -> None:
    """The first steps of an offline downgrade, as their tasks record them."""
    for act in FORWARD[:steps]:
        act(Run(ports, plan))
        name = "choose_log" if act.__name__ == "choose" else act.__name__  # type: ignore[attr-defined]
        ports.run.record(StepEnded(step=f"offline.{name}", outcome=StepOutcome.DONE))


def test_the_steps_are_those_of_the_plan_and_none_is_done_before_it_began(
    ports: ClusterPorts, offline_plan: Plan
) -> None:
    ports.run.record(StepEnded(step="approve_roll", outcome=StepOutcome.DONE))
    planned = console_of(ports, offline_plan)
    seen = states(planned)
    assert {seen[one] for one in ("live.lower_level", "gate_snapshot", "roll")} == {StepState.SKIPPED}
    assert not seen.keys() & {"dry_run", "live.begin", "offline.begin", "offline.undo.restore"}
    assert planned.current_step == "offline.stop_all"
    before = [event for event in ports.run.events() if not isinstance(event, Approval | StepEnded)]
    assert console_of(ports, offline_plan, before).current_step == "observe", "not after what the plan skips"


def test_with_all_nodes_stopped_no_client_is_served_and_no_text_is_about_single_nodes(
    ports: ClusterPorts, offline_plan: Plan
) -> None:
    go(ports, offline_plan, 1)
    console = console_of(ports, offline_plan)
    assert (console.phase, console.current_step) == (Phase.ROLLING, "offline.choose_log")
    assert states(console)["offline.nodes"] is StepState.OPEN
    assert {node.phase for node in console.nodes} == {NodeStage.STOPPED}
    assert console.stopped == "The run stopped all 6 nodes. No gate has passed since."
    assert console.stop is not None
    assert console.stop.clients == "No client can produce or consume: the run stopped all nodes."
    assert not console.stop.serves
    assert (console.way_back, console.estimate) == ("The downgrade can be undone from the backups.", None)
    assert build_status("c", (run_of(ports, offline_plan),), None, ports.clock.now()).step == "Choose log"
    go(ports, offline_plan, 7)
    after = console_of(ports, offline_plan)
    assert (after.stop, after.way_back, after.estimate) == (None, "", None)
    assert {node.phase for node in after.nodes} == {NodeStage.STARTING}
    told = "\n".join(Progress(procedure=DOWNGRADE).lines(offline_plan, ports.run.events()))
    for line in ("All nodes are requested to stop", "log of node", "is chosen", "metadata.version 29 is written"):
        assert line in told
    assert "left" not in told


def test_an_undo_is_a_rollback_until_its_last_gate_and_the_steps_after_it_are_skipped(
    ports: ClusterPorts, offline_plan: Plan
) -> None:
    go(ports, offline_plan, 1)
    ports.run.record(StepBegan(step="offline.choose_log"))
    text = "fake: the offline step choose_log failed. How to continue?"
    ports.run.record(
        Asked(
            what=ApprovalOf.FAILED_GATE,
            task_id="offline.choose_log",
            record_id="r",
            text=text,
            options=("Retry", "Roll back"),
        )
    )
    record_approval(ports, ApprovalOf.FAILED_GATE, "alice", Decision.ROLL_BACK, "a test")
    take_back(ports, offline_plan)
    ports.run.record(StepEnded(step="offline.undo.restore", outcome=StepOutcome.DONE))
    console = console_of(ports, offline_plan)
    assert (console.phase, console.way_back) == (Phase.ROLLING_BACK, "")
    assert console.current_step == "offline.undo.nodes"
    seen = states(console)
    assert {seen[one] for one in ("offline.write_snapshot", "offline.nodes", "verify_levels")} == {StepState.SKIPPED}
    reasons = {step.id: step.reason for step in console.steps}
    assert reasons["offline.choose_log"] == "Failed; the run is rolled back."
    assert reasons["offline.write_snapshot"] == "The run is rolled back."
    assert not any(one.startswith("roll_back") for one in seen)
    roll = roll_of(Run(ports, offline_plan), RollOf.OFFLINE_UNDO)
    for batch in roll.batches:
        wait_until_back(roll, batch, SOON, lambda *_: None)
    assert states(console_of(ports, offline_plan))["offline.undo.nodes"] is StepState.DONE
    report = build_report_of_run(Run(ports, offline_plan), procedure=DOWNGRADE)
    for spans in (spans_of_run(RunView.of(ports.run.events()), {}), spans_of_report(report)):
        assert len(spans) == 12
        assert all(span.started_at is not None and span.ended_at is not None for span in spans)


def test_the_controllers_of_a_live_downgrade_are_stopped_until_the_level_is_lowered(ports: ClusterPorts) -> None:
    plan = approved_live(ports)
    wait_for_gate(Run(ports, plan), Gate(kind=GateKind.CONTROLLERS_STOP), SOON)
    lower_live(Run(ports, plan))
    for step in ("live.gate_controllers", "live.lower_level"):
        ports.run.record(StepEnded(step=step, outcome=StepOutcome.DONE))
    events = ports.run.events()
    switch = next(at for at, event in enumerate(events) if isinstance(event, OfflineStopping)) + 1
    console = console_of(ports, plan, events[:switch])
    assert {node.node_id for node in console.nodes if node.phase is NodeStage.STOPPED} == {1, 2, 3}
    assert console.stopped == "The run stopped nodes 1, 2, 3, whose gate has not passed since."
    assert console.stop is not None
    assert console.stop.serves
    assert "no partition leader is elected" in console.stop.clients
    lowered = console_of(ports, plan, events)
    assert any(isinstance(event, LiveLowered) for event in events)
    assert (lowered.stop, {node.phase for node in lowered.nodes}) == (None, {NodeStage.WAITING})
    assert (lowered.gates, states(lowered)["live.gate_controllers"]) == ((), StepState.DONE)
    assert states(lowered)["offline.stop_all"] is StepState.SKIPPED
    for spans in (
        spans_of_run(RunView.of(events), {}),
        spans_of_report(build_report_of_run(Run(ports, plan), procedure=DOWNGRADE)),
    ):
        assert [(span.name, span.ended_at is not None) for span in spans] == [("all controllers", True)]
    reason = next(step.reason for step in lowered.steps if step.id == "offline.stop_all")
    assert reason == "A live downgrade lowers metadata.version: the nodes are not stopped all at once."
