"""The request in Airflow that a run waits for."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.run.events import Answered, Approval, Asked, AskingEnded, Decision, Event, TakenOver, TaskFailed
from kafka_rollout.run.step_events import GatePassed, Started, Stopping


def open_question(
    events: Sequence[Event], ended_at: float | None = None, *, has_lock: bool = True
) -> tuple[int, Asked] | None:
    """Return position and event of the request that no one has answered yet; also one whose time is over.

    `ended_at`: the end of the run by its report (epoch seconds); a request before it is closed. `has_lock`: without it,
    no terminal waits any more, because its process was killed.
    """
    closing = Approval | Answered | AskingEnded | TakenOver | TaskFailed | Started | Stopping | GatePassed
    for at in range(len(events) - 1, -1, -1):
        event = events[at]
        if isinstance(event, closing):
            return None
        if isinstance(event, Asked):
            is_over = ended_at is not None and ended_at >= event.at
            return None if is_over or (event.terminal is not None and not has_lock) else (at, event)
    return None


def asks_for_decision(asked: Asked) -> bool:
    """Return whether the run asks how to continue after a failure, and not for an approval."""
    return Decision.APPROVED.label not in asked.options


def who_can_answer(asked: Asked, dag_id: str) -> tuple[str, ...]:
    """Return Airflow's ids of the users who can answer, or one sentence. `dag_id`: empty if it is unknown."""
    return asked.users or (f"everyone who can change the DAG {dag_id or 'of the run'}",)


def subject_of(asked: Asked) -> str:
    """Return the first line of the request. The other lines can have settings of the cluster."""
    return asked.text.partition("\n")[0].strip()
