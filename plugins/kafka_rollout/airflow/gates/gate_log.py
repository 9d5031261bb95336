"""The log of a gate that waits: each condition that is not met in a line of its own, with its evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_rollout.base.wording import without_counts
from kafka_rollout.gates.gate import Gate, GateCheck
from kafka_rollout.gates.reasons import describe

LOG_AGAIN_S = 60.0


@dataclass(slots=True)
class GateLog:
    """Writes the lines of each check. A line that is known, apart from its numbers, is repeated after LOG_AGAIN_S.

    A gate can wait for hours and checks each second, while its evidence counts down.
    """

    write: Callable[..., object]
    """The function of a logger."""
    _lines: list[str] = field(default_factory=list)
    _written: dict[str, float] = field(default_factory=dict)

    def add(self, gate: Gate, seen: GateCheck, message: str) -> None:
        """Add the lines of one gate; they are written by `say`. It can be called in another thread."""
        unmet = [one for one in seen.conditions if not one.is_met]
        self._lines += [f"{gate.name} waits for {one.name}: {describe(one)}" for one in unmet] or [
            f"{gate.name} {message}"
        ]

    def say(self, message: str, now: float, *, is_done: bool = False) -> None:
        """Write the added lines, or the message if there are none, or if it is the last one (`is_done`).

        `now`: monotonic seconds.
        """
        lines, self._lines = self._lines, []
        for line in lines if lines and not is_done else [message]:
            known = without_counts(line)
            if now - self._written.get(known, -LOG_AGAIN_S) >= LOG_AGAIN_S:
                self._written[known] = now
                self.write("%s", line)
