"""Walk: all node steps of a plan in one process, through the same steps and gates as the DAG, also in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from kafka_rollout.base.errors import StoppedError, TransientError
from kafka_rollout.gates.check import Gate, GateCheck, GateKind, GatePolicy
from kafka_rollout.model.plan import NodeStep, Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.run.events import ApprovalOf, Event, Rolled, RolledBack, StoppedByOperator, newest
from kafka_rollout.run.step_events import Rehearsed
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.control import HeldError, ask_at_pause
from kafka_rollout.steps.gates.checks import wait_for_gates
from kafka_rollout.steps.roll.node import Part, next_part_of_batch, plan_rollback, replace_nodes
from kafka_rollout.steps.roll.stop import choose_nodes_to_stop

_REPLACE_TRIES = 5
_ACTS = {True: "is stopped and started", False: "is stopped, replaced and started"}  # by `restarts`


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
        if self.plan.registration_step is not None and not self.plan.changes_release:
            return True  # the nodes run the release already
        first_batch = self.plan.release_steps[0].first_batch
        after = [ApprovalOf.CANARY] if number == 1 else []
        if first_batch is not None and number == first_batch + 1:
            after.append(ApprovalOf.FIRST_BATCH)
        return all(self.continues(what, bool(self.took)) for what in after)

    def _batch(self, batch: tuple[_Place, ...]) -> None:
        """Carry out what is left of the node steps of a batch, in parts if its nodes cannot be stopped together now."""
        began, refused = self.ports.clock.monotonic(), 0
        of_node = {place.node: place for place in batch}
        done = {place for place in batch if self._next_part([place])[0] is Part.NOTHING}
        for place in done:
            self._say(place, "is already done")
        self.left -= len(done) == len(batch)
        while (left := self._next_part(batch))[0] is not Part.NOTHING:
            part, nodes = left
            places = tuple(of_node[node] for node in nodes)
            if part is not Part.GATE_AFTER:
                refused = self._replace(part, places, refused)
                continue
            self._wait(places, GateKind.AFTER_START)
            done.update(places)
            took = self.ports.clock.monotonic() - began
            if len(done) == len(batch):
                self.took.append(took)
                self.left -= 1
            for place in places:
                self._say(place, f"is done after {took:.0f} s")

    def _replace(self, part: Part, places: tuple[_Place, ...], refused: int) -> int:
        """Wait for the gates before the stop, if they are left, and replace the nodes.

        Returns how often a stop of the batch was refused. Raises TransientError after _REPLACE_TRIES.
        """
        release_step = places[0].release_step
        try:
            if part is Part.GATE_BEFORE:
                places = self._choose(places, refused)
                self._wait(places, GateKind.BEFORE_STOP)
            for place in places:
                self._say(place, f"{_ACTS[release_step.restarts]} on {release_step.to_release}")
            replace_nodes(self.ports, self.plan, release_step, [place.node for place in places])
        except HeldError:  # for example, the window has closed since the gate passed
            return refused
        except TransientError as error:
            if refused + 1 == _REPLACE_TRIES:
                raise
            for place in places:
                self._say(place, f"cannot be stopped now: {error.sentence}")
            self.ports.clock.sleep(self.policy.interval_s)
            return refused + 1
        return refused

    def _next_part(self, batch: Sequence[_Place]) -> tuple[Part, tuple[NodeSpec, ...]]:
        nodes = [place.node for place in batch]
        return next_part_of_batch(self.ports, self.plan, batch[0].release_step, nodes, self.ports.run.events())

    def _choose(self, places: tuple[_Place, ...], refused: int) -> tuple[_Place, ...]:
        """Return those that are stopped together now, unless an operator stops the run here or at a pause."""
        first = places[0]
        if self._must_stop():
            raise _StopAskedError
        if self.pause is not None:
            why = ask_at_pause(self.ports, self.plan, first.release_step, first.node, self.ports.run.events())
            if why and not self.pause(why, bool(self.took)):
                raise _StopAskedError
        nodes, split = choose_nodes_to_stop(
            self.ports,
            self.plan,
            first.release_step,
            [place.node for place in places],
            refused=refused,
            every_s=self.policy.interval_s,
            give_up=self._must_stop,
        )
        if self._must_stop():
            raise _StopAskedError
        if split:
            for place in places:
                self._say(place, f"the batch is split: {split}")
        return tuple(place for place in places if place.node in nodes)

    def _wait(self, places: Sequence[_Place], kind: GateKind) -> None:
        gates = {place.gate(kind, places): place for place in places}

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
