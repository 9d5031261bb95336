"""Walk: all node steps of a plan in one process, through the same steps and gates as the DAG, also in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby

from kafka_rollout.base.errors import StoppedError, TransientError
from kafka_rollout.gates.check import Gate, GateCheck, GateKind, GatePolicy
from kafka_rollout.model.plan import NodeStep, Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.run.events import ApprovalOf, Event, Rolled, RolledBack, StoppedByOperator, newest
from kafka_rollout.run.projections.nodes import gate_is_passed
from kafka_rollout.run.step_events import Rehearsed
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.control import HeldError, ask_at_pause
from kafka_rollout.steps.common.node_steps import NodeStepState, node_step_state
from kafka_rollout.steps.gates.checks import wait_for_gates
from kafka_rollout.steps.roll.node import is_under_way, plan_rollback, replace_nodes
from kafka_rollout.steps.roll.stop import choose_nodes_to_stop

_REPLACE_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One line of progress: node `k` of `n` in a release step, the action, elapsed and estimated seconds."""

    release_step: str
    k: int
    n: int
    node: str
    message: str
    elapsed_s: float
    remaining_s: float | None


class _StopAskedError(Exception):
    """Leaves a gate that is being waited for; a resumed run waits for it again."""


def roll_release_steps(
    ports: ClusterPorts,
    plan: Plan,
    policy: GatePolicy,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    stop_asked: Callable[[], bool] | None = None,
    continues: Callable[[ApprovalOf, bool], bool] | None = None,
    pause: Callable[[str, bool], bool] | None = None,
) -> bool:
    """Carry out all release steps.

    Returns True if every node runs the target, False if `stop_asked`, `continues` or `pause` ended the run between
    nodes. A node step is gate, replacement, gate, soak. The node steps of a batch are carried out at the same time, and
    the next batch begins when all its gates passed. `continues` decides after the first node (CANARY) and after the
    first batch of several (FIRST_BATCH); its second argument is whether a node was replaced just now. `pause` decides
    at a pause of the plan; its first argument is the reason. Raises the errors of the steps; the run then stays where
    it stopped.
    """
    walk = _Walk(
        ports=ports,
        plan=plan,
        policy=policy,
        on_progress=on_progress,
        stop_asked=stop_asked,
        continues=continues,
        pause=pause,
    )
    done = walk.go(
        tuple((release_step, node_step) for release_step in plan.release_steps for node_step in release_step.order)
    )
    _record_end(ports, Rolled(target=plan.target) if done else StoppedByOperator(target=plan.target))
    return done


def roll_back(
    ports: ClusterPorts,
    plan: Plan,
    policy: GatePolicy,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    stop_asked: Callable[[], bool] | None = None,
) -> bool:
    """Return the nodes that the run stopped to the release the plan came from, from the node where the run stopped."""
    walk = _Walk(ports=ports, plan=plan, policy=policy, on_progress=on_progress, stop_asked=stop_asked)
    done = walk.go(plan_rollback(ports, plan))
    _record_end(ports, RolledBack(target=plan.source) if done else StoppedByOperator(target=plan.source))
    return done


def _record_end(ports: ClusterPorts, end: Event) -> None:
    """Record how the walk ended; a stop that an operator requested is recorded already."""
    if not (isinstance(end, StoppedByOperator) and isinstance(ports.run.events()[-1], StoppedByOperator)):
        ports.run.record(end)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """One node step, and its place among all."""

    release_step: ReleaseStep
    node_step: NodeStep
    node: NodeSpec
    k: int
    n: int

    @property
    def batch(self) -> tuple[str, tuple[int, ...]]:
        return self.release_step.key, self.release_step.batch_of(self.node_step.node_id)

    def gate(self, kind: GateKind, together: Sequence[_Place] = ()) -> Gate:
        """Return a gate of the node. `together`: the places of all nodes that restart at the same time."""
        others = tuple(place.node for place in together if place != self)
        return Gate(kind=kind, release_step=self.release_step, node=self.node, together=others)


