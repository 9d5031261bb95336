"""What the tasks read: ranges of logs, in splits of about the same size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from kafka_rollout.coordinator_logs.reading.directories import SegmentRange
from kafka_rollout.kafka.formats.log_types import LogRange
from kafka_rollout_spark.kernel.spec import DecodingSpec
from kafka_rollout_spark.rows import LogBytes

Range = LogRange | SegmentRange
Split = tuple[Range, ...]


class LogSource(Protocol):
    """Where a scan reads. It is pickled into the tasks, with credentials only if Spark protects them."""

    def read(self, ranges: Sequence[Range], damage: list[pa.RecordBatch]) -> Iterator[LogBytes]:
        """Whole batches of the ranges, in order. Unreadable parts become rows in `damage`."""


def size_of(part: Range) -> int:
    """Offsets of a log, bytes of a segment."""
    return part.end - (part.start if isinstance(part, LogRange) else part.begin)


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


def read_split(source: LogSource, spec: DecodingSpec, split: Split) -> Iterator[pa.RecordBatch]:
    """The rows (rows.py) of one task."""
    from kafka_rollout_spark.decode.log_reader import worker_rows  # the driver does not load numba

    damage: list[pa.RecordBatch] = []
    yield from worker_rows(source.read(split, damage), spec)
    yield from damage
