"""Segment files of a log: opens unchanged files, reads batch headers, and divides segments at batch boundaries.

This module only reads: the directory can belong to a running broker.
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

from kafka_rollout.base.errors import TransientError, UserError
from kafka_rollout.base.system.files import open_regular, read_regular, reading
from kafka_rollout.kafka.formats.batch_headers import BatchHeader, header_at
from kafka_rollout.kafka.formats.record_kinds import LogRange

_DELETED = ".deleted"  # suffix of a file that the cleaner or a deletion replaced, until it is removed

_CRC_AT, _CRC_FROM = 17, 21  # in a batch of the format v2
_HEADER_BYTES = 27  # read by header_at
_BLOCK_BYTES = 1 << 20


class SegmentGoneError(TransientError):
    """A segment was cleaned, deleted or truncated after the directories were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One .log file at the time when it was found; `size` in bytes."""

    path: Path
    inode: int
    size: int

    @property
    def base_offset(self) -> int:
        return int(self.path.stem)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRange:
    """Bytes begin <= position < end of a segment, between batch boundaries. Only offsets of the log range count."""

    log: LogRange
    segment: Segment
    begin: int
    end: int


@contextmanager
def open_segment(segment: Segment) -> Iterator[int]:
    """Open the file that was found, also if the log cleaner has renamed it since then. Yields a file descriptor.

    Raises SegmentGoneError if the file no longer exists or was truncated.
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
        f"Segment {segment.path} was replaced during the scan, as the log cleaner of a running broker does.",
        remedy="Scan again, scan the running cluster with --cluster, or read a copy of the directory.",
    )


def walk(descriptor: int, position: int, end: int) -> Iterator[BatchHeader]:
    """Yield the headers of whole batches from a boundary to `end`. Stops at the first bytes that are not a batch."""
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
    """Return the first of `positions` after `after` where a batch with a correct CRC begins; None if there is none.

    Batches of the formats before v2 do not count, so a segment with such batches is not divided.
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
    """Return the batch positions in the .index file, ascending; empty without the file.

    Check each position, because an index can be wrong.
    """
    try:
        data = read_regular(segment.path.with_suffix(".index"))
    except (OSError, UserError):
        return ()
    data = data.rstrip(b"\0")  # the index file of the active segment has its maximum size
    numbers = array("I", data.ljust(-(-len(data) // 8) * 8, b"\0"))  # pairs: relative offset, position
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers[1::2]


def cut_segment(segment: Segment, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of the ranges of a segment. Without a usable .index, reads all headers for the boundaries."""
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
