"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kafka_rollout.base.errors import TransientError


def wait_until(condition: Callable[[], Any], timeout_s: float, *, every_s: float = 0.2, said: str = "it") -> Any:
    """Return the first true value of the condition; fail when there was none.

    A TransientError counts as "not yet": a busy node refuses or misses a query now and then.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        refused = ""
        try:
            if found := condition():
                return found
        except TransientError as error:
            refused = f": {error}"
        if time.monotonic() > deadline:
            raise AssertionError(f"{said} did not come about in {timeout_s:.0f} s{refused}")
        time.sleep(every_s)
