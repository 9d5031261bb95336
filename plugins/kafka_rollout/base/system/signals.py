"""Reactions to SIGTERM and Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from types import FrameType

_ENDS = (signal.SIGTERM, signal.SIGINT)


def end_event() -> Event:
    """Return an event that is set when the process is asked to end (SIGTERM, Ctrl-C). Call it in the main thread,
    first.

    A signal handler does not set it, because the handler runs in the main thread, which may hold the event's lock: both
    would wait permanently.
    """
    asked = Event()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)

    def wait() -> None:
        signal.sigwait(_ENDS)
        asked.set()

    Thread(target=wait, name="end", daemon=True).start()
    return asked


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """In this block, SIGTERM ends the process as Ctrl-C does, with its child processes. For the main thread."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
