"""What a scan reads: the logs of a running cluster, or those in log directories, in splits of about the same size.

The paths of segment files must be readable where the tasks run.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from kafka_rollout.base.errors import UserError
from kafka_rollout.client.security.carried_security import CarriedSecurity
from kafka_rollout.client.security.credentials import read_security_file
from kafka_rollout.coordinator_logs.reading.directories import (
    SegmentGoneError,
    SegmentRange,
    boundary,
    find_logs,
    index_positions,
    open_segment,
)
from kafka_rollout.coordinator_logs.reading.partitions import Bounded
from kafka_rollout.coordinator_logs.replicas import logs_of_leaders, of_broker, unread_replica
from kafka_rollout.coordinator_logs.scan import Damage, LogCopy
from kafka_rollout.formats.cleaning import CleaningConfig
from kafka_rollout.formats.log_types import LogRange, ReplicaRange, UnreadableOffsetError
from kafka_rollout.formats.record_batch import BatchHeader, header_at
from kafka_rollout_spark.kernel.programs import DecodingSpec
from kafka_rollout_spark.rows import LogBytes, ReplicaId, damage_row

if TYPE_CHECKING:
    from kafka_rollout.client.fetch import FetchSource

Range = ReplicaRange | SegmentRange
Split = tuple[Range, ...]


def size_of(part: Range) -> int:
    """Offsets of a log, bytes of a segment."""
    return part.end - (part.start if isinstance(part, ReplicaRange) else part.begin)


def _log_of(part: Range) -> ReplicaRange:
    return part if isinstance(part, ReplicaRange) else part.log


def plan_splits(ranges: Sequence[Range], count: int) -> tuple[Split, ...]:
    """At most `count` splits of about the same size. The order stays, so that few tasks read the same log."""
    total = sum(size_of(part) + 1 for part in ranges)
    splits: list[list[Range]] = [[] for _ in range(count)]
    before = 0
    for part in ranges:
        weight = size_of(part) + 1
        splits[(2 * before + weight) * count // (2 * total)].append(part)  # by its middle
        before += weight
    return tuple(tuple(split) for split in splits if split)


class LogSource(Protocol):
    """Where a scan reads. It is pickled into the tasks, with credentials only if Spark protects them."""

    def read(self, ranges: Sequence[Range], damage: list[pa.RecordBatch]) -> Iterator[LogBytes]:
        """Whole batches of the ranges, in order. Unreadable parts become rows in `damage`."""


def read_split(source: LogSource, spec: DecodingSpec, split: Split) -> Iterator[pa.RecordBatch]:
    """The rows (rows.py) of one task."""
    from kafka_rollout_spark.decode import worker_rows  # the driver does not load numba

    damage: list[pa.RecordBatch] = []
    yield from worker_rows(source.read(split, damage), spec)
    yield from damage


_BUFFER_BYTES = 2 * 1024 * 1024  # fits the processor's cache: with four times as much, a scan takes 10 % longer


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """All bytes share one buffer of at least `buffer_bytes`."""

    buffer_bytes: int = _BUFFER_BYTES

    def read(self, ranges: Sequence[Range], damage: list[pa.RecordBatch]) -> Iterator[LogBytes]:
        """Whole batches of the ranges, in order. Unreadable parts become rows in `damage`.

        After damage, reading continues at the next indexed position where a batch begins.
        """
        from kafka_rollout_spark.decode import whole_batches  # the driver does not load numba

        buffer = bytearray(self.buffer_bytes)
        for part in ranges:
            assert isinstance(part, SegmentRange)  # noqa: S101 - what DirectoryLogs cut
            log, path = part.log, str(part.segment.path)
            place = log.topic, log.partition, log.copy
            with open_segment(part.segment) as descriptor:
                position = part.begin
                while position < part.end:
                    read = _fill(descriptor, buffer, position, part)
                    if whole := whole_batches(read):
                        yield LogBytes(
                            topic=log.topic,
                            partition=log.partition,
                            copy=log.copy,
                            data=read[:whole],
                            start=log.start,
                            end=log.end,
                            file=path,
                            position=position,
                        )
                        position += whole
                        continue
                    header = header_at(read, 0, position)
                    if header is not None and len(read) < header.size <= part.end - position:
                        buffer = bytearray(header.size)
                        continue
                    following = boundary(descriptor, part.segment, index_positions(part.segment), position)
                    until = min(following or part.end, part.end)
                    sentence = _describe_damage(descriptor, part, header, position, until)
                    size = until - position
                    damage.append(damage_row(place, sentence, position, file=path, log_bytes=size))
                    position = until


def _fill(descriptor: int, buffer: bytearray, position: int, part: SegmentRange) -> memoryview:
    """As much of the range as the buffer can hold."""
    view = memoryview(buffer)[: part.end - position]
    if os.preadv(descriptor, [view], position) < len(view):
        raise SegmentGoneError(f"Segment {part.segment.path} was truncated during the scan.", remedy="Scan again.")
    return view


def _describe_damage(descriptor: int, part: SegmentRange, header: BatchHeader | None, position: int, until: int) -> str:
    if _only_zeros(descriptor, position, until):
        return "Only zero bytes follow, as in a file that was allocated before it was written."
    if until < part.segment.size:
        return f"No record batch begins here; the next one begins at byte {until}."
    if header is not None:
        present = f"the file has {until - position} of its {header.size} bytes"
        return f"The batch at offset {header.base_offset} is cut off: {present}."
    return "No record batch begins here, and nothing after it in this segment could be read."


def _only_zeros(descriptor: int, position: int, until: int) -> bool:
    while position < until:
        block = os.pread(descriptor, min(_BUFFER_BYTES, until - position), position)
        if block.count(0) < len(block) or not block:
            return False
        position += len(block)
    return True


_OFFSETS_PER_RANGE = 2_000_000  # several workers can read one long partition


@dataclass(frozen=True, slots=True)
class LiveLogs:
    bootstrap_servers: str
    security: Path | CarriedSecurity | None = None
    """A file that the driver and local workers can read, or what executors on other hosts get."""

    def connect(self) -> FetchSource:
        from kafka_rollout.client.fetch import FetchSource

        match self.security:
            case CarriedSecurity() as carried:
                return FetchSource(self.bootstrap_servers, carried.unpack())
            case Path() as file:
                return FetchSource(self.bootstrap_servers, read_security_file(file))
        return FetchSource(self.bootstrap_servers)

    def read(self, ranges: Sequence[Range], damage: list[pa.RecordBatch]) -> Iterator[LogBytes]:
        """As SegmentFiles does. The rest of a range after bytes that cannot begin a batch is not read."""
        with self.connect() as source:
            for log in ranges:
                assert isinstance(log, ReplicaRange)  # noqa: S101 - what cut_logs made
                try:
                    for fetched in source.read(log):
                        yield LogBytes(
                            topic=log.topic,
                            partition=log.partition,
                            copy=log.copy,
                            data=memoryview(fetched.data),
                            start=max(log.start, fetched.fetch_offset),
                            end=min(log.end, fetched.end),
                        )
                except UnreadableOffsetError as error:
                    where = log.topic, log.partition, log.copy
                    damage.append(damage_row(where, error.sentence, error.offset, last=log.end - 1))


def cut_logs(logs: Sequence[ReplicaRange], most: int = _OFFSETS_PER_RANGE) -> tuple[ReplicaRange, ...]:
    """The same offsets in ranges of at most `most` offsets."""
    return tuple(
        replace(log, start=start, end=min(start + most, log.end))
        for log in logs
        for start in range(log.start, log.end, most)
    )


_NOT_PERMITTED = (
    "this user may not read the brokers' settings, so 3.8 and 3.9 are unknown; --new-group-coordinator or "
    "--classic-group-coordinator says which one they start"
)
_BYTES_PER_OFFSET = 100  # estimate: a committed offset in a batch with a few others
_RANGE_BYTES = 64 * 1024 * 1024
_SPLITS_PER_CORE = 4  # a core that finishes early takes another split
_SPLIT_SIZE = {"bytes": 512 * 1024 * 1024, "offsets": 8_000_000}  # of large logs, so that progress is visible
_REMOTE_SPLIT_SIZE = {"bytes": 128 * 1024 * 1024, "offsets": 2_000_000}  # enough for many executors, and to begin again
_SMALL_BYTES = 8 * 1024 * 1024  # its rows fit the driver, even if every record has a group of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsToRead:
    cluster: str
    replicas: tuple[ReplicaRange, ...]
    """Each replica once."""
    names: Mapping[ReplicaId, str]
    """Replica → its name in RecordKind.replicas."""
    ranges: tuple[Range, ...]
    """What to read of the `replicas`; their sizes count `unit`, bytes of files or offsets."""
    source: LogSource
    unit: str
    log_bytes: int
    """The size or an estimate."""
    copies: tuple[LogCopy, ...] = ()
    damage: tuple[Damage, ...] = ()
    """What is missing in the directories, and replicas that no broker returned."""
    cleaning: Mapping[str, CleaningConfig] = field(default_factory=dict)
    new_group_coordinator: bool | None = False
    """As in ScanResult."""
    note: str = ""
    """A sentence for the operator."""

    @property
    def logs(self) -> tuple[LogRange, ...]:
        """The range of each partition, as its leader or the chosen copy has it."""
        return logs_of_leaders(self.replicas)

    def of(self, copy: int) -> LogsToRead:
        """Return this replica of each partition that has so many."""
        return replace(
            self,
            replicas=tuple(log for log in self.replicas if log.copy == copy),
            ranges=tuple(part for part in self.ranges if _log_of(part).copy == copy),
        )

    @property
    def size(self) -> int:
        return sum(map(size_of, self.ranges))

    @property
    def is_small(self) -> bool:
        """Whether the driver can merge all rows."""
        return self.log_bytes <= _SMALL_BYTES

    def with_security(self, security: Path | CarriedSecurity | None) -> LogsToRead:
        """Return the same logs for tasks that get these credentials. Segment files need none."""
        source = self.source
        return replace(self, source=replace(source, security=security)) if isinstance(source, LiveLogs) else self

    def splits(self, cores: int | None) -> tuple[Split, ...]:
        """The same number for every core: with one more, one core would work alone at the end.

        `cores` None: it is not known, because executors register after the start. Then the sizes alone decide.
        """
        if cores is None:
            return plan_splits(self.ranges, max(1, ceil(self.size / _REMOTE_SPLIT_SIZE[self.unit])))
        per_core = 1 if self.is_small else max(_SPLITS_PER_CORE, round(self.size / cores / _SPLIT_SIZE[self.unit]))
        return plan_splits(self.ranges, cores * per_core)

    def read(self, topic: str, partition: int, *, since: int = 0) -> Iterator[LogBytes]:
        """One partition, read in this process; at least the records from offset `since`. Call it on `of` a copy."""
        ranges = []
        for part in self.ranges:
            log = _log_of(part)
            if (log.topic, log.partition) == (topic, partition) and log.end > since:
                ranges.append(replace(part, start=max(part.start, since)) if isinstance(part, ReplicaRange) else part)
        return self.source.read(ranges, [])

    def replica(self, topic: str, partition: int) -> tuple[str, ...]:
        """Return the name of the only replica of a partition, as RecordKind.replicas. Call it on `of` a copy."""
        copies = [log.copy for log in self.replicas if (log.topic, log.partition) == (topic, partition)]
        return tuple(self.names[topic, partition, copy] for copy in copies)

    def read_whole(self, topic: str, partition: int) -> Iterator[Bounded]:
        for block in self.read(topic, partition):
            yield block.data, block.start, block.end


def live_logs(
    *,
    cluster: str,
    bootstrap_servers: str,
    security: Path | CarriedSecurity | None,
    topics: Sequence[str],
    known: Sequence[str],
) -> LogsToRead:
    """The current start and end of a cluster's logs. `topics` empty: every log of `known` that the cluster has.

    `security`: what the tasks get, as in LiveLogs.
    """
    live = LiveLogs(bootstrap_servers, security)
    with live.connect() as source:
        found = source.replicas(topics or known)
        logs = found.ranges
        cleaning = source.cleaning(sorted({log.topic for log in logs}))
        new_group_coordinator = source.starts_new_group_coordinator()
    if missing := sorted(set(topics) - {log.topic for log in logs}):
        raise UserError(
            f"Cluster {cluster} has no topic {', '.join(missing)}.",
            remedy="Omit --topic to scan the logs that exist.",
        )
    return LogsToRead(
        cluster=cluster,
        replicas=logs,
        names={(log.topic, log.partition, log.copy): of_broker(log.broker) for log in logs},
        ranges=cut_logs(logs),
        source=live,
        unit="offsets",
        log_bytes=_BYTES_PER_OFFSET * sum(map(size_of, logs)),
        damage=tuple(unread_replica(one.topic, one.partition, one.broker) for one in found.unread),
        cleaning=cleaning,
        new_group_coordinator=new_group_coordinator,
        note="" if new_group_coordinator is not None else _NOT_PERMITTED,
    )


def logs_in_directories(*, cluster: str, directories: Sequence[Path], topics: Collection[str]) -> LogsToRead:
    """The current content of the directories for these topics."""
    found = find_logs(directories, topics)
    return LogsToRead(
        cluster=cluster,
        replicas=found.ranges,
        names=found.names,
        ranges=found.cut(_RANGE_BYTES),
        source=SegmentFiles(),
        unit="bytes",
        log_bytes=found.log_bytes,
        copies=found.copies,
        damage=found.damage,
    )
