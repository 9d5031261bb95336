"""Says what a run of the benchmark is at, and how long it still takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Clock:
    """`steps`: what comes, in its order, each with the seconds that it takes on two idle cores. What was done so far
    tells how much slower than that this run is.
    """

    steps: Sequence[tuple[str, float]]
    _at: int = -1
    _began: float = field(default_factory=time.monotonic)

    def next(self, step: str) -> None:
        """The step that begins now; those before it are done, or were left out."""
        self._at = next(place for place in range(self._at + 1, len(self.steps)) if self.steps[place][0] == step)
        print(f"[{time.strftime('%H:%M:%S')}] {step}; {self._how_long()}", file=sys.stderr, flush=True)

    def _how_long(self) -> str:
        took = time.monotonic() - self._began
        done = sum(seconds for _, seconds in self.steps[: self._at])
        left = sum(seconds for _, seconds in self.steps[self._at :])
        slower = took / done if done else 1.0
        return f"{took / 60:.1f} min so far, about {left * slower / 60:.1f} min left"
