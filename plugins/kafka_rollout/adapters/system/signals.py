"""Ends that a process is asked for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from types import FrameType

_ENDS = (signal.SIGTERM, signal.SIGINT)


def end_event() -> Event:
    """Set when the process is asked to end (SIGTERM, Ctrl-C). For the main thread, before it starts others.

    No signal's handler sets it: that one runs between two steps of the main thread, which holds the event's lock where
    it begins to wait for it, and both would wait for ever.
    """
    asked = Event()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)

    def wait() -> None:
        signal.sigwait(_ENDS)
        asked.set()

    Thread(target=wait, name="end", daemon=True).start()
    return asked


@contextmanager
def ended_politely() -> Iterator[None]:
    """Within, SIGTERM ends the process as Ctrl-C does: it takes down what it started. For the main thread."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
