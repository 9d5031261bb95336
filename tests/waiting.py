"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout_s: float, *, every_s: float = 0.2) -> None:
    """Return as soon as the condition holds; fail when it never did."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not come about in {timeout_s:.0f} s")
        time.sleep(every_s)
