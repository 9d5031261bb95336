"""A roll: its batches, one after the other, each in three parts. A rollback is the same with other batches.

The nodes of a batch restart together; one node is a batch of one. The plan has the batches of all release steps in
their order. A rollback has those that left their release, in reverse. A driver does for each batch:

    until `gate_before` passes: wait, or ask an approver what it asks for
    while `replace` leaves nodes: back to `gate_before`
    until `gate_after` passes: wait

The shell (`walk.py`) and the tasks of a DAG (`airflow/operators/replace_batch.py`) are such drivers, and decide
nothing else.

1. Each part observes the cluster first, and returns at once if it is done. So a run that was killed anywhere, a task
   that is repeated and a node that an operator changed meet the same code, and no place in a roll is stored.
2. A batch has passed if the history has a passed gate after the start of each node, and no later stop or start of it in
   this release step or its rollback. `gate_after` records it, also for a node of which nothing was left to do.
3. No batch begins before all earlier ones have passed. So a batch that fails holds all later ones.
4. What has begun ends first: nodes that this run has stopped are started, and nodes that it has started pass their
   gate, before another node of the batch is stopped. No pause, window or approval holds them. Their processes show
   that they have begun: a stop that only the history shows, or after which the node was started again, begins anew.
5. A gate only observes. `replace` proves by itself what allows a stop: the plan, the approvals, the fence of the lock,
   the earlier batches, and the conditions of the gate before the stop once more. So a gate that an operator skips, or
   marks as passed, lets nothing through.
6. No node of a batch is stopped before all its nodes can be stopped together and have their states recorded. A batch
   that cannot be stopped together waits. Only an approver decides that it restarts in parts.
7. The states of nodes that cannot be observed later are recorded before the stop. Everything else is observed.
8. Unknown is never passed. A gate that cannot observe waits, for the gate timeout; `replace` raises TransientError.
9. Each part records when it begins, once its turn has come, and when it is done, however often it is checked. That it
   failed is recorded by the driver (`record_failure`), because a driver can ask an approver instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from enum import StrEnum
from functools import wraps
from itertools import groupby
from typing import Protocol

from kafka_rollout.base import wording as words
from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.control.holds import HeldError, ask_at_pause, due_pause, end_if_stopped, refuse_unproved_pause
from kafka_rollout.gates.gate import (
    HELD_INTERVAL_S,
    Gate,
    GateCheck,
    GateKind,
    GatePolicy,
    GateRef,
    GateWatch,
    WatchState,
    WatchStatus,
    gates_of_nodes,
)
from kafka_rollout.model.plan import BatchStep, ReleaseStep
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.observation.node_steps import (
    NodeStepState,
    has_begun,
    node_step_state,
    rollback_release_steps,
    running_release,
    stop_is_under_way,
)
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.roll.gate_checks import check_gates, watch_of
from kafka_rollout.roll.node import (
    find_down_first,
    finish_nodes,
    must_roll_back,
    needs_replacement,
    refuse_restart,
    replace_nodes,
    restart_node,
    was_stopped,
)
from kafka_rollout.roll.stop import find_parts
from kafka_rollout.run.batch_progress import describe_batch
from kafka_rollout.run.events import Event, StepBegan, StepEnded, StepOutcome
from kafka_rollout.run.projections.nodes import (
    gate_is_passed,
    has_acted_on_node,
    last_act_on_node,
    stop_is_unfinished,
    unfinished_starts,
)
from kafka_rollout.run.projections.open_batches import (
    BatchPart,
    RollOf,
    batches_of,
    find_part,
    find_part_event,
    first_open_batch,
    passed_node_steps,
)
from kafka_rollout.run.step_events import BatchSplit, GateFailed, GatePassed, RollbackPlanned, Started, Stopping

OnCheck = Callable[[Gate, GateCheck, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """Batches of a run in their order. `roll_of` makes it."""

    run: Run
    batches: tuple[BatchStep, ...]
    of: RollOf

    @property
    def is_rollback(self) -> bool:
        return self.of is RollOf.ROLLBACK

    def nodes(self, batch: BatchStep) -> tuple[NodeSpec, ...]:
        return tuple(self.run.cluster.node(node_id) for node_id in batch.node_ids)


def roll_of(run: Run, of: RollOf = RollOf.PLAN) -> Roll:
    """Return the batches of a plan; those of a rollback are the ones that `begin_rollback` has recorded."""
    return Roll(run=run, batches=batches_of(of, run.history.events(), run.plan), of=of)


def begin_rollback(run: Run) -> Roll:
    """Record the batches of the rollback, from the one where the run stopped, and return it. Observes every node.

    It has the nodes that this run touched or that run a newer release of the plan, and no node that kept its release.
    Nodes that a second restart left without a process are first, because the gates of all others would wait for them.
    Raises RefusedError if the run changes no release.
    """
    refuse_restart(run.plan)
    first = find_down_first(run)
    found = [
        (step, node_step.node_id)
        for step in rollback_release_steps(run.plan)
        for node_step in step.order
        if must_roll_back(NodeRun(run, step, run.cluster.node(node_step.node_id)))
    ]
    found.sort(key=lambda one: one[1] not in first)
    batches = groupby(found, key=lambda one: (one[0].key, one[0].batch_of(one[1])))
    planned = tuple((key, tuple(node_id for _, node_id in nodes)) for (key, _), nodes in batches)
    run.history.record(RollbackPlanned(batches=planned))
    return roll_of(run, RollOf.ROLLBACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus(WatchStatus):
    """Status of a gate of a batch."""

    pauses: bool = False
    """It waits until an approver has answered; `message` is the reason."""
    can_split: bool = False
    """An approver can let the nodes restart in parts instead."""


@dataclass(slots=True, kw_only=True)
class BatchWatch:
    """The checks of a gate of a batch so far, in one process. `policy` returns the policy of each kind of gate."""

    policy: Callable[[GateKind], GatePolicy]
    gates: tuple[Gate, ...] = ()
    watches: tuple[GateWatch, ...] = ()
    silent_since: float | None = None
    """When a node stopped responding, so that the batch cannot be observed (monotonic seconds)."""

    def wait_for_response(self, roll: Roll, kind: GateKind, error: TransientError) -> BatchStatus:
        """Return the status of a gate that cannot be checked now: it fails after the gate timeout."""
        now = roll.run.ports.clock.monotonic()
        self.silent_since = now if self.silent_since is None else self.silent_since
        is_over = now - self.silent_since > self.policy(kind).timeout_s
        message = f"waits for a response: {error}"
        return BatchStatus(state=WatchState.FAILED if is_over else WatchState.WAITING, message=message)

    def check(self, roll: Roll, gates: tuple[Gate, ...], on_check: OnCheck | None) -> WatchStatus:
        """Check the gates once; begin a new watch if they are others than before, or if the watch is over."""
        if gates != self.gates or all(watch.is_done for watch in self.watches):
            self.gates = gates
            self.watches = tuple(watch_of(roll.run, gate, self.policy(gate.kind)) for gate in gates)
        return check_gates(roll.run, self.gates, self.watches, on_check)

    @property
    def interval_s(self) -> float:
        """Seconds until the next check."""
        if any(watch.is_held for watch in self.watches):
            return HELD_INTERVAL_S
        return min((watch.policy.interval_s for watch in self.watches if not watch.is_done), default=1.0)


def find_turn(roll: Roll, batch: BatchStep, events: Sequence[Event]) -> str:
    """Return why an earlier batch holds this one, by the history alone; empty if its turn has come."""
    first = first_open_batch(events, roll.batches)
    if first >= batch.index:
        return ""
    return f"waits for the batches before it: {describe_batch(roll.batches, first)} has not passed"


class CheckGate(Protocol):
    """A gate of a batch: it is checked once."""

    def __call__(
        self, roll: Roll, batch: BatchStep, watch: BatchWatch, on_check: OnCheck | None = None
    ) -> BatchStatus: ...


def recorded(part: BatchPart) -> Callable[[CheckGate], CheckGate]:
    """Let a gate of a batch record its begin and its end. A gate that waits for its turn has not begun."""

    def record(check: CheckGate) -> CheckGate:
        @wraps(check)
        def gate(roll: Roll, batch: BatchStep, watch: BatchWatch, on_check: OnCheck | None = None) -> BatchStatus:
            follows = part is BatchPart.GATE_AFTER and not roll.of.is_offline  # its replacement had its turn
            if not follows and (turn := find_turn(roll, batch, roll.run.history.events())):
                return BatchStatus(state=WatchState.WAITING, message=turn)
            was_done = _is_done(roll, batch, part)
            if not was_done:
                _record_begin(roll, batch, part)
            try:
                status = check(roll, batch, watch, on_check)
                watch.silent_since = None
            except TransientError as error:
                if not any(stop_is_unfinished(roll.run.history.events(), *key) for key in batch.key):
                    end_if_stopped(roll.run)
                kind = GateKind.BEFORE_STOP if part is BatchPart.GATE_BEFORE else GateKind.AFTER_START
                status = watch.wait_for_response(roll, kind, error)
            if status.state is not WatchState.PASSED:
                _record_begin(roll, batch, part)
            elif not was_done:
                _record_done(roll, batch, part)
            return status

        return gate

    return record


def record_failure(roll: Roll, batch: BatchStep, reason: str) -> None:
    """Record that the part of a batch that has begun failed, and that no approver was asked."""
    began = (part for part in reversed(BatchPart) if isinstance(_newest(roll, batch, part), StepBegan))
    part = next(began, BatchPart.GATE_BEFORE)
    roll.run.history.record(_ended(roll, batch, part, StepOutcome.FAILED, reason))


def _newest(roll: Roll, batch: BatchStep, part: BatchPart) -> StepBegan | StepEnded | None:
    return find_part_event(roll.run.history.events(), roll.of.step_of(part), batch.index)


def _is_done(roll: Roll, batch: BatchStep, part: BatchPart) -> bool:
    newest = _newest(roll, batch, part)
    return isinstance(newest, StepEnded) and newest.outcome is StepOutcome.DONE


def _record_begin(roll: Roll, batch: BatchStep, part: BatchPart) -> None:
    if not isinstance(_newest(roll, batch, part), StepBegan):
        roll.run.history.record(StepBegan(step=roll.of.step_of(part), batch=batch.index))


def _record_done(roll: Roll, batch: BatchStep, part: BatchPart) -> None:
    if not _is_done(roll, batch, part):
        roll.run.history.record(_ended(roll, batch, part, StepOutcome.DONE))


def _ended(roll: Roll, batch: BatchStep, part: BatchPart, outcome: StepOutcome, reason: str = "") -> StepEnded:
    return StepEnded(step=roll.of.step_of(part), batch=batch.index, outcome=outcome, reason=reason)


@recorded(BatchPart.GATE_BEFORE)
def gate_before(roll: Roll, batch: BatchStep, watch: BatchWatch, on_check: OnCheck | None = None) -> BatchStatus:
    """Check once whether the next stop of the batch can begin, or whether nothing holds it because it has begun.

    It passes after all earlier batches. Then it asks an approver for the end of a pause of the plan. Then the
    conditions before the stop must hold for all nodes that stop together. Of a batch that restarts in parts, the gates
    of the begun nodes pass first.
    """
    run, events = roll.run, roll.run.history.events()
    part, nodes = _next_of(roll, batch)
    if part is Part.GATE_AFTER and has_nodes_left(roll, batch):
        status = watch.check(roll, gates_of_nodes(GateKind.AFTER_START, batch.release_step, nodes), on_check)
        if status.state is not WatchState.PASSED:
            return BatchStatus(state=status.state, message=status.message)
        part, nodes = _next_of(roll, batch)
    if not _begins(roll, batch, part):
        return BatchStatus(state=WatchState.PASSED, message="nothing is left to stop now")
    if not roll.is_rollback and (why := _ask_at_pause(NodeRun(run, batch.release_step, nodes[0]), events)):
        return BatchStatus(state=WatchState.WAITING, message=why, pauses=True)
    if part is not Part.GATE_BEFORE:
        return BatchStatus(state=WatchState.PASSED, message="its stop was requested")
    together = _nodes_to_stop(events, batch, nodes)
    status = watch.check(roll, gates_of_nodes(GateKind.BEFORE_STOP, batch.release_step, together), on_check)
    return BatchStatus(state=status.state, message=status.message, can_split=len(together) > 1)


def replace(roll: Roll, batch: BatchStep) -> bool:
    """Stop, replace and start the nodes of the batch that are next. Return whether other nodes of it are left.

    Those that are left wait in `gate_before` again: their batch restarts in parts, or a killed run has begun some of
    them. Raises HeldError if the batch must wait in `gate_before` again: an earlier batch has not passed, an approval
    between batches is missing or not confirmed, or something holds its stop. Raises as `replace_nodes`.
    """
    run, events = roll.run, roll.run.history.events()
    part, nodes = _next_of(roll, batch)
    needs_replacement = part in {Part.GATE_BEFORE, Part.REPLACEMENT}
    if needs_replacement and (turn := find_turn(roll, batch, events)):
        raise HeldError(f"Node {nodes[0].node_id} cannot be replaced yet: it {turn}.")
    if needs_replacement or not _is_done(roll, batch, BatchPart.REPLACE):
        _record_begin(roll, batch, BatchPart.REPLACE)
    finish(roll, batch)
    if needs_replacement:
        if _begins(roll, batch, part):
            _refuse_unapproved(roll, batch, nodes[0], events)
        if part is Part.GATE_BEFORE:
            nodes = _nodes_to_stop(events, batch, nodes)
        replace_nodes(run, batch.release_step, nodes, started=roll.nodes(batch))
    if has_nodes_left(roll, batch):
        return True
    _record_done(roll, batch, BatchPart.REPLACE)
    return False


def finish(roll: Roll, batch: BatchStep) -> None:
    """Run the commands after the starts of the batch that failed, or that a kill interrupted, on any of its nodes.

    They come before its next stop, and before a gate that can need them. While this run has nodes of it down, they run
    after the starts of these.
    """
    due = unfinished_starts(roll.run.history.events())
    if not due.isdisjoint(batch.node_ids) and _next_of(roll, batch)[0] is not Part.REPLACEMENT:
        finish_nodes(roll.run, batch.release_step, roll.nodes(batch))


@recorded(BatchPart.GATE_AFTER)
def gate_after(roll: Roll, batch: BatchStep, watch: BatchWatch, on_check: OnCheck | None = None) -> BatchStatus:
    """Check once whether every node of the batch is back, for the soak. A node with nothing left passes at once.

    The gates after an offline step have no other part, so they wait for their turn.
    """
    if all(watch.is_done for watch in watch.watches):
        waiting = _watched_nodes(roll, batch)
        if not waiting:
            return BatchStatus(state=WatchState.PASSED, message="every node of the batch has passed")
        gates = gates_of_nodes(GateKind.AFTER_START, batch.release_step, waiting)
    else:
        gates = watch.gates
    status = watch.check(roll, gates, on_check)
    return BatchStatus(state=status.state, message=status.message)


def _ask_at_pause(at: NodeRun, events: Sequence[Event]) -> str:
    """Return why the plan pauses before this node; also if the answer that ended its last pause no longer counts."""
    try:
        refuse_unproved_pause(_without_records(at.run))
    except RefusedError as error:
        return error.sentence
    return ask_at_pause(at, events)


def _without_records(run: Run) -> Run:
    """Return the run for a gate: a worker compares the approvals of a batch with Airflow's records before it acts."""
    if run.ports.confirm_approval is None:
        return run
    return Run(replace_fields(run.ports, confirm_approval=lambda approval: None), run.plan)


