"""Pauses between the node steps of a DAG run: the tasks wait in the triggerer, without a worker."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.console.cluster_status import ClusterStatus
from kafka_rollout.gates.control import Reading
from kafka_rollout.gates.gate import HELD_INTERVAL_S, GateKind, GateRef
from kafka_rollout.model.topology import OutsideCondition
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Asked,
    Channel,
    ClearedInAirflow,
    ControlAsked,
    PauseAsked,
    Responder,
    ResumeAsked,
    StepBegan,
    StopAsked,
    events_of,
    has,
)
from kafka_rollout.run.step_events import Finalizing, GateChecked, OfflineStopping, Stopping
from kafka_rollout.wiring.runs import read_run_status, request_control
from tests.dags.conftest import DAG_ID, FakeRuns, spec_with_homes
from tests.dags.runs.dag_run import clear_and_continue, run_dag
from tests.fakes.cluster import R431, FakeCluster
from tests.integration.harness.faults.without_live import stage_no_live
from tests.records import change_lock, failed_steps, run_history
from tests.unit.lowering.test_offline import R421

pytestmark = pytest.mark.airflow

NIGHTS = "0 22 * * Mon-Fri 6h Europe/Berlin; 10 4 * * Tue 110m Europe/Berlin"  # a short pause has few checks
ORDER = [2, 3, 1]


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[GateRef]:
    """The gates that the triggerer checked."""
    from kafka_rollout.airflow.gates.trigger import GateTrigger

    run_trigger, gates = GateTrigger.run, list[GateRef]()

    def run(trigger: GateTrigger) -> Any:
        gates.append(from_json(GateRef, trigger.gate))
        return run_trigger(trigger)

    monkeypatch.setattr(GateTrigger, "run", run)
    return gates


def close_after(monkeypatch: pytest.MonkeyPatch, node_id: int, now: str) -> None:
    """The clock shows `now` when the node has started."""
    start = FakeCluster.start

    def start_late(world: FakeCluster, started: int) -> None:
        start(world, started)
        if started == node_id:
            world.clock.set(at(now), reading_s=0.001)

    monkeypatch.setattr(FakeCluster, "start", start_late)


@pytest.mark.usefixtures("combined")
def test_a_run_waits_for_the_next_window_in_the_triggerer(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.world.clock.set(at("2026-12-01 02:00"), reading_s=0.001)
    close_after(monkeypatch, 3, "2026-12-01 04:01")
    runs.world.spec = replace(runs.world.spec, window=NIGHTS, freeze_days=("2026-12-02",))
    state, states, record = runs.run()
    assert state == "success", states
    stops = {event.node_id: event.at for event in events_of(record.events(), Stopping)}
    assert list(stops) == ORDER
    assert stops[3] < at("2026-12-01 04:00")
    assert stops[1] >= at("2026-12-01 04:10")
    assert runs.asked == ["approve_plan"]
    assert change_lock(runs.home).holder("fake") is None


def ask_after(monkeypatch: pytest.MonkeyPatch, runs: FakeRuns, node_id: int, kind: type[ControlAsked]) -> None:
    """Another shell sends the request when the node has started."""
    start = FakeCluster.start

    def start_and_ask(world: FakeCluster, started: int) -> None:
        start(world, started)
        lock = change_lock(runs.home).holder("fake")
        if started == node_id and lock is not None:
            shell = Responder(channel=Channel.SHELL, user="bob", host="jump")
            asked = kind(by="bob", reason="errors of clients", responder=shell)
            run_history(runs.home, "fake", lock.holder).record(asked)

    monkeypatch.setattr(FakeCluster, "start", start_and_ask)


@pytest.mark.usefixtures("combined")
def test_a_stopped_run_fails_at_its_next_check_releases_its_lock_and_is_continued_by_clearing_its_gates(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        ask_after(patch, runs, 3, StopAsked)
        dag = runs.load()[DAG_ID]
        run = run_dag(dag, {"target_release": "4.3.1", "pace": "fast"})
    failed = [(ti.task_id, ti.map_index) for ti in run.get_task_instances() if ti.state == "failed"]
    record = run_history(runs.home, "fake", run.run_id)
    assert run.state == "failed"
    assert ("roll.gate_after", 1) in failed
    assert [event.node_id for event in events_of(record.events(), Stopping)] == [2, 3]
    assert runs.asked == ["approve_plan"]  # the operator has decided: no approver is asked how to continue
    assert change_lock(runs.home).holder("fake") is None
    way_on = "lear the task roll.gate_before with all downstream tasks"
    assert way_on in read_run_status("fake", run.run_id, Settings.from_environment())[0].next_action
    assert way_on in failed_steps(record.events())[-1].reason
    run = clear_and_continue(dag, run, "roll.gate_before")
    assert run.state == "success"
    assert [event.node_id for event in events_of(record.events(), Stopping)] == ORDER


@pytest.mark.usefixtures("combined")
def test_a_stop_ends_a_run_that_waits_for_an_approval_whatever_the_later_answer(runs: FakeRuns) -> None:
    settings = Settings.from_environment()

    def stop(task: str) -> None:
        lock = change_lock(runs.home).holder("fake")
        assert lock is not None
        request = StopAsked(by="bob", reason="errors", responder=Responder(channel=Channel.SHELL, user="bob"))
        assert "It has ended, and holds no lock." in request_control("fake", lock.holder, request, settings)
        assert change_lock(runs.home).holder("fake") is None

    runs.while_asked = stop
    state, states, record = runs.run()
    assert (state, states["approve_plan"], runs.world.stops) == ("failed", "failed", [])
    assert "bob stopped run" in failed_steps(record.events())[0].reason
    assert not events_of(record.events(), Approval)


@pytest.mark.usefixtures("combined")
def test_the_end_of_a_run_in_airflow_is_seen_at_once_and_no_task_of_it_takes_the_lock_again(runs: FakeRuns) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from kafka_rollout.airflow.common.outbox import OUTBOX
    from kafka_rollout.airflow.run_listener import on_dag_run_failed

    settings, shown = Settings.from_environment(), list[ClusterStatus]()

    def show(run_id: str) -> None:
        shown.append(read_run_status("fake", run_id, settings)[0])

    def mark(task: str) -> None:
        """A user marks the run as failed while it waits for an approval."""
        lock = change_lock(runs.home).holder("fake")
        assert lock is not None
        show(lock.holder)
        with create_session() as session:
            run = session.scalars(select(DagRun).where(DagRun.run_id == lock.holder)).one()
            run.state = "failed"
            on_dag_run_failed(run, "")
            assert OUTBOX.wait_until_empty(60)
            run.state = "running"  # the task goes on for some seconds
        show(lock.holder)

    runs.while_asked = mark
    state, states, record = runs.run()
    assert (state, states["approve_plan"], runs.world.stops) == ("failed", "failed", [])
    assert "Airflow ended (failed) run" in failed_steps(record.events())[0].reason
    assert [found.phase.value for found in shown] == ["waiting-for-approval", "failed"]
    assert not any("continues by itself" in found.next_action for found in shown)
    assert change_lock(runs.home).holder("fake") is None
    record.record(StepBegan(at=time.time() + 60.0, step="observe"))  # by a task that goes on
    show(record.run_id)
    assert shown[-1].phase.value == "failed"
    record.record(ClearedInAirflow(at=time.time() + 60.0))
    with create_session() as session:
        session.delete(session.scalars(select(DagRun).where(DagRun.run_id == record.run_id)).one())
    assert OUTBOX.wait_until_empty(60)
    show(record.run_id)
    assert "--take-over" in shown[-1].next_action


@pytest.mark.usefixtures("combined")
def test_a_paused_run_waits_in_the_triggerer_until_it_is_resumed(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_after(monkeypatch, runs, 3, PauseAsked)
    sleep, slept = runs.world.clock.on_sleep, list[float]()

    def resume_later(seconds: float) -> None:
        sleep(seconds)
        slept.append(seconds)
        lock = change_lock(runs.home).holder("fake")
        if slept.count(5.0) == 20 and lock is not None:
            shell = Responder(channel=Channel.SHELL, user="bob", host="jump")
            asked = ResumeAsked(by="bob", reason="the errors are gone", responder=shell)
            run_history(runs.home, "fake", lock.holder).record(asked)

    runs.world.clock.on_sleep = resume_later
    state, states, record = runs.run()
    assert state == "success", states
    assert [event.node_id for event in events_of(record.events(), Stopping)] == ORDER
    held = {event.ref.node_id for event in events_of(record.events(), GateChecked) if event.check.is_held}
    assert held == {1}


def test_an_approver_continues_after_each_pause_of_the_plan_or_rolls_back(runs: FakeRuns) -> None:
    first, second = "roll.gate_before[2]", "roll.gate_before[4]"
    runs.answers.update({first: ["Wait on"], second: ["Roll back"]})
    state, states, record = runs.run(pause_after="2")
    assert state == "failed"  # as after each rollback
    assert runs.asked == ["approve_plan", first, second]
    assert "nodes 2, 3 are done" in runs.bodies[first]
    stops = [event.node_id for event in events_of(record.events(), Stopping)]
    assert stops == [2, 3, 1, 11, 11, 1, 3, 2], states
    paused = [event for event in events_of(record.events(), Approval) if event.what is ApprovalOf.PAUSE]
    assert [(event.by, event.decision) for event in paused] == [("alice", "approved")]


@pytest.mark.parametrize("kind", [pytest.param(StopAsked, marks=pytest.mark.full), PauseAsked])
@pytest.mark.usefixtures("combined")
def test_a_request_after_the_last_node_ends_or_holds_the_task_that_changes_the_levels(
    runs: FakeRuns, watched: list[GateRef], kind: type[ControlAsked]
) -> None:
    shell = Responder(channel=Channel.SHELL, user="bob", host="jump")
    sleep, slept = runs.world.clock.on_sleep, list[float]()

    def ask(kind: type[ControlAsked]) -> None:
        lock = change_lock(runs.home).holder("fake")
        assert lock is not None
        run_history(runs.home, "fake", lock.holder).record(kind(by="bob", reason="errors", responder=shell))

    def resume_later(seconds: float) -> None:
        sleep(seconds)
        slept.append(seconds)
        if slept.count(HELD_INTERVAL_S) == 100:  # of 24 in a gate timeout
            ask(ResumeAsked)

    runs.world.clock.on_sleep = resume_later
    runs.while_asked = lambda task: ask(kind) if task == "approve_finalize" else None
    dag = runs.load()[DAG_ID]
    params = {"target_release": "4.3.1", "pace": "fast", "finalize": "after_approval"}
    run = run_dag(dag, params)
    record = run_history(runs.home, "fake", run.run_id)
    if kind is StopAsked:
        states = {ti.task_id: ti.state for ti in run.get_task_instances()}
        assert (run.state, states["pin_min_insync_replicas"]) == ("failed", "failed")
        assert not has(record.events(), Finalizing)
        assert "stopped by bob" in failed_steps(record.events())[0].reason
        run = clear_and_continue(dag, run, "pin_min_insync_replicas")
    else:
        assert watched[-1] == GateRef(kind=GateKind.NEXT_CHANGE)
        resumed = events_of(record.events(), ResumeAsked)[0].at
        assert events_of(record.events(), Finalizing)[0].at >= resumed
    assert run.state == "success"
    assert has(record.events(), Finalizing)


@pytest.mark.parametrize(
    ("where", "gate"),
    [
        pytest.param("offline", GateKind.NODES_STOP, id="offline"),
        pytest.param("live", GateKind.CONTROLLERS_STOP, id="live", marks=pytest.mark.full),
    ],
)
def test_a_downgrade_waits_in_the_triggerer_before_it_stops_all_nodes(
    runs: FakeRuns, watched: list[GateRef], monkeypatch: pytest.MonkeyPatch, where: str, gate: GateKind
) -> None:
    if where == "offline":
        stage_no_live(monkeypatch)
    runs.world = FakeCluster(R431, spec=spec_with_homes(), finalized={METADATA_VERSION: 30})
    runs.world.clock.set(at("2026-12-01 04:01"), reading_s=0.001)
    runs.world.spec = replace(runs.world.spec, window=NIGHTS)
    conf = {"target_release": "4.2.1", "lowering": where}
    state, states, record = runs.run("kafka_downgrade_fake", **conf)
    assert state == "success", states
    assert GateRef(kind=gate) in watched
    assert events_of(record.events(), OfflineStopping)[0].at >= at("2026-12-01 04:10")
    shown = [event.check.waits_for for event in events_of(record.events(), GateChecked) if event.check.is_held]
    assert shown[0] == "maintenance window: closed until Tue 2026-12-01 04:10 CET"
    assert {node.running for node in runs.world.nodes.values()} == {R421}


@pytest.mark.full
def test_a_condition_that_stays_unmet_fails_the_stop_of_all_nodes_and_clearing_it_continues(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_no_live(monkeypatch)
    runs.world = FakeCluster(R431, spec=spec_with_homes(), finalized={METADATA_VERSION: 30})
    condition = OutsideCondition(name="lag", query="sum(lag)", requires="< 5")
    runs.world.spec = replace(runs.world.spec, conditions=(condition,))
    runs.world.outside["lag"] = [Reading(value=1)]
    runs.while_asked = lambda task: runs.world.outside.update(lag=[Reading(problem="No response.")])
    dag = runs.load()["kafka_downgrade_fake"]
    params = {"target_release": "4.2.1", "lowering": "offline", "pace": "fast"}
    run = run_dag(dag, params)
    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    assert (run.state, states["offline.stop_all"], runs.world.stops) == ("failed", "failed", [])
    assert runs.asked == ["approve_roll"]  # nothing was stopped, so there is nothing to decide
    runs.world.outside["lag"] = [Reading(value=1)]
    assert clear_and_continue(dag, run, "offline.stop_all").state == "success"
    assert {node.running for node in runs.world.nodes.values()} == {R421}


@pytest.mark.full
def test_the_answer_about_a_failure_does_not_end_a_pause(runs: FakeRuns) -> None:
    runs.world.cannot_start.add((3, R431))

    def mend(task: str) -> None:
        if task == "roll.gate_after[1]":
            runs.world.cannot_start.clear()
            runs.world.start(3)

    runs.while_asked = mend
    runs.answers |= {task: ["Wait on"] for task in ("roll.gate_after[1]", "roll.gate_before[2]", "roll.gate_before[4]")}
    state, states, record = runs.run(pause_after="2")
    assert state == "success", states
    assert [event.is_pause for event in events_of(record.events(), Asked)] == [False, False, True, True]
    paused = [event for event in events_of(record.events(), Approval) if event.what is ApprovalOf.PAUSE]
    assert len(paused) == 2
