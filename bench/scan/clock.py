"""Prints the current step of the benchmark and its remaining time."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Clock:
    """Progress of one run. `steps`: in order, with their seconds on two idle cores.

    The remaining time is estimated from the finished steps: their time compared with their expected time.
    """

    steps: Sequence[tuple[str, float]]
    _at: int = -1
    _began: float = field(default_factory=time.monotonic)

    def next(self, step: str) -> None:
        """Print the step that begins now. All steps before it are finished or skipped."""
        self._at = next(place for place in range(self._at + 1, len(self.steps)) if self.steps[place][0] == step)
        print(f"[{time.strftime('%H:%M:%S')}] {step}; {self._how_long()}", file=sys.stderr, flush=True)

    def _how_long(self) -> str:
        took = time.monotonic() - self._began
        done = sum(seconds for _, seconds in self.steps[: self._at])
        left = sum(seconds for _, seconds in self.steps[self._at :])
        slower = took / done if done else 1.0
        return f"{took / 60:.1f} min so far, about {left * slower / 60:.1f} min left"
