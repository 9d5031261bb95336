"""The computer's own clock."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """The port Clock on the computer's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
