"""Kills of a process of the project right before or after it records an event of a run: each point once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

_CODE = """
import fcntl, os, signal
from pathlib import Path
from kafka_rollout.run.store.history import SqlRunStore
_record = SqlRunStore.record
def _about(event):
    ref = getattr(event, "ref", None)
    found = getattr(event, "node_id", None) or getattr(event, "step", None) or (ref and ref.kind)
    return f"{type(event).__name__} {found}" if found else type(event).__name__
def _record_or_die(self, event):
    path = Path(%r)
    with path.with_suffix(".lock").open("w") as lock:  # one event at a time: of all threads
        fcntl.flock(lock, fcntl.LOCK_EX)
        for when in ("before", "after"):
            point, left = f"{when} {_about(event)}", path.read_text().splitlines()
            if point in left:
                left.remove(point)
                if when == "after":
                    _record(self, event)
                path.write_text("".join(f"{one}\\n" for one in left))
                os.kill(os.getpid(), signal.SIGKILL)
        _record(self, event)
SqlRunStore.record = _record_or_die
"""


class KillPoints:
    """The points that are still to come, a line each in a file: "before OfflineInstalled 101"."""

    def __init__(self, file: Path, points: Iterable[str]) -> None:
        self._file = file
        file.write_text("".join(f"{point}\n" for point in points))

    @property
    def code(self) -> str:
        """Python that a process runs first."""
        return _CODE % str(self._file)

    @property
    def left(self) -> Sequence[str]:
        return self._file.read_text().splitlines()


def around(*events: str) -> list[str]:
    return [f"{when} {event}" for event in events for when in ("before", "after")]
