"""Repeating a check until it is met."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def until(
    check: Callable[[], Result],
    is_met: Callable[[Result], bool],
    *,
    deadline: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    pause_s: float = 0.5,
) -> Result:
    """Repeat `check` until `is_met` accepts its result or the deadline has passed; return the last result.

    `deadline`: a time of `clock`, in seconds. The check is called at least once, and its errors are raised.
    """
    while True:
        result = check()
        if is_met(result) or clock() >= deadline:
            return result
        sleep(pause_s)
