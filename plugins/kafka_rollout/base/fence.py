"""The check that this process may still act, right before each change (docs/decisions/lock.md)."""

from __future__ import annotations

from collections.abc import Callable

Fence = Callable[[], None]
"""Raises RefusedError unless this process acts on the cluster now. An adapter calls it before each change."""


def unfenced() -> None:
    """The fence of a caller without a lock: the demo, a test, a command on a node's own host."""