@dataclass(slots=True, kw_only=True)
class _Walk:
    ports: ClusterPorts
    plan: Plan
    policy: GatePolicy
    on_progress: Callable[[Progress], None] | None
    stop_asked: Callable[[], bool] | None
    continues: Callable[[ApprovalOf, bool], bool] | None = None
    pause: Callable[[str, bool], bool] | None = None
    began: float = field(init=False)
    rehearsed: list[float] = field(init=False)  # the estimate until the first node is done
    took: list[float] = field(default_factory=list)  # seconds of each batch
    left: int = 0  # batches

    def __post_init__(self) -> None:
        self.began = self.ports.clock.monotonic()
        rehearsed = newest(self.ports.run.events(), Rehearsed)
        self.rehearsed = [] if rehearsed is None else list(rehearsed.node_seconds.values())

    def go(self, node_steps: Sequence[tuple[ReleaseStep, NodeStep]]) -> bool:
        places = [
            _Place(
                release_step=release_step,
                node_step=node_step,
                node=self.ports.cluster.node(node_step.node_id),
                k=k,
                n=len(node_steps),
            )
            for k, (release_step, node_step) in enumerate(node_steps, start=1)
        ]
        batches = [tuple(found) for _, found in groupby(places, key=lambda place: place.batch)]
        self.left = len(batches)
        for number, batch in enumerate(batches):
            if self._must_stop() or not self._is_approved(number):
                return False
            try:
                self._batch(batch)
            except (_StopAskedError, StoppedError):
                return False
        return True

    def _is_approved(self, number: int) -> bool:
        """Return whether the batch can begin. `number`: its place in the run, from 0."""
        if self.continues is None or number == 0:
            return True
        first_batch = self.plan.release_steps[0].first_batch
        after = [ApprovalOf.CANARY] if number == 1 else []
        if first_batch is not None and number == first_batch + 1:
            after.append(ApprovalOf.FIRST_BATCH)
        return all(self.continues(what, bool(self.took)) for what in after)

    def _batch(self, batch: tuple[_Place, ...]) -> None:
        """Carry out the node steps of a batch, in parts if its nodes cannot be stopped together now."""
        began = self.ports.clock.monotonic()
        waiting = tuple(place for place in batch if not self._is_done(place))
        self.left -= not waiting
        for place in batch:
            if place not in waiting:
                self._say(place, "is already done")
        if waiting and self.pause is not None:
            first, events = waiting[0], self.ports.run.events()
            why = ask_at_pause(self.ports, self.plan, first.release_step, first.node, events)
            if why and not self.pause(why, bool(self.took)):
                raise _StopAskedError
        refused = 0
        while waiting:
            part = batch if len(batch) == 1 else self._next_part(waiting, refused)
            try:
                self._restart(part)
            except TransientError as error:
                refused += 1
                if len(part) == 1 or refused == _REPLACE_TRIES:
                    raise
                for place in part:
                    self._say(place, f"cannot be stopped together now: {error.sentence}")
                self.ports.clock.sleep(self.policy.interval_s)
                continue
            waiting = tuple(place for place in waiting if place not in part)
            took = self.ports.clock.monotonic() - began
            if not waiting:
                self.took.append(took)
                self.left -= 1
            for place in part:
                self._say(place, f"is done after {took:.0f} s")

    def _is_done(self, place: _Place) -> bool:
        state = node_step_state(self.ports, self.plan, place.release_step, place.node)
        return state is NodeStepState.PAST or (
            state is NodeStepState.RUNS_TARGET
            and gate_is_passed(self.ports.run.events(), place.gate(GateKind.AFTER_START).ref)
        )

    def _next_part(self, waiting: tuple[_Place, ...], refused: int) -> tuple[_Place, ...]:
        """Return the nodes that restart next: those that this run has begun, or those that can be stopped together."""
        begun = tuple(place for place in waiting if is_under_way(self.ports, self.plan, place.release_step, place.node))
        if begun:
            return begun
        if self._must_stop():
            raise _StopAskedError
        nodes, split = choose_nodes_to_stop(
            self.ports,
            self.plan,
            waiting[0].release_step,
            [place.node for place in waiting],
            refused=refused,
            every_s=self.policy.interval_s,
            give_up=self._must_stop,
        )
        if self._must_stop():
            raise _StopAskedError
        if split:
            for place in waiting:
                self._say(place, f"the batch is split: {split}")
        return tuple(place for place in waiting if place.node in nodes)

    def _restart(self, part: tuple[_Place, ...]) -> None:
        """Gates, replacement and gates of nodes that restart at the same time. Raises TransientError for several nodes
        that cannot be stopped now.
        """
        states = {place: node_step_state(self.ports, self.plan, place.release_step, place.node) for place in part}
        needed = [place for place in part if states[place] is NodeStepState.NEEDED]
        replaced = not needed
        while not replaced:
            self._wait(needed, GateKind.BEFORE_STOP, part)
            with suppress(HeldError):  # for example, the window has closed since the gate passed
                self._replace(needed, part)
                replaced = True
        self._wait(part, GateKind.AFTER_START, part)

    def _replace(self, needed: list[_Place], part: tuple[_Place, ...]) -> None:
        release_step = part[0].release_step
        acts = "is stopped and started" if release_step.restarts else "is stopped, replaced and started"
        for attempt in range(1, _REPLACE_TRIES + 1):
            for place in needed:
                self._say(place, f"{acts} on {release_step.to_release}")
            try:
                replace_nodes(self.ports, self.plan, release_step, [place.node for place in part])
                return
            except TransientError as error:
                if attempt == _REPLACE_TRIES or len(part) > 1 or isinstance(error, HeldError):
                    raise
                self._say(part[0], f"cannot be stopped now: {error.sentence}")
                self.ports.clock.sleep(self.policy.interval_s)

    def _wait(self, places: Sequence[_Place], kind: GateKind, together: Sequence[_Place]) -> None:
        gates = {place.gate(kind, together): place for place in places}

        def on_check(gate: Gate, seen: GateCheck, message: str) -> None:
            self._say(gates[gate], f"gate {seen.gate}: {message}")
            if self._must_stop():
                raise _StopAskedError

        # Nothing has changed before a stop: one check is enough, unless a condition from outside requires a time.
        policy = self.policy if kind is GateKind.AFTER_START else replace(self.policy, checks=1, soak_s=0.0)
        wait_for_gates(self.ports, self.plan, tuple(gates), policy, on_check)

    def _must_stop(self) -> bool:
        return self.stop_asked is not None and self.stop_asked()

    def _say(self, place: _Place, message: str) -> None:
        if self.on_progress is None:
            return
        took = self.took or self.rehearsed
        self.on_progress(
            Progress(
                release_step=place.release_step.key,
                k=place.k,
                n=place.n,
                node=f"{place.node_step.name} ({place.node_step.node_id})",
                message=message,
                elapsed_s=self.ports.clock.monotonic() - self.began,
                remaining_s=self.left * sum(took) / len(took) if took else None,
            )
        )
