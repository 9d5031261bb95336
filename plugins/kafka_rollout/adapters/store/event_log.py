"""What happened, one JSON event a line of events.jsonl, written by several processes and survived by none."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka_rollout.adapters.system.files import append_line
from kafka_rollout.ports.run_store import TORN_LINE


class EventLog:
    """The events of one folder, which is made by the first of them."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock

    def record(self, kind: str, data: Mapping[str, Any]) -> None:
        """Append one event; `at` is now unless `data` has its own."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._guarded(fcntl.LOCK_EX):
            append_line(self._folder / "events.jsonl", {"at": self._clock(), **data, "kind": kind})

    def events(self) -> tuple[Mapping[str, Any], ...]:
        """All events, oldest first. A line torn by a kill comes as an event of kind `torn-line` with its number."""
        path = self._folder / "events.jsonl"
        if not path.exists():
            return ()
        with self._guarded(fcntl.LOCK_SH):
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        return tuple(_event(number, line) for number, line in enumerate(lines, start=1) if line)

    @contextmanager
    def _guarded(self, how: int) -> Iterator[None]:
        """One writer at a time, and no reader that sees half a line; the kernel lets go of a killed holder."""
        with (self._folder / ".events.guard").open("a") as guard:
            fcntl.flock(guard, how)
            yield


def _event(number: int, line: str) -> Mapping[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        return {"kind": TORN_LINE, "line": number, "sentence": f"Line {number} was cut off by a kill of its writer."}
    return event