def split(roll: Roll, batch: BatchStep) -> str:
    """Record an approver's decision that the batch restarts in parts: those that can be stopped together now.

    Return the reason why they are not one part.
    """
    nodes = _next_of(roll, batch)[1]
    parts, why = find_parts(roll.run, nodes)
    roll.run.history.record(BatchSplit(parts=parts, sentence=why, release_step=batch.release_step.key))
    return why


def open_nodes(roll: Roll, batch: BatchStep) -> tuple[NodeSpec, ...]:
    """Return the nodes that this run has stopped or started, and whose gate after the start has not passed since."""
    events = roll.run.history.events()
    passed = passed_node_steps(events)
    return tuple(
        node
        for node in roll.nodes(batch)
        if (key := (batch.release_step.key, node.node_id)) not in passed and has_acted_on_node(events, *key)
    )


def start_again(roll: Roll, batch: BatchStep) -> bool:
    """Carry out *Retry*: start the nodes again that have failed; of one open node, also a node that only waits.

    Return False if this run has stopped none of them, so that the batch only begins again.
    """
    run, events, acted = roll.run, roll.run.history.events(), open_nodes(roll, batch)
    if len(batch.node_ids) > 1:
        acted = tuple(node for node in acted if has_failed(NodeRun(run, batch.release_step, node), events))
    for node in acted:
        restart_node(NodeRun(run, batch.release_step, node), [one for one in acted if one != node])
    return bool(acted)


