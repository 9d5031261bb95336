"""Walk: all node steps of a plan in one process, through the same steps and gates as the DAG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kafka_rollout.base.errors import TransientError
from kafka_rollout.gates.check import Gate, GateCheck, GateKind, GatePolicy
from kafka_rollout.model.plan import NodeStep, Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.run.events import Rolled, RolledBack, StoppedByOperator, newest
from kafka_rollout.run.projections.gates import gate_is_passed
from kafka_rollout.run.step_events import Rehearsed
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import NodeStepState, node_step_state
from kafka_rollout.steps.gates.waiting import wait_for_gate
from kafka_rollout.steps.roll.node import plan_rollback, replace_node

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
    canary: Callable[[bool], bool] | None = None,
) -> bool:
    """Carry out all release steps.

    Returns True if every node runs the target, False if `stop_asked` or `canary` ended the run between nodes. A node
    step is gate, replacement, gate, soak. `canary` decides after the first node whether to continue; its argument is
    whether that node was replaced just now. Raises the errors of the steps; the run then stays where it stopped.
    """
    walk = _Walk(ports=ports, plan=plan, policy=policy, on_progress=on_progress, stop_asked=stop_asked, canary=canary)
    done = walk.go(
        tuple((release_step, node_step) for release_step in plan.release_steps for node_step in release_step.order)
    )
    ports.run.record(Rolled(target=plan.target) if done else StoppedByOperator(target=plan.target))
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
    ports.run.record(RolledBack(target=plan.source) if done else StoppedByOperator(target=plan.source))
    return done


@dataclass(slots=True, kw_only=True)
class _Walk:
    ports: ClusterPorts
    plan: Plan
    policy: GatePolicy
    on_progress: Callable[[Progress], None] | None
    stop_asked: Callable[[], bool] | None
    canary: Callable[[bool], bool] | None = None
    began: float = field(init=False)
    rehearsed: list[float] = field(init=False)  # the estimate until the first node is done
    took: list[float] = field(default_factory=list)
    done: int = 0

    def __post_init__(self) -> None:
        self.began = self.ports.clock.monotonic()
        rehearsed = newest(self.ports.run.events(), Rehearsed)
        self.rehearsed = [] if rehearsed is None else list(rehearsed.node_seconds.values())

    def go(self, node_steps: Sequence[tuple[ReleaseStep, NodeStep]]) -> bool:
        for k, (release_step, node_step) in enumerate(node_steps, start=1):
            if self._must_stop() or (k == 2 and self.canary is not None and not self.canary(bool(self.took))):
                return False
            try:
                self._order(release_step, node_step, k, len(node_steps))
            except _StopAskedError:
                return False
        return True

    def _order(self, release_step: ReleaseStep, node_step: NodeStep, k: int, n: int) -> None:
        began = self.ports.clock.monotonic()
        node = self.ports.cluster.node(node_step.node_id)
        after = Gate(kind=GateKind.AFTER_START, release_step=release_step, node=node)
        state = node_step_state(self.ports, self.plan, release_step, node)
        if state is NodeStepState.PAST or (
            state is NodeStepState.RUNS_TARGET and gate_is_passed(self.ports.run.events(), after.ref)
        ):
            self.done += 1
            self._say(release_step, node_step, k, n, "is already done")
            return
        if state is NodeStepState.NEEDED:
            self._wait(replace(after, kind=GateKind.BEFORE_STOP), release_step, node_step, k, n)
            self._replace(release_step, node, node_step, k, n)
        self._wait(after, release_step, node_step, k, n)
        self.took.append(self.ports.clock.monotonic() - began)
        self.done += 1
        self._say(release_step, node_step, k, n, f"is done after {self.took[-1]:.0f} s")

    def _replace(self, release_step: ReleaseStep, node: NodeSpec, node_step: NodeStep, k: int, n: int) -> None:
        acts = "is stopped and started" if release_step.restarts else "is stopped, replaced and started"
        for attempt in range(1, _REPLACE_TRIES + 1):
            self._say(release_step, node_step, k, n, f"{acts} on {release_step.to_release}")
            try:
                replace_node(self.ports, self.plan, release_step, node)
                return
            except TransientError as error:
                if attempt == _REPLACE_TRIES:
                    raise
                self._say(release_step, node_step, k, n, f"cannot be stopped now: {error.sentence}")
                self.ports.clock.sleep(self.policy.interval_s)

    def _wait(self, gate: Gate, release_step: ReleaseStep, node_step: NodeStep, k: int, n: int) -> None:
        def on_check(seen: GateCheck, message: str) -> None:
            self._say(release_step, node_step, k, n, f"gate {seen.gate}: {message}")
            if self._must_stop():
                raise _StopAskedError

        # Nothing has changed before a stop: one check is enough, and there is nothing to soak.
        policy = self.policy if gate.kind is GateKind.AFTER_START else replace(self.policy, checks=1, soak_s=0.0)
        wait_for_gate(self.ports, self.plan, gate, policy, on_check)

    def _must_stop(self) -> bool:
        return self.stop_asked is not None and self.stop_asked()

    def _say(self, release_step: ReleaseStep, node_step: NodeStep, k: int, n: int, message: str) -> None:
        if self.on_progress is None:
            return
        took = self.took or self.rehearsed
        self.on_progress(
            Progress(
                release_step=release_step.key,
                k=k,
                n=n,
                node=f"{node_step.name} ({node_step.node_id})",
                message=message,
                elapsed_s=self.ports.clock.monotonic() - self.began,
                remaining_s=(n - self.done) * sum(took) / len(took) if took else None,
            )
        )
