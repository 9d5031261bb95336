"""The phase of each node, forth and back, from the history alone."""

from __future__ import annotations

import pytest

from kafka_rollout.gates.gate import GateCondition, GateKind, GateRef
from kafka_rollout.gates.reasons import PROCESS
from kafka_rollout.run.node_status import NodeStatus, node_statuses
from kafka_rollout.run.step_events import GatePassed, PreparingStop, Started, Stopped, Stopping, StopPrepared
from kafka_rollout.run.view import NodeStage, RunView
from tests.console_scenes import R391, R431, Scene, cluster_of
from tests.records import failed_step

BACK = "4.3.1-to-3.9.1"


def scene() -> Scene:
    found = Scene(cluster=cluster_of(1, controllers=2), began_at=1000.0, done=0)
    found.begin()
    return found


def phases(of: Scene, *, has_ended: bool = False) -> dict[int, NodeStage]:
    return {one.node_id: one.phase for one in node_statuses(RunView.of(of.events), of.plan, has_ended=has_ended)}


def status(of: Scene, node_id: int) -> NodeStatus:
    return next(one for one in node_statuses(RunView.of(of.events), of.plan) if one.node_id == node_id)


def test_a_node_goes_from_waiting_through_its_stop_and_start_to_done() -> None:
    run = scene()
    seen = [status(run, 1).phase]
    run.restart(1)
    for number in range(len(run.events)):
        part = Scene(cluster=run.cluster, began_at=0.0, done=0, events=run.events[: number + 1])
        if (phase := status(part, 1).phase) != seen[-1]:
            seen.append(phase)
    run.check(GateKind.AFTER_START, 1, GateCondition(name=PROCESS, is_met=False, evidence="no process"))
    seen.append(status(run, 1).phase)
    run.check(GateKind.AFTER_START, 1, GateCondition(name="in every ISR it was in", is_met=False, evidence="3 left"))
    seen.append(status(run, 1).phase)
    assert status(run, 1).note == "in every ISR it was in: 3 left"
    run.pass_gate(1, 5.0)
    seen.append(status(run, 1).phase)
    starting, catching_up = NodeStage.STARTING, NodeStage.CATCHING_UP
    before = [NodeStage.WAITING, NodeStage.GATE_BEFORE, NodeStage.STOPPING, NodeStage.STOPPED, starting]
    assert seen == [*before, starting, catching_up, NodeStage.DONE]
    done = status(run, 1)
    assert (done.release, done.target, done.is_down) == (R431, None, False)
    assert done.began_at is not None
    assert done.ended_at is not None
    assert done.ended_at - done.began_at == 19.0


@pytest.mark.parametrize("is_held", [True, False])  # by the window, or by a condition of the gate
def test_a_node_that_waits_after_its_commands_waits_for_its_gate_and_does_not_stop(is_held: bool) -> None:
    run, closed = scene(), GateCondition(name="maintenance window", is_met=False, evidence="closed until Tu 22:00")
    run.add(PreparingStop(at=run.tick(1), node_id=1, release_step=run.step.key, commands=1, at_most_s=60.0))
    run.add(StopPrepared(at=run.tick(60), node_id=1, release_step=run.step.key, seconds=60.0))
    run.check(GateKind.BEFORE_STOP, 1, GateCondition(name="min ISR without it", is_met=True, evidence="kept"))
    assert status(run, 1).phase is NodeStage.PREPARING
    run.tick(1)
    run.check(GateKind.BEFORE_STOP, 1, closed, is_held=is_held)
    held = status(run, 1)
    assert (held.phase, held.note) == (NodeStage.GATE_BEFORE, "maintenance window: closed until Tu 22:00")
    assert (held.since, held.began_at) == (run.at, None)
    run.add(Stopping(at=run.tick(1), node_id=1, release_step=run.step.key))
    run.check(GateKind.BEFORE_STOP, 1, closed, is_held=is_held)
    assert (status(run, 1).phase, status(run, 1).began_at) == (NodeStage.STOPPING, run.at)


def test_a_failed_node_stays_down_and_the_others_wait() -> None:
    run = scene()
    run.restart(1)
    run.pass_gate(1, 5.0)
    run.restart(2)
    run.fail_gate(2, (9, 4))
    assert phases(run) == {1: NodeStage.DONE, 2: NodeStage.FAILED, 101: NodeStage.WAITING}
    assert (status(run, 2).is_down, status(run, 2).release) == (True, R431)


def test_a_task_that_fails_fails_the_nodes_under_way_and_no_others() -> None:
    run = scene()
    run.restart(1)
    run.add(failed_step("roll", "The host does not respond.", at=run.tick(1)))
    assert phases(run) == {1: NodeStage.FAILED, 2: NodeStage.WAITING, 101: NodeStage.WAITING}
    assert status(run, 1).note == "The host does not respond."


def test_nodes_stay_visible_in_a_rollback_and_after_the_end() -> None:
    run = scene()
    run.restart(1)
    run.pass_gate(1, 5.0)
    run.restart(2)
    run.fail_gate(2, (9,))
    run.add(Stopping(at=run.tick(1), node_id=2, release_step=BACK))
    assert phases(run) == {1: NodeStage.WAITING, 2: NodeStage.STOPPING, 101: NodeStage.UNCHANGED}
    run.add(Stopped(at=run.tick(1), node_id=2, release_step=BACK, seconds=1.0, forced=False))
    run.add(Started(at=run.tick(1), node_id=2, release_step=BACK, release=R391, pid=8, seconds=1.0))
    ref = GateRef(kind=GateKind.AFTER_START, release_step=BACK, node_id=2)
    run.add(GatePassed(at=run.tick(1), ref=ref, gate="after node 2", message="passed"))
    assert phases(run) == {1: NodeStage.WAITING, 2: NodeStage.ROLLED_BACK, 101: NodeStage.UNCHANGED}
    assert (status(run, 2).release, status(run, 1).target) == (R391, R391)
    assert phases(run, has_ended=True)[101] is NodeStage.UNCHANGED


def test_a_run_without_a_plan_has_no_nodes() -> None:
    assert node_statuses(scene().events, None) == ()


def test_an_open_gate_has_the_checks_since_the_last_start_and_ends_with_its_pass() -> None:
    run = scene()
    run.restart(1)
    run.fail_gate(1, (9, 4))
    (gate,) = RunView.of(run.events).open_gates
    assert (gate.ref.node_id, len(gate.checks), gate.message != "") == (1, 2, True)
    run.add(Started(at=run.tick(1), node_id=1, release_step=run.step.key, release=R431, pid=8, seconds=1.0))
    assert RunView.of(run.events).open_gates == ()
    run.fail_gate(1, (3,))
    assert [len(gate.checks) for gate in RunView.of(run.events).open_gates] == [1]
    run.pass_gate(1, 5.0)
    assert RunView.of(run.events).open_gates == ()