def short_name_of(cluster: ClusterSpec, batch: BatchStep) -> str:
    """Return the nodes of a batch and their release, as a short text."""
    names = [f"{cluster.node(node_id).name} ({node_id})" for node_id in batch.node_ids]
    return f"{words.few(names, limit=3)} to {batch.release_step.to_release}"


def name_of(batch: BatchStep) -> str:
    """Return the name of a batch in requests, decisions and logs."""
    return f"the node step of {words.nodes(batch.node_ids)} ({batch.release_step.key})"


def has_nodes_left(roll: Roll, batch: BatchStep) -> bool:
    """Return whether a node of the batch must still be stopped or started."""
    run, events = roll.run, roll.run.history.events()
    parts = {next_part(NodeRun(run, batch.release_step, node), events) for node in roll.nodes(batch)}
    return bool(parts & {Part.GATE_BEFORE, Part.REPLACEMENT})


def _next_of(roll: Roll, batch: BatchStep) -> tuple[Part, tuple[NodeSpec, ...]]:
    run = roll.run
    return next_part_of_batch(run, batch.release_step, roll.nodes(batch), run.history.events())


def _begins(roll: Roll, batch: BatchStep, part: Part) -> bool:
    """Return whether the next stop begins a batch, or its next part, so that it needs what approvers must answer.

    A stop that only the history shows has begun nothing.
    """
    if part is Part.REPLACEMENT:
        return not has_begun(roll.run, batch.release_step, batch.node_ids, roll.run.history.events())
    return part is Part.GATE_BEFORE


