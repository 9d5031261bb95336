"""What an operator asked of a run while it was running: a pause, or its end before the next node."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.run.events import Event, PauseAsked, ResumeAsked, StopAsked, StoppedByOperator


def find_pause(events: Sequence[Event]) -> PauseAsked | None:
    """Return the pause that is in force; None after *resume*. A run that is stopped and continued stays paused."""
    asked = next((event for event in reversed(events) if isinstance(event, PauseAsked | ResumeAsked)), None)
    return asked if isinstance(asked, PauseAsked) else None


def find_stop(events: Sequence[Event]) -> StopAsked | None:
    """Return the request to end the run before the next node; None after it has ended, or was asked to resume."""
    kinds = StopAsked | ResumeAsked | StoppedByOperator
    asked = next((event for event in reversed(events) if isinstance(event, kinds)), None)
    return asked if isinstance(asked, StopAsked) else None
