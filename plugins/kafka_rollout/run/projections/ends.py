"""How a run ended, by its report and its newest events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_rollout.run.events import Event, StoppedByOperator, newest

QUIET_S = 120.0  # an active run records something, or holds the lock
_SAME_TIME_S = 1.0  # a report is written right after the last event
_TAIL = 8  # events after the operator's stop: traffic, report


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run by its report. `outcome`: a value of `report.run_report.Outcome`. `ended_at`: epoch seconds."""

    outcome: str = ""
    sentence: str = ""
    ended_at: float = 0.0

    def is_newest(self, events: Sequence[Event]) -> bool:
        """Return whether nothing happened since."""
        return not events or self.ended_at >= events[-1].at - _SAME_TIME_S


def ended_by_operator(events: Sequence[Event]) -> bool:
    """Return whether an operator stopped the run in the shell, and it was not continued since."""
    return newest(events[-_TAIL:], StoppedByOperator) is not None