def _refuse_unapproved(roll: Roll, batch: BatchStep, node: NodeSpec, events: Sequence[Event]) -> None:
    """Raise HeldError unless the end of the last pause is proved, and none is due.

    Every batch proves it: no event of the history excuses it. If a later answer to the same task has replaced
    Airflow's record of the answer, the gate asks for it again.
    """
    if roll.is_rollback:
        return
    run = roll.run
    try:
        refuse_unproved_pause(run)
    except RefusedError as error:  # it is due again
        raise HeldError(error.sentence, remedy=error.remedy) from error
    if why := due_pause(NodeRun(run, batch.release_step, node), run.history.events()):
        raise HeldError(f"The plan pauses before node {node.node_id}: {why}")


def _nodes_to_stop(events: Sequence[Event], batch: BatchStep, nodes: Sequence[NodeSpec]) -> tuple[NodeSpec, ...]:
    """Return those of the nodes that stop together now: all of them, or the next part of a batch that was split."""
    part = find_part(events, batch, nodes[0].node_id)
    return tuple(node for node in nodes if node.node_id in part)


def _watched_nodes(roll: Roll, batch: BatchStep) -> tuple[NodeSpec, ...]:
    """Return the nodes whose gate after the start is open; record that it passed for those with nothing left."""
    events, key, found = roll.run.history.events(), batch.release_step.key, list[NodeSpec]()
    passed = passed_node_steps(events)
    if roll.of.is_offline:
        return tuple(node for node in roll.nodes(batch) if (key, node.node_id) not in passed)
    for node in roll.nodes(batch):
        if next_part(NodeRun(roll.run, batch.release_step, node), events) is not Part.NOTHING:
            found.append(node)
        elif (key, node.node_id) not in passed:
            ref = GateRef(kind=GateKind.AFTER_START, release_step=key, node_id=node.node_id)
            message = f"nothing was left to do on node {node.node_id} in this release step"
            roll.run.history.record(GatePassed(ref=ref, gate=f"after node {node.node_id}", message=message))
    return tuple(found)


