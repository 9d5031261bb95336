"""The time, and waiting for it to pass."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Every step that waits takes its clock from here, so that a test does not wait."""

    def now(self) -> float:
        """Epoch seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that is never set: for durations and deadlines."""
        ...

    def sleep(self, seconds: float) -> None: ...

    async def sleep_async(self, seconds: float) -> None:
        """Sleep in a coroutine, without holding its thread."""
        ...
