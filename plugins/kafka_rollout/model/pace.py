"""Pace: how long a run watches a node after its start before it stops the next one. `PACES` is the only table of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.base.durations import duration
from kafka_rollout.base.wording import count


class Pace(StrEnum):
    CAREFUL = "careful"
    NORMAL = "normal"
    FAST = "fast"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceNumbers:
    """What a pace means for the gate after a node's start."""

    soak_s: float
    """Time for which every check must pass, after `checks`."""
    checks: int
    """Consecutive checks that must pass."""
    interval_s: float
    """Time between two checks."""

    @property
    def text(self) -> str:
        """The numbers as a form, an approval and a page show them."""
        checks = f"{count(self.checks, 'consecutive check')}, {self.interval_s:g} s apart"
        return f"{checks}, then {f'a soak of {duration(self.soak_s)}' if self.soak_s else 'no soak'}"

    def at_least(self, other: PaceNumbers) -> PaceNumbers:
        """Return the slower number of each."""
        return PaceNumbers(
            soak_s=max(self.soak_s, other.soak_s),
            checks=max(self.checks, other.checks),
            interval_s=max(self.interval_s, other.interval_s),
        )


PACES: Mapping[Pace, PaceNumbers] = {
    Pace.CAREFUL: PaceNumbers(soak_s=600.0, checks=5, interval_s=2.0),
    Pace.NORMAL: PaceNumbers(soak_s=60.0, checks=3, interval_s=1.0),
    # The controllers fence a silent broker after broker.session.timeout.ms (9 s). A shorter gate can read what was true
    # before the broker failed.
    Pace.FAST: PaceNumbers(soak_s=10.0, checks=3, interval_s=1.0),
}
NO_CLIENTS = PaceNumbers(soak_s=0.0, checks=2, interval_s=0.5)
"""Numbers for a cluster that serves nobody: the copy of a rehearsal, a demo."""
