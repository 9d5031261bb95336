"""A clock whose time passes at once."""

from __future__ import annotations

import time
from collections.abc import Callable

_A_READING_S = 0.001  # so that no two readings are equal, and a loop without a pause meets its deadline


class FakeClock:
    """The port Clock. It starts at the present; then time passes by sleeping, which returns at once, and by readings.

    `on_sleep` is called with the seconds of each sleep: what happens in a test's world during it.
    """

    def __init__(self, on_sleep: Callable[[float], object] = lambda seconds: None) -> None:
        self.on_sleep = on_sleep
        self.slept: list[float] = []
        self.set(time.time(), reading_s=_A_READING_S)

    def set(self, now: float, *, reading_s: float) -> None:
        """Start again at `now` (epoch seconds); each reading takes `reading_s`."""
        self._now = self._began = now
        self._reading_s = reading_s

    def now(self) -> float:
        self._now += self._reading_s
        return self._now

    def monotonic(self) -> float:
        return self.now() - self._began

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        self.slept.append(seconds)
        self.on_sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)
