"""Batches of a roll: which of them have passed, by the history of the run alone."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.model.plan import BatchStep, Lowering, Plan, reversed_key
from kafka_rollout.run.events import (
    STOP_TRAFFIC,
    Approval,
    ApprovalOf,
    Decision,
    Event,
    StepBegan,
    StepEnded,
    StoppedByOperator,
    events_of,
)
from kafka_rollout.run.step_events import BatchSplit, GatePassed, RollbackPlanned, Started, Stopping


class RollOf(StrEnum):
    """What batches are of. The values are those of tasks and triggers."""

    PLAN = "plan"
    ROLLBACK = "rollback"
    OFFLINE = "offline"  # the nodes that an offline downgrade has started, each alone
    OFFLINE_UNDO = "offline-undo"

    @property
    def is_offline(self) -> bool:
        return self in {RollOf.OFFLINE, RollOf.OFFLINE_UNDO}

    def step_of(self, part: BatchPart) -> str:
        """Return the id of the step that is this part of a batch."""
        return f"{self.group}.{part.value}"

    @property
    def cleared(self) -> str:
        """What continues a DAG's run after its end between two batches: it also ended the batches that waited."""
        first = BatchPart.GATE_AFTER if self.is_offline else BatchPart.GATE_BEFORE
        return f"the task {self.step_of(first)} with all downstream tasks"

    @property
    def how_to_continue(self) -> str:
        """The sentence about `cleared`."""
        return f"To continue, clear {self.cleared}: no batch that has passed is repeated."

    @property
    def group(self) -> str:
        """The id of the group of tasks that has these batches, and of the step that shows them."""
        return _GROUPS[self]


class BatchPart(StrEnum):
    """The parts of a batch, in their order. The values are those of their steps' ids."""

    GATE_BEFORE = "gate_before"
    REPLACE = "replace"
    GATE_AFTER = "gate_after"


_GROUPS = {
    RollOf.PLAN: "roll",
    RollOf.ROLLBACK: "roll_back",
    RollOf.OFFLINE: "offline.nodes",
    RollOf.OFFLINE_UNDO: "offline.undo.nodes",
}


def passed_node_steps(events: Sequence[Event]) -> frozenset[tuple[str, int]]:
    """Return the node steps (release step, node id) whose gate after the start has passed.

    A later stop or start of the node in the same release step, or in its rollback, ends that.
    """
    passed = set[tuple[str, int]]()
    for event in events:
        match event:
            case Stopping() | Started():
                passed.discard((event.release_step, event.node_id))
                passed.discard((reversed_key(event.release_step), event.node_id))
            case GatePassed(ref=GateRef(kind=GateKind.AFTER_START, release_step=str(key), node_id=int(node_id))):
                passed.add((key, node_id))
    return frozenset(passed)


def find_part_event(events: Sequence[Event], step: str, batch: int) -> StepBegan | StepEnded | None:
    """Return the newest event of a part of a batch; None before it began. A rollback that begins ends all parts."""
    for event in reversed(events):
        match event:
            case StepBegan() | StepEnded() if (event.step, event.batch) == (step, batch):
                return event
            case RollbackPlanned():
                return None
    return None


def first_open_batch(events: Sequence[Event], batches: Sequence[BatchStep]) -> int:
    """Return the index of the first batch with a node whose gate after the start has not passed.

    The number of batches if all have passed.
    """
    passed = passed_node_steps(events)
    return next((batch.index for batch in batches if not passed.issuperset(batch.key)), len(batches))


def batches_of(of: RollOf, events: Sequence[Event], plan: Plan) -> tuple[BatchStep, ...]:
    """Return the batches in their order; empty if the plan has none of this kind, or before the first rollback."""
    if of.is_offline is not (plan.lowering is Lowering.OFFLINE) or not plan.release_steps:
        return ()
    if of is RollOf.PLAN:
        return plan.batch_steps
    if of.is_offline:
        (step,) = plan.release_steps
        step = step.reversed() if of is RollOf.OFFLINE_UNDO else step
        order = sorted(step.order, key=lambda one: (one.section != "controllers", one.node_id))
        return tuple(
            BatchStep(release_step=step, node_ids=(one.node_id,), index=index) for index, one in enumerate(order)
        )
    planned = events_of(events, RollbackPlanned)
    if not planned:
        return ()
    back = {step.reversed().key: step.reversed() for step in plan.release_steps if not step.restarts}
    if strange := [key for key, _ in planned[-1].batches if key not in back]:
        raise RefusedError(
            f"The run history has a rollback in release step {strange[0]}, which is not a rollback of the plan.",
            remedy="Clear the task that lists the batches of the rollback, with all downstream tasks.",
        )
    return tuple(
        BatchStep(release_step=back[key], node_ids=node_ids, index=index)
        for index, (key, node_ids) in enumerate(planned[-1].batches)
    )


def is_rollback_decided(events: Sequence[Event]) -> bool:
    """Return whether an approver decided to roll back, and none has approved the plan again since."""
    directions = {ApprovalOf.ROLL, ApprovalOf.ROLL_BACK}
    given = [one for one in events_of(events, Approval) if one.what in directions and one.decision == Decision.APPROVED]
    return bool(given) and given[-1].what is ApprovalOf.ROLL_BACK


def find_end(events: Sequence[Event]) -> str:
    """Return who ended the roll between two batches in these events, as a sentence; empty if nobody did."""
    return next((end for event in reversed(events) if (end := _end(event))), "")


def _end(event: Event) -> str:
    match event:
        case StoppedByOperator():
            return "The run was stopped before its next node."
        case Approval() if event.decision == Decision.STOP_HERE:
            return f"{event.by} stopped the run: {event.reason}."
        case Approval(what=ApprovalOf.PAUSE, decision=Decision.REJECTED):
            return f"{event.by} did not approve the {event.what.noun()}: {event.reason}."
    return ""


def find_cleared(events: Sequence[Event]) -> str:
    """Return what continues a DAG's run that has failed or was stopped, as the object of *clear*.

    After an end of a roll (`find_end`), the batches that waited have ended, and only their first part continues them.
    Otherwise they wait, and the task that failed continues.
    """
    ends = [at for at, event in enumerate(events) if _end(event)]
    if ends:
        steps = [(at, one) for at, one in enumerate(events) if isinstance(one, StepBegan | StepEnded)]
        of_run = [(at, one) for at, one in steps if one.step != STOP_TRAFFIC]  # it also follows a failure
        before = [one for at, one in of_run if at < ends[-1]]
        has_begun = any(isinstance(one, StepBegan) for at, one in of_run if at > ends[-1])
        if before and before[-1].batch is not None and not has_begun:
            return next(of for of in RollOf if of.group == before[-1].shown_step).cleared
    return "the failed task"


def find_part(events: Sequence[Event], batch: BatchStep, node_id: int) -> tuple[int, ...]:
    """Return the nodes that stop together with a node of the batch: all of it, unless an approver split it."""
    for event in reversed(events_of(events, BatchSplit)):
        if event.release_step == batch.release_step.key:
            for part in event.parts:
                if node_id in part:
                    return part
    return batch.node_ids