class Part(StrEnum):
    GATE_BEFORE = "gate before the stop"
    REPLACEMENT = "replacement"
    GATE_AFTER = "gate after the start"
    NOTHING = "nothing"


def next_part(at: NodeRun, events: Sequence[Event]) -> Part:
    """Return what is left of a node step. `events`: of the run, with all of this node.

    After a kill during the stop or the start, the replacement continues without the gate before, unless the node runs
    as before: its stop was not sent, or something has started it again. A node that this run started waits for its
    gate, also if its process is gone: the gate fails, and an approver decides. Raises RefusedError for a release
    outside the release step, TransientError if the node does not respond.
    """
    state = node_step_state(at)
    if state is NodeStepState.PAST:
        return Part.NOTHING
    after = GateRef(kind=GateKind.AFTER_START, release_step=at.key, node_id=at.node_id)
    passed = gate_is_passed(events, after)
    if state is NodeStepState.RUNS_TARGET:
        return Part.NOTHING if passed else Part.GATE_AFTER
    last = last_act_on_node(events, at.key, at.node_id)
    if isinstance(last, Started):
        # With another release after a passed gate, an operator has started it: its node step begins again.
        reverted = passed and running_release(at.ports, at.node) is not None
        return Part.GATE_BEFORE if reverted else Part.GATE_AFTER
    continues = isinstance(last, Stopping) and (running_release(at.ports, at.node) is None or stop_is_under_way(at))
    return Part.REPLACEMENT if continues else Part.GATE_BEFORE


