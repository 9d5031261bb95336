"""Repeating a check until it is met."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kafka_rollout.base.clock import Clock

Result = TypeVar("Result")


def until(
    clock: Clock, check: Callable[[], Result], is_met: Callable[[Result], bool], *, for_s: float, every_s: float = 0.5
) -> Result:
    """Repeat `check` until `is_met` accepts its result or `for_s` have passed; return the last result. All in seconds.

    The check is called at least once, and its errors are raised.
    """
    deadline = clock.monotonic() + for_s
    while not is_met(result := check()) and clock.monotonic() < deadline:
        clock.sleep(every_s)
    return result
