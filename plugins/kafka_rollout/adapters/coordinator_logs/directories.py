"""Coordinator logs as they lie in brokers' log directories or in copies of them: found, chosen, cut for reading.

A log directory may belong to a running broker: everything here only reads, and what was there when it was looked at
(each segment's inode and size) is all that is read later. File names as in org.apache.kafka.storage.internals.log
(LogFileUtils, UnifiedLog): what the cleaner or a deletion renamed (.cleaned, .swap, .deleted) is no part of a log.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.adapters.coordinator_logs.segments import (
    Segment,
    SegmentGoneError,
    SegmentRange,
    boundary,
    cut_segment,
    index_positions,
    open_segment,
    walk,
)
from kafka_rollout.adapters.system.files import open_regular, read_regular, reading
from kafka_rollout.domain.coordinator_logs.scan import LogCopy, LogRange
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.outside_text import MOST_INT32, MOST_INT64, parse_number
from kafka_rollout.wire.batch_headers import BatchHeader

_PARTITION_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)")  # not …-delete, …-future or …-stray
_SEGMENT_FILE = re.compile(r"[0-9]{20}\.log")
_START_OFFSETS = "log-start-offset-checkpoint"
_LEADER_EPOCHS = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryLogs:
    """The partitions that were found, each with the segments of the one copy that is to be read."""

    ranges: tuple[LogRange, ...]
    segments: dict[LogRange, tuple[Segment, ...]]
    copies: tuple[LogCopy, ...]

    @property
    def log_bytes(self) -> int:
        return sum(segment.size for held in self.segments.values() for segment in held)

    def cut(self, most_bytes: int) -> tuple[SegmentRange, ...]:
        """All segments in ranges of about `most_bytes`; larger where no boundary of batches is known."""
        return tuple(
            SegmentRange(log=log, segment=segment, begin=begin, end=end)
            for log, held in self.segments.items()
            for segment in held
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
    leader_epoch: int  # the newest that the copy knows, −1 if none

    @property
    def log_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)


def find_logs(directories: Sequence[Path], topics: Collection[str]) -> DirectoryLogs:
    """Look into log directories (or single partitions' folders) for the partitions of `topics`; see
    partition_folders. A segment that cannot be read is a UserError as well.
    """
    by_partition: dict[tuple[str, int], list[_Copy]] = defaultdict(list)
    for folder in partition_folders(directories, topics):
        copy = _look_at(folder)
        by_partition[copy.topic, copy.partition].append(copy)
    segments, copies = {}, []
    for (topic, partition), found in sorted(by_partition.items()):
        chosen, why = _choose(found)
        log = LogRange(topic=topic, partition=partition, start=chosen.start, end=chosen.end)
        segments[log] = chosen.segments
        copies += [_described(copy, copy is chosen, why) for copy in found]
    return DirectoryLogs(ranges=tuple(segments), segments=segments, copies=tuple(copies))


def partition_folders(directories: Sequence[Path], topics: Collection[str]) -> list[Path]:
    """The folders of these directories' partitions: each once, in the order given, however often it is named.

    Raises UserError for a directory that does not exist, cannot be read or holds none.
    """
    found: dict[Path, None] = {}
    for directory in directories:
        with reading(directory):
            if not directory.is_dir():
                what = "is not a folder" if directory.exists() else "does not exist"
                raise UserError(f"{directory} {what}.", remedy="Name a broker's log directory or a copy of one.")
            folder = directory.resolve()
            inside = sorted(entry for entry in folder.iterdir() if _partition_of(entry, topics) and entry.is_dir())
        if _partition_of(folder, topics):
            inside = [folder]
        if not inside:
            raise UserError(
                f"{directory} holds no coordinator log: no folder such as {min(topics)}-0 is in it.",
                remedy="Name a folder of the broker's log.dirs, a copy of one, or one partition's folder.",
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
        raise UserError(f"{folder} is not named after a partition that Kafka can have.", remedy="Rename or remove it.")
    return match["topic"], partition


def _look_at(folder: Path) -> _Copy:
    match = _PARTITION_FOLDER.fullmatch(folder.name)
    assert match is not None  # noqa: S101 - how the folder was found
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
    """A running broker may rename a file between listing and looking: then the folder is listed once more."""
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
            # Opened, so that a file nobody may read is found before anything starts.
            with os.fdopen(open_regular(path), "rb") as file:
                found = os.fstat(file.fileno())
        except FileNotFoundError:
            raise SegmentGoneError(f"Segment {path} is gone.", remedy="Scan again.") from None
    if parse_number(path.stem) is None:
        raise UserError(f"{path} is not named after an offset that Kafka can have.", remedy="Remove it.")
    return Segment(path=path, inode=found.st_ino, size=found.st_size)


def _last_batch(segment: Segment) -> BatchHeader | None:
    last = None
    with open_segment(segment) as descriptor:
        positions = index_positions(segment)
        # The last place of the index is near the end; after damage, an earlier one may have to do.
        begin = next((p for p in reversed(positions) if boundary(descriptor, segment, [p], -1) is not None), 0)
        for header in walk(descriptor, begin, segment.size):
            last = header
    return last


def _log_start(checkpoint: Path, topic: str, partition: int) -> int:
    """The log start offset that the broker wrote down for the partition; 0 if it did not."""
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
            remedy="Copy the directory again, or name another broker's.",
        )
    return number


def _checkpoint_lines(path: Path) -> list[list[str]]:
    """The entries of one of Kafka's checkpoint files (version, number of entries, entries); none if it is not there."""
    with reading(path):
        try:
            text = read_regular(path).decode(errors="replace")
        except FileNotFoundError:
            return []
    return [line.split() for line in text.splitlines()[2:]]


# --- choosing among copies ---


def _choose(copies: Sequence[_Copy]) -> tuple[_Copy, str]:
    """As an election would: the newest leader epoch, then the furthest end; among equals the first that was named."""
    chosen = max(copies, key=lambda copy: (copy.leader_epoch, copy.end))
    others = [copy for copy in copies if copy is not chosen]
    if not others:
        return chosen, "It is the only copy."
    if all(copy.leader_epoch < chosen.leader_epoch for copy in others):
        return chosen, f"It alone knows leader epoch {chosen.leader_epoch}, the newest: it is the leader's."
    if all((copy.leader_epoch, copy.end) < (chosen.leader_epoch, chosen.end) for copy in others):
        return chosen, f"Of the copies of the newest leader epoch it is the longest: it ends at offset {chosen.end}."
    return chosen, f"No other copy reaches beyond its end, offset {chosen.end}; it was named first."


def _described(copy: _Copy, chosen: bool, why: str) -> LogCopy:
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
