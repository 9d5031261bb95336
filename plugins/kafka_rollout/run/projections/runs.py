"""A run as a whole: its kind, its owner and its last failure."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Begun,
    CanaryAsked,
    Decision,
    Event,
    LockedOut,
    Planned,
    RollbackClosed,
    Rolled,
    RolledBack,
    StartedAtShell,
    TaskFailed,
    Voided,
    events_of,
    has,
    newest,
)
from kafka_rollout.run.offline_events import (
    LiveFailed,
    LiveKept,
    LiveLowered,
    OfflineStopping,
    OfflineUndoing,
    OfflineUndone,
)
from kafka_rollout.run.projections.offline import stop_has_begun
from kafka_rollout.run.step_events import (
    DefaultSet,
    Finalizing,
    GateFailed,
    GatePassed,
    Started,
    Stopped,
    Stopping,
)


def run_of(events: Sequence[Event]) -> RunOf:
    """Return what the run changes, by its first plan; an upgrade before the first plan."""
    return next((planned.run_of for planned in events_of(events, Planned)), RunOf.UPGRADE)


def find_dag_id(events: Sequence[Event]) -> str:
    """Return the id of the DAG of the run; empty for a run of the command line."""
    return next((begun.dag_id for begun in events_of(events, Begun)), "")


def find_starter(events: Sequence[Event]) -> str:
    """Return the user of Airflow or of the shell who started the run; empty if unknown."""
    shell = newest(events[:1], StartedAtShell)
    return shell.starter.user if shell else next((begun.triggered_by for begun in events_of(events, Begun)), "")


_DIRECTIONS = {ApprovalOf.ROLL, ApprovalOf.ROLL_BACK, ApprovalOf.FAILED_GATE}
_TURNS = (OfflineStopping, OfflineUndoing, OfflineUndone, LiveFailed, LiveKept, RolledBack)


def rolls_back(events: Sequence[Event]) -> bool:
    """Return whether the run rolls back or has done so: by its last decision about the direction, or by an undo.

    False again after the end of a rollback of nodes at a shell, and after the undo of a live downgrade.
    """
    for event in reversed(events):
        match event:
            case Approval() if event.what in _DIRECTIONS:
                approves_it = event.what is ApprovalOf.ROLL_BACK and event.decision == Decision.APPROVED
                return approves_it or event.decision == Decision.ROLL_BACK
            case _ if isinstance(event, _TURNS):
                return isinstance(event, OfflineUndoing | OfflineUndone)
    return False


def has_plan(events: Sequence[Event]) -> bool:
    return has(events, Planned)


def find_planned(events: Sequence[Event], plan_hash: str) -> Planned | None:
    """Return the newest event of the plan with this hash."""
    return newest([planned for planned in events_of(events, Planned) if planned.plan_hash == plan_hash], Planned)


def canaries_asked(events: Sequence[Event]) -> frozenset[ApprovalOf]:
    """Return after which first nodes the run of a shell asks for an approval."""
    return frozenset(event.what for event in events_of(events, CanaryAsked))


def has_acted(events: Sequence[Event]) -> bool:
    """Return whether the run has changed the cluster, or tried to."""
    return has(events, DefaultSet, Finalizing, Stopping, Stopped, LiveLowered) or stop_has_begun(events)


def is_plan_refused(events: Sequence[Event], plan: Plan) -> bool:
    """Return whether the run changed nothing, because its plan has blockers or a later finding refused the plan."""
    if has_acted(events):
        return False
    planned = max((at for at, event in enumerate(events) if isinstance(event, Planned)), default=-1)
    return bool(plan.blockers) or any(isinstance(event, Voided) for event in events[planned + 1 :])


def last_task_failure(events: Sequence[Event]) -> TaskFailed | None:
    return newest(events, TaskFailed)


def is_rollback_refused(events: Sequence[Event]) -> bool:
    """Return whether the last attempt to change nodes or levels was a refused rollback."""
    newest_turn = next(
        (event for event in reversed(events) if isinstance(event, Started | Finalizing | RollbackClosed | Rolled)), None
    )
    return isinstance(newest_turn, RollbackClosed)


def find_lock_refusal(events: Sequence[Event]) -> str:
    """Return who holds the cluster's lock if this stopped the run last; else an empty text."""
    kinds = Approval | Started | Finalizing | GatePassed | LockedOut
    event = next((event for event in reversed(events) if isinstance(event, kinds)), None)
    return event.sentence if isinstance(event, LockedOut) else ""


def last_failure(events: Sequence[Event]) -> str:
    """Return why the run stopped, as a sentence; empty if the history does not contain the reason."""
    if sentence := find_lock_refusal(events):
        return sentence
    for event in reversed(events):
        match event:
            case LiveFailed():
                return event.sentence
            case GateFailed():
                return f"Gate {event.gate}: {event.message}."
            case Voided():
                return f"The approval is no longer valid: {'; '.join(event.blockers)}"
    return ""
