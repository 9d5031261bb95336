"""The shell and the tasks of a DAG play the same scenarios, and leave the same events.

The shell is `roll_release_steps` and `roll_back`. The tasks are the operators and the trigger themselves, in the order
in which Airflow runs them: one instance of each part for each batch. Only Airflow's scheduler is missing here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pytest

from kafka_rollout.base.errors import RolloutError, TransientError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import GateKind, GatePolicy
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.kinds import UPGRADE
from kafka_rollout.roll import loop
from kafka_rollout.roll.walk import roll_back, roll_release_steps
from kafka_rollout.run.events import (
    ApprovalOf,
    Channel,
    Decision,
    Event,
    PauseAsked,
    Responder,
    ResumeAsked,
    StepBegan,
    StepEnded,
)
from kafka_rollout.run.projections.open_batches import BatchPart, RollOf
from kafka_rollout.run.step_events import GateEnded, GateFailed, NodeEvent, RollbackPlanned, Started, Stopping
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.plans import plan_upgrade

pytestmark = pytest.mark.airflow

SHELL = Responder(channel=Channel.SHELL, user="bob", host="jump")
CHECKS = 2
_MOST_S = 120.0  # of a wait; the clock of the gates is not real
ORDER = [2, 3, 1, 11, 12, 13]


class KilledError(BaseException):
    """The process is gone."""


class StuckError(Exception):
    """A task needs a person: its gate has failed, or it was refused."""


class Driver(Protocol):
    """One process that drives a run until its end, a failure or its death."""

    def __call__(self, ports: ClusterPorts, plan: Plan, of: RollOf, /) -> None: ...


def by_shell(ports: ClusterPorts, plan: Plan, of: RollOf) -> None:
    policy = GatePolicy(checks=CHECKS, interval_s=1, timeout_s=60)
    roll = roll_release_steps if of is RollOf.PLAN else roll_back
    try:
        roll(Run(ports, plan), policy)
    except RolloutError as error:
        raise StuckError(str(error)) from error


def by_tasks(ports: ClusterPorts, plan: Plan, of: RollOf) -> None:
    """Begin every part of every batch, as after a clear of all of them."""
    from airflow.sdk.exceptions import AirflowFailException
    from airflow.triggers.base import TaskSuccessEvent

    from kafka_rollout.airflow.gates import history_poll
    from kafka_rollout.airflow.gates.batch_trigger import BatchTrigger
    from kafka_rollout.airflow.gates.part_trigger import Told
    from kafka_rollout.airflow.operators.replace_batch import ReplaceOperator

    replaced: dict[int, str] = {}  # Airflow's states of the replacements, by map index

    def stop_here(index: int, part: BatchPart, why: str) -> None:
        """An approver answers *Stop here*, or the task fails without a question: its worker records that."""
        context = _context(ports, plan, index)
        operator = ReplaceOperator(task_id=of.step_of(part), cluster="fake", step=step, of=of, batch=None, limit_s=60)
        with suppress(AirflowFailException), operator.recorded(ports.run, context, begins=False, ends=True):
            raise AirflowFailException(why)
        raise StuckError(why)

    step = dict(UPGRADE)["roll.replace"]

    def gate(index: int, part: BatchPart) -> None:
        params = {"pace": "fast"}
        of_run = {"dag_id": "kafka_upgrade_fake", "run_id": ports.run_id, "clears": 0}
        place = {**of_run, "map_index": index, "params": params}
        trigger = BatchTrigger(cluster="fake", of=of.value, part=part.value, place=place)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(history_poll, "read_states", lambda *_: replaced)
            event = asyncio.run(_first(trigger.run()))
        if not isinstance(event, TaskSuccessEvent):
            stop_here(index, part, event.payload["message"])

    def task(index: int) -> None:
        from airflow.sdk.exceptions import TaskDeferred

        operator = ReplaceOperator(task_id="replace", cluster="fake", step=step, of=of, batch=None, limit_s=60)
        for _ in range(20):
            try:
                operator.act(_context(ports, plan, index), ports)
                return
            except TaskDeferred as deferred:
                event: Any = asyncio.run(_first(deferred.trigger.run()))
                if event.payload["state"] != Told.PASSED:
                    stop_here(index, BatchPart.GATE_BEFORE, event.payload["message"])
            except TransientError:
                ports.clock.sleep(1)  # Airflow's retry
            except RolloutError as error:
                stop_here(index, BatchPart.REPLACE, str(error))
        raise AssertionError("The task does not end.")

    roll = loop.begin_rollback(Run(ports, plan)) if of is RollOf.ROLLBACK else loop.roll_of(Run(ports, plan))
    for index in range(len(roll.batches)):
        gate(index, BatchPart.GATE_BEFORE)
        task(index)
        replaced[index] = "success"
        gate(index, BatchPart.GATE_AFTER)


async def _first(events: Any) -> Any:
    return await asyncio.wait_for(anext(events), _MOST_S)


def _context(ports: ClusterPorts, plan: Plan, index: int) -> Any:
    xcom = {"xcom_pull": lambda **_: {"plan_hash": plan.hash}, "xcom_push": lambda **_: None}
    of = {"dag_id": "kafka_upgrade_fake", "run_id": ports.run_id, "task_id": "roll.replace", "map_index": index}
    ti = SimpleNamespace(id="01", try_number=1, max_tries=6, **of, **xcom)
    task = SimpleNamespace(log=SimpleNamespace(info=lambda *_: None), task_id="roll.replace")
    store = SimpleNamespace(set=lambda *_: None)
    return {"ti": ti, "params": {"traffic": False}, "task": task, "task_state_store": store}


@dataclass(slots=True, kw_only=True)
class World:
    """A run on a cluster, for one driver."""

    cluster: FakeCluster
    ports: ClusterPorts
    plan: Plan
    drive: Driver

    def forth(self) -> None:
        self.drive(self.ports, self.plan, RollOf.PLAN)

    def back(self) -> None:
        record_approval(self.ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "a test")
        self.drive(self.ports, self.plan, RollOf.ROLLBACK)

    def events(self) -> list[tuple[str, str, int | None]]:
        """What happened to nodes (kind, release step, node) and in the parts of batches (kind, step, batch).

        A check of a gate that has not ended says nothing.
        """
        return [shown for event in self.ports.run.events() if (shown := _shown(event)) is not None]


def _shown(event: Event) -> tuple[str, str, int | None] | None:
    match event:
        case StepBegan():
            return event.kind, event.step, event.batch
        case StepEnded():
            return f"{event.kind} {event.outcome}", event.step, event.batch
        case NodeEvent():
            return event.kind, event.release_step, event.node_id
        case GateEnded() if event.ref.node_id is not None:
            before = "before" if event.ref.kind is GateKind.BEFORE_STOP else "after"
            return f"{event.kind} {before}", str(event.ref.release_step), event.ref.node_id
        case RollbackPlanned():
            return event.kind, str(event.batches), None
    return None


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[World], None]], list[Any]]:
    """Play a scenario with both drivers, and return the events that both left."""
    from kafka_rollout.airflow.gates import batch_trigger
    from kafka_rollout.airflow.operators import replace_batch

    opened: list[ClusterPorts] = []

    class Hook:
        def __init__(self, cluster: str) -> None: ...

        async def asecurity(self) -> None: ...

        @contextmanager
        def open(self, run_id: str, security: None, *, clears: int) -> Iterator[ClusterPorts]:
            yield opened[-1]

    monkeypatch.setattr(batch_trigger, "ClusterAccess", Hook)
    monkeypatch.setattr(replace_batch, "keep_traffic_running", lambda *_: None)
    monkeypatch.setattr("kafka_rollout.run.store.opening.open_run", lambda cluster, run_id: opened[-1].run)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)

    def both(scenario: Callable[[World], None]) -> list[Any]:
        found = []
        for name, drive in (("shell", by_shell), ("tasks", by_tasks)):
            cluster = FakeCluster(R391)
            ports = fake_ports(cluster, tmp_path / name, run_id=name)
            plan = plan_upgrade(ports, R431, finalize=False)
            record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
            opened.append(ports)
            world = World(cluster=cluster, ports=ports, plan=plan, drive=drive)
            scenario(world)
            found.append(world.events())
        assert found[0] == found[1]
        return found[0]

    return both


def started(events: list[Any]) -> list[int]:
    return [node_id for kind, _, node_id in events if kind == Started.kind]


def test_a_roll_without_a_disturbance(play: Any) -> None:
    events = play(World.forth)
    assert started(events) == ORDER
    steps = [one for one in events if one[0] in {StepBegan.kind, f"{StepEnded.kind} done"}]
    parts = ["roll.gate_before", "roll.replace", "roll.gate_after"]
    kinds = [StepBegan.kind, f"{StepEnded.kind} done"]
    assert steps == [(kind, part, batch) for batch in range(len(ORDER)) for part in parts for kind in kinds]


@pytest.mark.parametrize("call", ["prepare", "stop", "install", "start", "after"])
def test_a_process_that_is_killed_at_a_call_is_followed_by_another(play: Any, call: str) -> None:
    def scenario(world: World) -> None:
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, world, call, 11)
            with pytest.raises(KilledError):
                world.forth()
        world.forth()
        assert {node.running for node in world.cluster.nodes.values()} == {R431}

    events = play(scenario)
    stopped = [node_id for kind, _, node_id in events if kind == Stopping.kind]
    assert list(dict.fromkeys(stopped)) == ORDER
    assert len(stopped) - len(ORDER) == (call == "stop"), "only a stop that was asked for and not done is repeated"


def kill_at(patch: pytest.MonkeyPatch, world: World, call: str, node_id: int) -> None:
    """Kill the process right before a call about a node, or after its start."""
    name = {"prepare": "bring", "after": "start"}.get(call, call)
    of_runtime = getattr(FakeRuntime, name)

    def act(runtime: FakeRuntime, node: NodeSpec, *given: Any, **more: Any) -> Any:
        if node.node_id != node_id:
            return of_runtime(runtime, node, *given, **more)
        if call == "after":
            of_runtime(runtime, node, *given, **more)
        raise KilledError

    patch.setattr(FakeRuntime, name, act)


def test_a_node_that_dies_after_its_start_fails_its_gate_and_is_started_again(play: Any) -> None:
    def scenario(world: World) -> None:
        world.cluster.cannot_start.add((11, R431))
        with pytest.raises(StuckError, match="no process"):
            world.forth()
        world.cluster.cannot_start.clear()
        roll = loop.roll_of(Run(world.ports, world.plan))
        assert loop.start_again(roll, roll.batches[3])
        world.forth()

    events = play(scenario)
    assert started(events) == [2, 3, 1, 11, 11, 12, 13]
    assert [node_id for kind, _, node_id in events if kind == f"{GateFailed.kind} after"] == [11]


def test_a_pause_holds_the_next_node_and_ends(play: Any) -> None:
    def scenario(world: World) -> None:
        start, sleep = world.cluster.start, world.cluster.clock.on_sleep
        slept: list[float] = []

        def start_and_pause(node_id: int) -> None:
            start(node_id)
            if node_id == 11:
                world.ports.run.record(PauseAsked(by="bob", reason="errors", responder=SHELL))

        def resume_later(seconds: float) -> None:
            sleep(seconds)
            slept.append(seconds)
            if slept.count(5.0) == 3:
                world.ports.run.record(ResumeAsked(by="bob", reason="fixed", responder=SHELL))

        world.cluster.start = start_and_pause  # type: ignore[method-assign]
        world.cluster.clock.on_sleep = resume_later
        world.forth()

    assert started(play(scenario)) == ORDER


@pytest.mark.parametrize("call", ["prepare", "install", "after"])
@pytest.mark.parametrize("at", [3, 12])
def test_a_rollback_from_each_place(play: Any, at: int, call: str) -> None:
    def scenario(world: World) -> None:
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, world, call, at)
            with pytest.raises(KilledError):
                world.forth()
        world.back()
        assert {node.running for node in world.cluster.nodes.values()} == {R391}

    play(scenario)


def test_a_host_that_is_lost_holds_its_node_until_it_is_back(play: Any) -> None:
    def scenario(world: World) -> None:
        process, calls = FakeRuntime.process, [0]

        def lost(runtime: FakeRuntime, node: NodeSpec) -> Any:
            if node.node_id == 12 and len(world.cluster.stops) == 4 and calls[0] < 6:
                calls[0] += 1
                raise TransientError("The host of node 12 does not respond.")
            return process(runtime, node)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FakeRuntime, "process", lost)
            for _ in range(8):  # a run that ends at an error is continued
                try:
                    world.forth()
                    break
                except StuckError:
                    continue
        assert calls[0] == 6

    assert started(play(scenario)) == ORDER


def test_the_events_of_both_drivers_are_compared(play: Any) -> None:
    """The comparison itself fails if a driver leaves something out."""

    def scenario(world: World) -> None:
        if world.drive is by_shell:
            world.forth()
        else:
            roll = loop.roll_of(Run(world.ports, world.plan))
            world = replace(world, plan=world.plan)
            assert roll.batches

    with pytest.raises(AssertionError):
        play(scenario)
