"""Finds coordinator logs in the log directories of brokers or in copies of them, and chooses one copy of each.

A log directory can belong to a running broker, so this module only reads. It remembers inode and size of each segment;
later reads use only these bytes. Source of the file names: org.apache.kafka.storage.internals.log (LogFileUtils,
UnifiedLog). Files that the log cleaner or a deletion renamed (.cleaned, .swap, .deleted) are not part of a log.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.outside_text import MOST_INT32, MOST_INT64, parse_number
from kafka_rollout.base.system.files import open_regular, read_regular, reading
from kafka_rollout.coordinator_logs.reading.segments import (
    Segment,
    SegmentGoneError,
    SegmentRange,
    boundary,
    cut_segment,
    index_positions,
    open_segment,
    walk,
)
from kafka_rollout.coordinator_logs.scan import LogCopy
from kafka_rollout.kafka.formats.batch_headers import BatchHeader
from kafka_rollout.kafka.formats.record_kinds import LogRange

_PARTITION_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)")  # not …-delete, …-future or …-stray
_SEGMENT_FILE = re.compile(r"[0-9]{20}\.log")
_START_OFFSETS = "log-start-offset-checkpoint"
_LEADER_EPOCHS = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryLogs:
    """The partitions that were found, each with the segments of the copy that must be read."""

    ranges: tuple[LogRange, ...]
    segments: dict[LogRange, tuple[Segment, ...]]
    copies: tuple[LogCopy, ...]

    @property
    def log_bytes(self) -> int:
        return sum(segment.size for segments in self.segments.values() for segment in segments)

    def cut(self, most_bytes: int) -> tuple[SegmentRange, ...]:
        """Return all segments in ranges of about `most_bytes`; larger if no batch boundary is known there."""
        return tuple(
            SegmentRange(log=log, segment=segment, begin=begin, end=end)
            for log, segments in self.segments.items()
            for segment in segments
            for begin, end in cut_segment(segment, most_bytes)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    topic: str
    partition: int
    folder: Path
    segments: tuple[Segment, ...]
    start: int
    end: int
    leader_epoch: int  # the newest in the copy; −1 if none

    @property
    def log_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)


def find_logs(directories: Sequence[Path], topics: Collection[str]) -> DirectoryLogs:
    """Find the partitions of `topics` in log directories or in folders of single partitions (partition_folders).

    Raises UserError as partition_folders does, and for a segment that cannot be read.
    """
    by_partition: dict[tuple[str, int], list[_Copy]] = defaultdict(list)
    for folder in partition_folders(directories, topics):
        copy = _read_copy(folder)
        by_partition[copy.topic, copy.partition].append(copy)
    segments, copies = {}, []
    for (topic, partition), found in sorted(by_partition.items()):
        chosen, why = _choose(found)
        log = LogRange(topic=topic, partition=partition, start=chosen.start, end=chosen.end)
        segments[log] = chosen.segments
        copies += [_describe_copy(copy, copy is chosen, why) for copy in found]
    return DirectoryLogs(ranges=tuple(segments), segments=segments, copies=tuple(copies))


def partition_folders(directories: Sequence[Path], topics: Collection[str]) -> list[Path]:
    """Return the partition folders of these directories in their order, each folder once.

    Raises UserError for a directory that does not exist, cannot be read or contains no such folder.
    """
    found: dict[Path, None] = {}
    for directory in directories:
        with reading(directory):
            if not directory.is_dir():
                what = "is not a folder" if directory.exists() else "does not exist"
                raise UserError(f"{directory} {what}.", remedy="Use a log directory of a broker, or a copy of it.")
            folder = directory.resolve()
            inside = sorted(entry for entry in folder.iterdir() if _partition_of(entry, topics) and entry.is_dir())
        if _partition_of(folder, topics):
            inside = [folder]
        if not inside:
            raise UserError(
                f"{directory} contains no coordinator log: it has no folder such as {min(topics)}-0.",
                remedy="Use a folder of the broker's log.dirs, a copy of it, or the folder of one partition.",
            )
        found |= dict.fromkeys(inside)
    return list(found)


# --- finding ---


def _partition_of(folder: Path, topics: Collection[str]) -> tuple[str, int] | None:
    match = _PARTITION_FOLDER.fullmatch(folder.name)
    if match is None or match["topic"] not in topics:
        return None
    partition = parse_number(match["partition"], MOST_INT32)
    if partition is None:
        raise UserError(f"The partition number in the name of {folder} is not valid.", remedy="Rename or remove it.")
    return match["topic"], partition


def _read_copy(folder: Path) -> _Copy:
    match = _PARTITION_FOLDER.fullmatch(folder.name)
    assert match is not None  # noqa: S101 - the folder was found by this pattern
    topic, partition = match["topic"], int(match["partition"])
    segments = _segments(folder)
    start = _log_start(folder.parent / _START_OFFSETS, topic, partition)
    end, epoch = 0, _newest_epoch(folder / _LEADER_EPOCHS)
    if segments:
        start = max(start, segments[0].base_offset)
        last = _last_batch(segments[-1])
        end = max(start, segments[-1].base_offset if last is None else last.last_offset + 1)
        epoch = max(epoch, -1 if last is None else last.leader_epoch)
    return _Copy(
        topic=topic,
        partition=partition,
        folder=folder,
        segments=segments,
        start=min(start, end),
        end=end,
        leader_epoch=epoch,
    )


def _segments(folder: Path) -> tuple[Segment, ...]:
    """Return the segments. A running broker can rename a file after the folder was listed; then list it once more."""
    for attempt in (1, 2):
        with reading(folder):
            names = sorted(name for name in os.listdir(folder) if _SEGMENT_FILE.fullmatch(name))
        try:
            return tuple(_segment(folder / name) for name in names)
        except SegmentGoneError:
            if attempt == 2:
                raise
    raise AssertionError("the second attempt returns or raises")


def _segment(path: Path) -> Segment:
    with reading(path):
        try:
            # The file is opened, so that a file without read permission is reported before the scan starts.
            with os.fdopen(open_regular(path), "rb") as file:
                found = os.fstat(file.fileno())
        except FileNotFoundError:
            raise SegmentGoneError(f"Segment {path} does not exist any more.", remedy="Scan again.") from None
    if parse_number(path.stem) is None:
        raise UserError(f"The offset in the name of {path} is not valid.", remedy="Remove the file.")
    return Segment(path=path, inode=found.st_ino, size=found.st_size)


def _last_batch(segment: Segment) -> BatchHeader | None:
    last = None
    with open_segment(segment) as descriptor:
        positions = index_positions(segment)
        # The last position of the index is near the end. If the segment is damaged there, use an earlier position.
        begin = next((p for p in reversed(positions) if boundary(descriptor, segment, [p], -1) is not None), 0)
        for header in walk(descriptor, begin, segment.size):
            last = header
    return last


def _log_start(checkpoint: Path, topic: str, partition: int) -> int:
    """Return the partition's log start offset from the broker's checkpoint file; 0 if it is not in the file."""
    for line in _checkpoint_lines(checkpoint):
        if line[:2] == [topic, str(partition)] and len(line) == 3:
            return _number_in(checkpoint, line[2], MOST_INT64)
    return 0


def _newest_epoch(checkpoint: Path) -> int:
    epochs = [_number_in(checkpoint, line[0], MOST_INT32) for line in _checkpoint_lines(checkpoint) if len(line) == 2]
    return max(epochs, default=-1)


def _number_in(checkpoint: Path, text: str, most: int) -> int:
    number = parse_number(text, most)
    if number is None:
        raise UserError(
            f"{checkpoint} is damaged: {text[:20]!r} is not a number that Kafka writes there.",
            remedy="Copy the directory again, or use the directory of another broker.",
        )
    return number


def _checkpoint_lines(path: Path) -> list[list[str]]:
    """Return the entries of a checkpoint file of Kafka (version, number of entries, entries); none without the file."""
    with reading(path):
        try:
            text = read_regular(path).decode(errors="replace")
        except FileNotFoundError:
            return []
    return [line.split() for line in text.splitlines()[2:]]


# --- choosing among copies ---


def _choose(copies: Sequence[_Copy]) -> tuple[_Copy, str]:
    """Choose as a leader election does: the newest leader epoch, then the highest end offset, then the first copy."""
    chosen = max(copies, key=lambda copy: (copy.leader_epoch, copy.end))
    others = [copy for copy in copies if copy is not chosen]
    if not others:
        return chosen, "It is the only copy."
    if all(copy.leader_epoch < chosen.leader_epoch for copy in others):
        return chosen, f"Only this copy contains leader epoch {chosen.leader_epoch}, the newest."
    if all((copy.leader_epoch, copy.end) < (chosen.leader_epoch, chosen.end) for copy in others):
        return chosen, f"It is the longest copy with the newest leader epoch: it ends at offset {chosen.end}."
    return chosen, f"It is the first of the longest copies: they end at offset {chosen.end}."


def _describe_copy(copy: _Copy, chosen: bool, why: str) -> LogCopy:
    return LogCopy(
        topic=copy.topic,
        partition=copy.partition,
        directory=str(copy.folder),
        start=copy.start,
        end=copy.end,
        log_bytes=copy.log_bytes,
        chosen=chosen,
        why=why if chosen else f"Not read: its leader epoch is {copy.leader_epoch} and it ends at offset {copy.end}.",
    )
