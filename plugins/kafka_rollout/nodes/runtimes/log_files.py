"""Places in the log file of a node: where its process begins, and where an earlier reading ended.

A place is a byte of one file, known by its inode and by a digest of the bytes before the place. A file that was renamed
and made again has another inode. One that was copied and cut (copytruncate) has other bytes there. So a gap is seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

from kafka_rollout.model.host_state import StartRecord
from kafka_rollout.model.node_log import LogPart

BYTES_BEFORE = 256  # of the digest
MOST_BYTES = 16 << 20  # of one reading; the next one continues
ROTATED = "was rotated before it was read"
TOO_LONG = f"has a line of more than {MOST_BYTES >> 20} MiB, which was left out"
BEGIN_UNKNOWN = "has no known place where its process begins: this tool did not start the process"
_FORM = re.compile(r"(\d+):(\d+):([0-9a-f]{64})(:within)?")


@dataclass(frozen=True, slots=True)
class LogPlace:
    inode: int
    """0 if there was no file yet. `offset` in bytes."""
    offset: int
    digest: str
    """SHA-256 of the BYTES_BEFORE bytes before."""
    is_within: bool = False
    """In a line that is left out: what follows up to its end is not a line."""

    def __str__(self) -> str:
        return f"{self.inode}:{self.offset}:{self.digest}{':within' if self.is_within else ''}"

    @property
    def read_from(self) -> int:
        """The byte from which `read_on` must be given the file."""
        return max(0, self.offset - BYTES_BEFORE)


NO_FILE = LogPlace(0, 0, sha256(b"").hexdigest())
Reader = Callable[[int], tuple[int, bytes] | None]
"""Byte → the inode of the file and its content from this byte on, at most BYTES_BEFORE + MOST_BYTES; None: no file."""


def parse_place(text: str) -> LogPlace | None:
    """Return the place of its text; None for another text."""
    match = _FORM.fullmatch(text)
    return None if match is None else LogPlace(int(match[1]), int(match[2]), match[3], is_within=bool(match[4]))


def end_of(inode: int, size: int, before: bytes) -> LogPlace:
    """Return the place at the end of a file. `before`: at least its last BYTES_BEFORE bytes, or all of it."""
    return LogPlace(inode, size, sha256(before[-BYTES_BEFORE:]).hexdigest())


def read_on(place: LogPlace, read: Reader) -> tuple[tuple[str, ...], LogPlace, str, bool]:
    """Return the whole lines since a place, the place after them, why lines between are missing, or empty, and whether
    more was there to read.

    After a rotation, the lines are those of the new file from its begin. A line that is longer than one reading is left
    out.
    """
    found = read(place.read_from)
    if found is None:  # no file yet, or none in the moment of a rotation
        return (), place, "", False
    inode, data = found
    skipped, problem = place.offset - place.read_from, ""
    if place.inode not in (0, inode) or sha256(data[:skipped]).hexdigest() != place.digest:
        problem = ROTATED
        found = read(0)
        if found is None:
            return (), NO_FILE, problem, False
        (inode, data), skipped, place = found, 0, NO_FILE
    new = data[skipped : skipped + MOST_BYTES]
    is_cut = len(new) == MOST_BYTES
    begin, end = new.find(b"\n") + 1 if place.is_within else 0, new.rfind(b"\n") + 1
    is_within = not end and (is_cut or place.is_within)
    if is_cut and not end:
        problem, end = problem or TOO_LONG, len(new)
    whole = b"" if is_within else new[begin:end]
    # Only a line feed ends a line of a log: str.splitlines would end one at other characters of a text too.
    lines = tuple(line.rstrip("\r") for line in whole.decode("utf-8", errors="replace").split("\n")[:-1])
    after = end_of(inode, place.offset + end, data[: skipped + end])
    return lines, replace(after, is_within=is_within), problem, is_cut


def log_part(pid: int, started_at: float | None, start: StartRecord | None, after: str, read: Reader) -> LogPart:
    """Return the lines of a process since `after`, a place as text; empty: since its start.

    `start`: the record of its start; None if this tool did not start it. Then no line is known to be its own.
    """
    is_first = not after
    place = parse_place(after or ("" if start is None else start.log_place))
    if place is None:
        return LogPart(pid=pid, started_at=started_at, problem=BEGIN_UNKNOWN)
    lines, place, problem, is_cut = read_on(place, read)
    return LogPart(
        pid=pid,
        started_at=started_at,
        lines=lines,
        position=str(place),
        is_first=is_first,
        problem=problem,
        is_cut=is_cut,
    )
