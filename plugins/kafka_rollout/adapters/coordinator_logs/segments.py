"""Segment files of a log: opened as they were when looked at, their batches' headers walked, cut where batches begin.

Only reading: the directory may belong to a running broker.
"""

from __future__ import annotations

import os
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import crc32c

from kafka_rollout.adapters.system.files import open_regular, read_regular, reading
from kafka_rollout.domain.coordinator_logs.scan import LogRange
from kafka_rollout.domain.model.errors import TransientError, UserError
from kafka_rollout.wire.batch_headers import BatchHeader, header_at

_DELETED = ".deleted"  # what the cleaner or a deletion sets aside is called so until it is gone

_CRC_AT, _CRC_FROM = 17, 21  # in a batch of the format v2
_HEADER_BYTES = 27  # as far as header_at looks
_BLOCK_BYTES = 1 << 20


class SegmentGoneError(TransientError):
    """A segment is no longer what it was when the directories were looked at: cleaned, deleted or truncated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One .log file as it was when it was looked at; `size` in bytes."""

    path: Path
    inode: int
    size: int

    @property
    def base_offset(self) -> int:
        return int(self.path.stem)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRange:
    """Bytes begin <= position < end of a segment, cut where batches begin; of these, the range's offsets count."""

    log: LogRange
    segment: Segment
    begin: int
    end: int


@contextmanager
def open_segment(segment: Segment) -> Iterator[int]:
    """A file descriptor of the very file that was looked at, also when a cleaner has set it aside meanwhile.

    Raises SegmentGoneError if there is no such file any more or if it was cut off.
    """
    with reading(segment.path):
        for path in (segment.path, segment.path.with_name(segment.path.name + _DELETED)):
            try:
                descriptor = open_regular(path)
            except FileNotFoundError:
                continue
            try:
                found = os.fstat(descriptor)
                if found.st_ino == segment.inode and found.st_size >= segment.size:
                    yield descriptor
                    return
            finally:
                os.close(descriptor)
    raise SegmentGoneError(
        f"Segment {segment.path} was replaced while the log was read, as the cleaner of a running broker does.",
        remedy="Scan again, scan the live cluster with --cluster, or read a copy of the directory.",
    )


def walk(descriptor: int, position: int, end: int) -> Iterator[BatchHeader]:
    """The headers of whole batches from a boundary to `end`; it stops before the first thing that is none."""
    block, block_at = b"", position
    while position < end:
        if position + _HEADER_BYTES > block_at + len(block):
            block, block_at = os.pread(descriptor, _BLOCK_BYTES, position), position
        header = header_at(block, position - block_at, position)
        if header is None or position + header.size > end:
            return
        yield header
        position += header.size


def boundary(descriptor: int, segment: Segment, positions: Sequence[int], after: int) -> int | None:
    """The first place of `positions` behind `after` where a batch begins whose CRC is right; None if there is none.

    Batches of the formats before v2 do not count: a segment of them is not cut.
    """
    for position in positions[bisect_right(positions, after) :]:
        header = next(walk(descriptor, position, segment.size), None)
        if header is None or header.magic < 2 or header.base_offset < segment.base_offset:
            continue
        data = os.pread(descriptor, header.size, position)
        if len(data) == header.size and crc32c.crc32c(data[_CRC_FROM:]) == int.from_bytes(data[_CRC_AT:_CRC_FROM]):
            return position
    return None


def index_positions(segment: Segment) -> Sequence[int]:
    """Where its .index says that batches begin, ascending; empty without one. Not to be believed before a look."""
    try:
        data = read_regular(segment.path.with_suffix(".index"))
    except (OSError, UserError):
        return ()
    data = data.rstrip(b"\0")  # the active segment's index is a file of its greatest size
    numbers = array("I", data.ljust(-(-len(data) // 8) * 8, b"\0"))  # pairs: relative offset, position
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers[1::2]


def cut_segment(segment: Segment, most_bytes: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of the ranges of a segment. Without a usable .index, the headers are walked for the boundaries."""
    begin = 0
    if segment.size > most_bytes:
        with open_segment(segment) as descriptor:
            positions = index_positions(segment)
            if boundary(descriptor, segment, positions, 0) is None:
                positions = [header.position for header in walk(descriptor, 0, segment.size)]
            while segment.size - begin > most_bytes:
                end = boundary(descriptor, segment, positions, begin + most_bytes - 1)
                if end is None:
                    break
                yield begin, end
                begin = end
    if begin < segment.size:
        yield begin, segment.size
