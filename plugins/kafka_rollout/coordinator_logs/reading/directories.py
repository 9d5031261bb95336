"""Finds coordinator logs in the log directories of brokers or in copies of them.

Reads segment files: opens unchanged files, reads batch headers, and divides segments at batch boundaries.

A log directory can belong to a running broker, so this module only reads. It remembers inode and size of each segment;
later reads use only these bytes. The files between two renames of the log cleaner are read as Kafka's LogLoader reads
them when it starts (formats.log_files). A folder without a segment is a Damage, so that the verdict is unknown, and so
is a log that is shorter than a checkpoint file of the broker says: the copy lacks segments.
"""

from __future__ import annotations

import os
import re
import sys
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import crc32c

from kafka_rollout.base.errors import TransientError, UserError
from kafka_rollout.base.outside_text import MOST_INT32, parse_number
from kafka_rollout.base.system.files import open_regular, read_if_exists, read_regular, reading
from kafka_rollout.coordinator_logs.scan import Damage, LogCopy
from kafka_rollout.formats.checkpoint_files import (
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    RECOVERY_POINTS,
    START_OFFSETS,
    Epochs,
    parse_epochs,
    parse_offsets,
)
from kafka_rollout.formats.files import server_properties
from kafka_rollout.formats.log_files import DELETED, OFFSET_DIGITS, SWAP, base_offset, segment_names
from kafka_rollout.formats.log_types import ReplicaRange
from kafka_rollout.formats.record_batch import BatchHeader, header_at

