"""The driver of a roll in one process, of the shell: it takes the batches of `loop.py`, waits, asks and shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from kafka_rollout.base.errors import LockBrokenError, RolloutError, StoppedError, TransientError
from kafka_rollout.control.holds import HeldError
from kafka_rollout.gates.gate import Gate, GateCheck, GateKind, GatePolicy, WatchState
from kafka_rollout.model.plan import BatchStep
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.roll import loop
from kafka_rollout.roll.gate_checks import gate_failure
from kafka_rollout.roll.loop import BatchStatus, BatchWatch, Roll
from kafka_rollout.run.events import ApprovalOf, Event, Rolled, RolledBack, StoppedByOperator, newest
from kafka_rollout.run.projections.open_batches import passed_node_steps
from kafka_rollout.run.step_events import Rehearsed

_REPLACE_TRIES = 5
_ACTS = {True: "is stopped and started", False: "is stopped, replaced and started"}  # by `restarts`

Continues = Callable[[ApprovalOf, str, bool], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollProgress:
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
    run: Run,
    policy: GatePolicy,
    *,
    on_progress: Callable[[RollProgress], None] | None = None,
    stop_asked: Callable[[], bool] | None = None,
    continues: Continues | None = None,
) -> bool:
    """Carry out all release steps. `policy`: of the gates after the start.

    Returns True if every node runs the target, False if `stop_asked` or `continues` ended the run between batches.
    `continues` asks an approver: at a pause of the plan (PAUSE), and for a batch that cannot be stopped together
    (SPLIT). Its arguments: what, the reason, and whether this call has replaced a node, or watched its gate after the
    start. It records the answer. Raises the errors of the steps, and LockBrokenError; the run then stays where it
    stopped.
    """
    walk = _Walk(
        roll=loop.roll_of(run),
        policy=policy,
        on_progress=on_progress,
        stop_asked=stop_asked,
        continues=continues,
    )
    done = walk.go()
    stopped = StoppedByOperator(target=run.plan.target, asks=walk.asks)
    _record_end(run.ports, Rolled(target=run.plan.target) if done else stopped)
    return done


def roll_back(
    run: Run,
    policy: GatePolicy,
    *,
    on_progress: Callable[[RollProgress], None] | None = None,
    stop_asked: Callable[[], bool] | None = None,
    continues: Continues | None = None,
) -> bool:
    """Return the nodes that the run stopped to the release the plan came from, from the node where the run stopped."""
    walk = _Walk(
        roll=loop.begin_rollback(run),
        policy=policy,
        on_progress=on_progress,
        stop_asked=stop_asked,
        continues=continues,
    )
    done = walk.go()
    stopped = StoppedByOperator(target=run.plan.source, asks=walk.asks)
    _record_end(run.ports, RolledBack(target=run.plan.source) if done else stopped)
    return done


def wait_until_back(roll: Roll, batch: BatchStep, policy: GatePolicy, on_check: loop.OnCheck) -> None:
    """Wait for the gates after the start of a batch. Raises RefusedError if one fails."""
    watch = BatchWatch(policy=lambda kind: policy)
    with _recording_failure(roll, batch):
        while (status := loop.gate_after(roll, batch, watch, on_check)).state is not WatchState.PASSED:
            if status.state is WatchState.FAILED:
                raise _failure(roll, batch, watch, status)
            roll.run.ports.clock.sleep(watch.interval_s)


def _failure(roll: Roll, batch: BatchStep, watch: BatchWatch, status: BatchStatus) -> RolloutError:
    """Return the error of a gate that failed, or that could not be checked for its timeout."""
    if watch.silent_since is None:
        return gate_failure(roll.run.plan, watch.gates, watch.watches)
    remedy = "Start the node or its host, then continue the run."
    return TransientError(f"The gate of {loop.name_of(batch)} {status.message}", remedy=remedy)


@contextmanager
def _recording_failure(roll: Roll, batch: BatchStep) -> Iterator[None]:
    """Record an error that ends the run in a batch. A stop by the operator only interrupts it."""
    try:
        yield
    except StoppedError:
        raise
    except RolloutError as error:
        loop.record_failure(roll, batch, str(error))
        raise


def _record_end(ports: ClusterPorts, end: Event) -> None:
    """Record how the walk ended; a stop that an operator requested is recorded already."""
    if not (isinstance(end, StoppedByOperator) and isinstance(ports.run.events()[-1], StoppedByOperator)):
        ports.run.record(end)


@dataclass(slots=True, kw_only=True)
class _Walk:
    roll: Roll
    policy: GatePolicy
    on_progress: Callable[[RollProgress], None] | None
    stop_asked: Callable[[], bool] | None
    continues: Continues | None
    began: float = field(init=False)
    rehearsed: list[float] = field(init=False)  # the estimate until the first node is done
    took: list[float] = field(default_factory=list)  # seconds of each batch
    left: int = field(init=False)  # batches
    has_replaced: bool = False
    asks: str = ""  # why it has ended, if only an approver can continue it

    def __post_init__(self) -> None:
        run = self.roll.run
        self.began = run.ports.clock.monotonic()
        self.left = len(self.roll.batches)
        rehearsed = newest(run.history.events(), Rehearsed)
        self.rehearsed = [] if rehearsed is None else list(rehearsed.node_seconds.values())

    def go(self) -> bool:
        try:
            for batch in self.roll.batches:
                self._refuse_stop()
                with _recording_failure(self.roll, batch):
                    self._batch(batch)
        except LockBrokenError:
            raise
        except (_StopAskedError, StoppedError):
            return False
        return True

    def _batch(self, batch: BatchStep) -> None:
        clock, refused = self.roll.run.ports.clock, 0
        began, watch, has_acted = clock.monotonic(), BatchWatch(policy=self._policy), False
        is_left = True
        try:
            loop.finish(self.roll, batch)
        except TransientError as error:  # the gate waits for the host, and the replacement runs them
            self._say(batch, f"the commands after its start have not run: {error.sentence}")
        while is_left:
            self._wait(batch, watch, loop.gate_before)
            try:
                if loop.has_nodes_left(self.roll, batch):
                    self._say(batch, f"{_ACTS[batch.release_step.restarts]} on {batch.release_step.to_release}")
                    has_acted = True
                is_left = loop.replace(self.roll, batch)
            except HeldError:  # for example, the window has closed since the gate passed
                clock.sleep(watch.interval_s)
            except TransientError as error:
                refused += 1
                if refused == _REPLACE_TRIES:
                    raise
                self._say(batch, f"cannot be stopped now: {error.sentence}")
                clock.sleep(self.policy.interval_s)
        is_watched = not passed_node_steps(self.roll.run.history.events()).issuperset(batch.key)
        self._wait(batch, watch, loop.gate_after)
        self.left -= 1
        self.has_replaced |= has_acted or is_watched  # nobody has looked at it since
        took = clock.monotonic() - began
        if has_acted:
            self.took.append(took)
        self._say(batch, f"is done after {took:.0f} s" if has_acted else "is already done")

    def _wait(self, batch: BatchStep, watch: BatchWatch, gate: Callable[..., BatchStatus]) -> None:
        def on_check(of: Gate, seen: GateCheck, message: str) -> None:
            self._say(batch, f"gate {seen.gate}: {message}", of.ref.node_id)
            self._refuse_stop()

        said = ""
        while (status := gate(self.roll, batch, watch, on_check)).state is not WatchState.PASSED:
            if status.pauses:
                self._ask(ApprovalOf.PAUSE, status.message)
            elif status.state is WatchState.FAILED and status.can_split and self.continues is not None:
                self._ask(ApprovalOf.SPLIT, status.message)
                self._say(batch, f"the batch is split: {loop.split(self.roll, batch)}")
            elif status.state is WatchState.FAILED:
                raise _failure(self.roll, batch, watch, status)
            else:
                if watch.silent_since is not None and status.message != said:
                    self._say(batch, said := status.message)
                self.roll.run.ports.clock.sleep(watch.interval_s)
            self._refuse_stop()

    def _ask(self, what: ApprovalOf, why: str) -> None:
        if self.continues is None or not self.continues(what, why, self.has_replaced):
            self.asks = why
            raise _StopAskedError

    def _policy(self, kind: GateKind) -> GatePolicy:
        # Nothing has changed before a stop: one check is enough, unless a condition from outside requires a time.
        return self.policy if kind is GateKind.AFTER_START else replace(self.policy, checks=1, soak_s=0.0)

    def _refuse_stop(self) -> None:
        if self.stop_asked is not None and self.stop_asked():
            raise _StopAskedError

    def _say(self, batch: BatchStep, message: str, node_id: int | None = None) -> None:
        """Show a line for a node of the batch, or for each."""
        if self.on_progress is None:
            return
        took = self.took or self.rehearsed
        steps = [(one.release_step.key, found) for one in self.roll.batches for found in one.node_ids]
        for one in batch.node_ids if node_id is None else (node_id,):
            node = self.roll.run.cluster.node(one)
            self.on_progress(
                RollProgress(
                    release_step=batch.release_step.key,
                    k=steps.index((batch.release_step.key, one)) + 1,
                    n=len(steps),
                    node=f"{node.name} ({one})",
                    message=message,
                    elapsed_s=self.roll.run.ports.clock.monotonic() - self.began,
                    remaining_s=self.left * sum(took) / len(took) if took else None,
                )
            )
