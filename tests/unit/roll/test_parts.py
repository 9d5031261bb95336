"""The parts of batches in the history: each begins and ends once, however often its gate is checked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import GatePolicy, WatchState
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.kinds import DOWNGRADE, UPGRADE
from kafka_rollout.roll import loop
from kafka_rollout.roll.loop import BatchWatch
from kafka_rollout.roll.walk import roll_back, roll_release_steps
from kafka_rollout.run.events import ApprovalOf, Decision, StepBegan, StepEnded
from kafka_rollout.run.projections.open_batches import BatchPart, RollOf
from kafka_rollout.run.view import RunView, StepState
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.runtime import FakeRuntime

QUICK = GatePolicy(checks=1, interval_s=1, timeout_s=60)


def new_watch() -> BatchWatch:
    return BatchWatch(policy=lambda kind: QUICK)


def parts(ports: ClusterPorts) -> list[str]:
    return [
        f"{'began' if isinstance(event, StepBegan) else event.outcome} {event.name}"
        for event in ports.run.events()
        if isinstance(event, StepBegan | StepEnded) and event.batch is not None
    ]


def test_the_parts_are_steps_of_the_procedures() -> None:
    for of in (RollOf.PLAN, RollOf.ROLLBACK):
        assert all(UPGRADE.find(of.step_of(part)) is not None for part in BatchPart)
    for of in (RollOf.OFFLINE, RollOf.OFFLINE_UNDO):
        assert DOWNGRADE.find(of.step_of(BatchPart.GATE_AFTER)) is not None


def test_a_gate_that_waits_for_its_turn_or_is_checked_again_records_nothing_more(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    roll = loop.roll_of(Run(ports, plan))
    first, later = roll.batches[0], roll.batches[4]
    assert loop.gate_before(roll, later, new_watch()).state is WatchState.WAITING
    assert parts(ports) == []
    cluster.topics = {name: replace(one, isr=one.isr[:1]) for name, one in cluster.topics.items()}
    cluster.silent.update({11, 12, 13})
    watch = new_watch()
    for _ in range(20):
        assert loop.gate_before(roll, first, watch).state is WatchState.WAITING
        ports.clock.sleep(1)
    assert parts(ports) == ["began roll.gate_before of batch 1"]
    view = RunView.of(ports.run.events())
    assert (view.part, view.running) == (("roll.gate_before", 0), "roll")


def test_a_run_that_is_continued_records_nothing_of_the_batches_that_are_done(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: len(cluster.stops) == 2)
    seen = parts(ports)
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: len(cluster.stops) == 3)
    again = parts(ports)[len(seen) :]
    assert again
    assert not [one for one in again if one.endswith("of batch 1")]


def test_a_rollback_and_another_roll_record_their_parts_again(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: len(cluster.stops) == 2)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "a doubt")
    assert roll_back(Run(ports, plan), QUICK)
    view = RunView.of(ports.run.events())
    assert view.parts["roll_back.gate_after", 1].state is StepState.DONE
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "no doubt")
    seen = parts(ports)
    assert roll_release_steps(Run(ports, plan), QUICK)
    again = parts(ports)[len(seen) :]
    assert again[:2] == ["began roll.gate_before of batch 1", "done roll.gate_before of batch 1"]
    assert {node.running for node in cluster.nodes.values()} == {R431}


def test_a_node_that_does_not_respond_holds_the_gate_until_its_timeout_and_then_fails_the_part(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    process, began = FakeRuntime.process, ports.clock.monotonic()

    def done() -> set[tuple[str, int]]:
        found = RunView.of(ports.run.events()).parts
        return {part for part, seen in found.items() if seen.state is StepState.DONE}

    def lost(runtime: FakeRuntime, node: NodeSpec) -> object:
        if node.node_id == 3 and (RollOf.PLAN.step_of(BatchPart.GATE_AFTER), 0) in done():
            raise TransientError("The host of node 3 does not respond.")
        return process(runtime, node)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeRuntime, "process", lost)
        with pytest.raises(TransientError, match="waits for a response: The host of node 3 does not respond"):
            roll_release_steps(Run(ports, plan), QUICK)
    assert 60 < ports.clock.monotonic() - began < 180
    assert cluster.stops == [2]
    view = RunView.of(ports.run.events())
    assert view.parts["roll.gate_before", 1].state is StepState.FAILED
    assert (view.steps["roll"].state, view.part) == (StepState.FAILED, None)
    assert roll_release_steps(Run(ports, plan), QUICK)