def next_part_of_batch(
    run: Run, release_step: ReleaseStep, nodes: Sequence[NodeSpec], events: Sequence[Event]
) -> tuple[Part, tuple[NodeSpec, ...]]:
    """Return the next part of the node steps of a batch, and its nodes. What this run has begun is finished first.

    The gates after the start are one part of all nodes that have begun, so that their soaks are at the same time. A
    replacement also has the nodes that already run the release: they can still be recovering. In a rollback, it has a
    node without a process that the run stopped in either direction.
    """
    of_part: dict[Part, list[NodeSpec]] = {part: [] for part in Part}
    for node in nodes:
        part = next_part(NodeRun(run, release_step, node), events)
        is_down = part is Part.GATE_BEFORE and run.ports.runtime.process(node).pid is None
        if is_down and was_stopped(run, release_step, node.node_id):
            part = Part.REPLACEMENT
        of_part[part].append(node)
    if replaced := of_part[Part.REPLACEMENT]:
        started = [one for one in of_part[Part.GATE_AFTER] if not needs_replacement(NodeRun(run, release_step, one))]
        return Part.REPLACEMENT, (*replaced, *started)
    for part in (Part.GATE_AFTER, Part.GATE_BEFORE):
        if of_part[part]:
            return part, tuple(of_part[part])
    return Part.NOTHING, ()


def has_failed(at: NodeRun, events: Sequence[Event]) -> bool:
    """Return whether *Retry* starts the node again: its stop hangs, its process is gone or its last gate failed."""
    if not isinstance(last_act_on_node(events, at.key, at.node_id), Started):
        return True
    gates = (
        event for event in reversed(events) if isinstance(event, Started | GateFailed) and _node_of(event) == at.node_id
    )
    return isinstance(next(gates, None), GateFailed) or at.ports.runtime.process(at.node).pid is None


def _node_of(event: Started | GateFailed) -> int | None:
    return event.node_id if isinstance(event, Started) else event.ref.node_id
