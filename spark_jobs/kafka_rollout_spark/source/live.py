"""A Spark data source over live coordinator logs: `spark.read.format("coordinator_logs_live")`.

Options beside LogSource's, whose shares are of LogRanges: `bootstrap.servers`; `security.file`, the path of a file
that driver and workers can read (never its content: options are part of query plans).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from kafka_rollout.adapters.kafka.fetch import FetchSource
from kafka_rollout.adapters.kafka.security import ClientSecurity
from kafka_rollout.domain.coordinator_logs.scan import LogRange
from kafka_rollout_spark.decode.chunks import Chunk
from kafka_rollout_spark.source.splits import SPEC, LogReader, LogSource, from_option

FORMAT = "coordinator_logs_live"
OFFSETS_PER_RANGE = 2_000_000  # long partitions are cut here, so that several workers can share one


def security_of(security_file: str | None) -> ClientSecurity | None:
    return ClientSecurity.from_file(Path(security_file)) if security_file else None


def cut(ranges: Sequence[LogRange], most: int = OFFSETS_PER_RANGE) -> tuple[LogRange, ...]:
    """The same offsets in pieces of at most `most` offsets."""
    return tuple(
        LogRange(topic=r.topic, partition=r.partition, start=start, end=min(start + most, r.end))
        for r in ranges
        for start in range(r.start, r.end, most)
    )


def fetched_chunks(source: FetchSource, ranges: Sequence[LogRange]) -> Iterator[Chunk]:
    for log in ranges:
        for fetched in source.read(log):
            start = max(log.start, fetched.fetch_offset)
            data = memoryview(fetched.data)
            yield Chunk(topic=log.topic, partition=log.partition, data=data, start=start, end=log.end)


class LiveLogs(LogSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options)


class _Reader(LogReader):
    def rows(self, pieces: Sequence[LogRange]) -> Iterator[pa.RecordBatch]:
        from kafka_rollout_spark.decode.decoding import worker_rows  # as in every source: see sharing.LogReader

        security = security_of(self.options.get("security.file"))
        with FetchSource(self.options["bootstrap.servers"], security) as source:
            yield from worker_rows(fetched_chunks(source, pieces), from_option(self.options[SPEC]))