_PARTITION_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)")  # not …-delete, …-future or …-stray

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
        return base_offset(self.path.name)

    @property
    def index(self) -> Path:
        """Its .index file, which has the suffix of the segment."""
        name = self.path.name
        return self.path.with_name(name[:OFFSET_DIGITS] + name[OFFSET_DIGITS:].replace(".log", ".index", 1))

    @property
    def is_swap(self) -> bool:
        return self.path.name.endswith(SWAP)

    @property
    def later_paths(self) -> tuple[Path, ...]:
        """Where the file is after the next rename by the log cleaner."""
        name = self.path.name
        return (self.path.with_name(name.removesuffix(SWAP) if self.is_swap else name + DELETED),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRange:
    """Bytes begin <= position < end of a segment, between batch boundaries. Only offsets of the log range count."""

    log: ReplicaRange
    segment: Segment
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryLogs:
    """The partitions that were found, each copy with its segments."""

    segments: dict[ReplicaRange, tuple[Segment, ...]]
    copies: tuple[LogCopy, ...]
    names: dict[tuple[str, int, int], str]
    """Topic, partition and copy → its directory."""
    damage: tuple[Damage, ...] = ()
    """What is missing in the copies."""

    @property
    def ranges(self) -> tuple[ReplicaRange, ...]:
        return tuple(self.segments)

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
    log: ReplicaRange
    folder: Path
    segments: tuple[Segment, ...]
    leader_epoch: int  # the newest in the copy; −1 if none
    note: str = ""
    damage: tuple[Damage, ...] = ()


def find_logs(directories: Sequence[Path], topics: Collection[str]) -> DirectoryLogs:
    """Find the partitions of `topics` in log directories or in folders of single partitions (partition_folders).

    Each copy is read, because each broker cleans its own. The first one is that which an election would choose.
    Raises UserError as partition_folders does, and for a segment that cannot be read.
    """
    by_partition: dict[tuple[str, int], list[_Copy]] = defaultdict(list)
    for folder in partition_folders(directories, topics):
        copy = _read_copy(folder)
        by_partition[copy.log.topic, copy.log.partition].append(copy)
    ordered: list[tuple[int, _Copy]] = []
    copies: list[LogCopy] = []
    damage: list[Damage] = []
    for _, found in sorted(by_partition.items()):
        chosen, why = _choose(found)
        ordered += enumerate([chosen, *(copy for copy in found if copy is not chosen)])
        damage += (missing for copy in found for missing in copy.damage)
        copies += [_describe_copy(copy, copy is chosen, why) for copy in found]
    ordered.sort(key=lambda one: one[0])
    return DirectoryLogs(
        segments={replace(copy.log, copy=number): copy.segments for number, copy in ordered},
        copies=tuple(copies),
        names={(copy.log.topic, copy.log.partition, number): str(copy.folder) for number, copy in ordered},
        damage=tuple(damage),
    )


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
    _refuse_two_clusters(found)
    return list(found)


def _refuse_two_clusters(folders: Collection[Path]) -> None:
    """Raise UserError for folders of different clusters: a partition would be read of one of them only."""
    ids: dict[str, Path] = {}
    for directory in dict.fromkeys(folder.parent for folder in folders):
        with reading(directory):
            content = read_if_exists(directory / "meta.properties")
        if content is not None and (cluster_id := server_properties.parse(content).get("cluster.id")):
            ids.setdefault(cluster_id, directory)
    if len(ids) > 1:
        clusters = "; ".join(f"{directory}: {cluster_id}" for cluster_id, directory in ids.items())
        raise UserError(
            f"These log directories belong to different clusters ({clusters}).",
            remedy="Scan the directories of one cluster at a time.",
        )


# --- finding ---


def _partition_of(folder: Path, topics: Collection[str]) -> tuple[str, int] | None:
    match = _PARTITION_FOLDER.fullmatch(folder.name)
    if match is None or match["topic"] not in topics:
        return None
    partition = parse_number(match["partition"], MOST_INT32)
    if partition is None:
        raise UserError(f"The partition number in the name of {folder} is not valid.", remedy="Rename or remove it.")
    return match["topic"], partition


def _missing(topic: str, partition: int, folder: Path, sentence: str) -> Damage:
    """Return a part that is missing in a folder: no bytes of it exist."""
    return Damage(topic=topic, partition=partition, file=str(folder), position=0, log_bytes=0, sentence=sentence)


def _read_copy(folder: Path) -> _Copy:
    match = _PARTITION_FOLDER.fullmatch(folder.name)
    assert match is not None  # noqa: S101 - the folder was found by this pattern
    topic, partition = match["topic"], int(match["partition"])
    # Before the segments: a running broker writes on.
    epochs = parse_epochs(_text_of(folder / LEADER_EPOCHS), folder / LEADER_EPOCHS)
    reached = {name: _recorded(folder.parent / name, topic, partition) for name in (HIGH_WATERMARKS, RECOVERY_POINTS)}
    segments = _segments(folder)
    recorded = _recorded(folder.parent / START_OFFSETS, topic, partition)
    epoch = max((epoch for epoch, _ in epochs), default=-1)
    missing = partial(_missing, topic, partition, folder)
    if not segments:
        log = ReplicaRange(topic=topic, partition=partition, start=recorded or 0, end=recorded or 0)
        damage = missing("The folder has no segment, and Kafka never leaves it without one.")
        return _Copy(log=log, folder=folder, segments=(), leader_epoch=epoch, damage=(damage,))
    first = segments[0].base_offset
    last = _last_batch(segments[-1])
    end = segments[-1].base_offset if last is None else last.last_offset + 1
    epoch = max(epoch, -1 if last is None else last.leader_epoch)
    segments, notes = _without_zeros(segments, last)
    damage_found = [missing(sentence) for sentence in _lacking(first, end, epochs, reached)]
    if recorded is not None and recorded < first:  # LogLoader takes the higher one
        notes.append(
            f"It begins at offset {first}, its first segment. {START_OFFSETS} has {recorded}, and can be a minute old."
        )
    if recorded is not None and recorded > end:
        damage_found.append(
            missing(
                f"The log begins at offset {recorded} by {START_OFFSETS}, and its segments end at {end}: Kafka deletes "
                "them when it starts."
            )
        )
    notes += [f"{segment.path.name} replaces the segments in its range." for segment in segments if segment.is_swap]
    return _Copy(
        log=ReplicaRange(topic=topic, partition=partition, start=max(first, min(recorded or 0, end)), end=end),
        folder=folder,
        segments=segments,
        leader_epoch=epoch,
        note=" ".join(notes),
        damage=tuple(damage_found),
    )


def _lacking(first: int, end: int, epochs: Epochs, reached: Mapping[str, int | None]) -> Iterator[str]:
    """Yield what shows that segments before `first`, or after `end`, are missing. `reached`: file → offset in it.

    Kafka shortens the leader epochs with their log (LeaderEpochFileCache.truncateFromStart, truncateFromEnd). An epoch
    without a record begins at the end of the log.
    """
    again = "so segments are missing: copy the log again, while the broker is stopped."
    if epochs and epochs[0][1] < first:
        yield f"The first segment begins at offset {first}, and {LEADER_EPOCHS} at {epochs[0][1]}, {again}"
    beyond = {LEADER_EPOCHS: epochs[-1][1] if epochs else None, **reached}
    if later := {name: offset for name, offset in beyond.items() if offset is not None and offset > end}:
        told = " and ".join(f"{offset} by {name}" for name, offset in later.items())
        yield f"The segments end at offset {end}, and the log reached offset {told}, {again}"


def _without_zeros(segments: tuple[Segment, ...], last: BatchHeader | None) -> tuple[tuple[Segment, ...], list[str]]:
    """Return the segments without zero bytes at the end of the newest one, which log.preallocate=true leaves."""
    newest = segments[-1]
    data_end = 0 if last is None else last.position + last.size
    if data_end == newest.size:
        return segments, []
    with open_segment(newest) as descriptor:
        position = data_end
        while position < newest.size:
            block = os.pread(descriptor, min(_BLOCK_BYTES, newest.size - position), position)
            if not block or block.count(0) < len(block):
                return segments, []
            position += len(block)
    note = f"{newest.size - data_end} zero bytes at the end of the newest segment were allocated in advance."
    return (*segments[:-1], replace(newest, size=data_end)), [note]


def _segments(folder: Path) -> tuple[Segment, ...]:
    """Return the segments. A running broker can rename a file after the folder was listed; then list it once more."""
    for attempt in (1, 2):
        with reading(folder):
            listed = os.listdir(folder)
        try:
            return tuple(_segment(folder / name) for name in segment_names(listed, partial(_end_of, folder)))
        except SegmentGoneError:
            if attempt == 2:
                raise
    raise AssertionError("the second attempt returns or raises")


def _end_of(folder: Path, name: str) -> int:
    segment = _segment(folder / name)
    last = _last_batch(segment)
    return segment.base_offset if last is None else last.last_offset + 1


def _segment(path: Path) -> Segment:
    with reading(path):
        try:
            # The file is opened, so that a file without read permission is reported before the scan starts.
            with os.fdopen(open_regular(path), "rb") as file:
                found = os.fstat(file.fileno())
        except FileNotFoundError:
            raise SegmentGoneError(f"Segment {path} does not exist any more.", remedy="Scan again.") from None
    if parse_number(path.name[:OFFSET_DIGITS]) is None:
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


def _recorded(checkpoint: Path, topic: str, partition: int) -> int | None:
    """Return the partition's offset from a checkpoint file of the broker; None if it is not in the file."""
    return parse_offsets(_text_of(checkpoint), checkpoint).get((topic, partition))


def _text_of(checkpoint: Path) -> str:
    """Return the content of a checkpoint file of Kafka; empty without the file."""
    with reading(checkpoint):
        try:
            return read_regular(checkpoint).decode(errors="replace")
        except FileNotFoundError:
            return ""


# --- choosing among copies ---


def _choose(copies: Sequence[_Copy]) -> tuple[_Copy, str]:
    """Choose as a leader election does: the newest leader epoch, then the highest end offset, then the first copy."""
    chosen = max(copies, key=lambda copy: (copy.leader_epoch, copy.log.end))
    others = [copy for copy in copies if copy is not chosen]
    if not others:
        return chosen, "It is the only copy."
    if all(copy.leader_epoch < chosen.leader_epoch for copy in others):
        return chosen, f"Only this copy contains leader epoch {chosen.leader_epoch}, the newest."
    if all((copy.leader_epoch, copy.log.end) < (chosen.leader_epoch, chosen.log.end) for copy in others):
        return chosen, f"It is the longest copy with the newest leader epoch: it ends at offset {chosen.log.end}."
    return chosen, f"It is the first of the longest copies: they end at offset {chosen.log.end}."


def _describe_copy(copy: _Copy, chosen: bool, why: str) -> LogCopy:
    if not chosen:
        why = f"Its leader epoch is {copy.leader_epoch} and it ends at offset {copy.log.end}."
    return LogCopy(
        topic=copy.log.topic,
        partition=copy.log.partition,
        start=copy.log.start,
        end=copy.log.end,
        directory=str(copy.folder),
        log_bytes=sum(segment.size for segment in copy.segments),
        chosen=chosen,
        why=f"{why} {copy.note}".strip(),
    )


# --- segments ---


@contextmanager
def open_segment(segment: Segment) -> Iterator[int]:
    """Open the file that was found, also if the log cleaner has renamed it since then. Yields a file descriptor.

    Raises SegmentGoneError if the file no longer exists or was truncated.
    """
    with reading(segment.path):
        for path in (segment.path, *segment.later_paths):
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
        data = read_regular(segment.index)
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
