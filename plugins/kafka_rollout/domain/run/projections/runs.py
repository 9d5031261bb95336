"""A run as a whole: what it changes, who began it, what stopped it."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.domain.run.events import (
    Answered,
    AnswerReceived,
    Approval,
    Asked,
    Begun,
    CanaryAsked,
    Event,
    LockedOut,
    Planned,
    RollbackClosed,
    Rolled,
    RunOf,
    TaskFailed,
    Voided,
)
from kafka_rollout.domain.run.feature_events import Finalizing
from kafka_rollout.domain.run.node_events import GateFailed, GatePassed, Started, Stopped, Stopping
from kafka_rollout.domain.run.projections.select import events_of, has, newest


def run_of(events: Sequence[Event]) -> RunOf:
    """What the run changes, by its first plan; an upgrade while it has none."""
    return next((planned.run_of for planned in events_of(events, Planned)), RunOf.UPGRADE)


def begun_by(events: Sequence[Event]) -> str:
    """Id of the DAG whose run it is; empty for a run of the command line."""
    return next((begun.dag_id for begun in events_of(events, Begun)), "")


def has_plan(events: Sequence[Event]) -> bool:
    return has(events, Planned)


def made_plan(events: Sequence[Event], plan_hash: str) -> Planned | None:
    """The newest record of this very plan."""
    return newest([planned for planned in events_of(events, Planned) if planned.plan_hash == plan_hash], Planned)


def canary_is_asked(events: Sequence[Event]) -> bool:
    return has(events, CanaryAsked)


def has_acted(events: Sequence[Event]) -> bool:
    """Whether the run has changed the cluster, or tried to."""
    return has(events, Finalizing, Stopping, Stopped)


def last_task_failure(events: Sequence[Event]) -> TaskFailed | None:
    return newest(events, TaskFailed)


def newest_answer(
    events: Sequence[Event], task_id: str, max_tries: int, plan_hash: str
) -> Answered | AnswerReceived | None:
    """Return the newest answer on this plan, read from Airflow's record or not yet, since the task's newest request.

    `max_tries` distinguishes a retry from a cleared task: Airflow raises it when the task is cleared. None if the run
    was triggered again since.
    """
    for event in reversed(events):
        match event:
            case Begun():
                return None
            case Answered() if (event.task_id, event.max_tries, event.plan_hash) == (task_id, max_tries, plan_hash):
                return event
            case AnswerReceived() if event.task_id == task_id:
                return event if event.max_tries == max_tries else None
            case Asked() if event.task_id == task_id:
                return None
    return None


def rolls_back(events: Sequence[Event]) -> bool:
    """Whether the newest event with a direction says that the rollback was refused."""
    newest_turn = next(
        (event for event in reversed(events) if isinstance(event, Started | Finalizing | RollbackClosed | Rolled)), None
    )
    return isinstance(newest_turn, RollbackClosed)


def locked_out(events: Sequence[Event]) -> str:
    """Who holds the cluster's lock, where that was the last thing that stopped the run; empty where it was not."""
    kinds = Approval | Started | Finalizing | GatePassed | LockedOut
    event = next((event for event in reversed(events) if isinstance(event, kinds)), None)
    return event.sentence if isinstance(event, LockedOut) else ""


def last_failure(events: Sequence[Event]) -> str:
    """Why the run did not go on, in a sentence; empty where the record does not say."""
    if sentence := locked_out(events):
        return sentence
    for event in reversed(events):
        match event:
            case GateFailed():
                return f"Gate {event.gate}: {event.message}."
            case Voided():
                return f"The approval is no longer valid: {'; '.join(event.blockers)}"
    return ""
