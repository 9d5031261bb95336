"""Reads the coordinator logs of a running cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from kafka_rollout.kafka.client.fetch import FetchSource
from kafka_rollout.kafka.client.security.carried_security import CarriedSecurity
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.kafka.formats.log_types import LogRange, UnreadableOffsetError
from kafka_rollout_spark.rows import LogBytes, damage_row
from kafka_rollout_spark.source.splits import Range

_OFFSETS_PER_RANGE = 2_000_000  # several workers can read one long partition


@dataclass(frozen=True, slots=True)
class LiveLogs:
    """`security`: a file that the driver and local workers can read, or what executors on other hosts get."""

    bootstrap_servers: str
    security: Path | CarriedSecurity | None = None

    def connect(self) -> FetchSource:
        match self.security:
            case CarriedSecurity() as carried:
                return FetchSource(self.bootstrap_servers, carried.unpack())
            case Path() as file:
                return FetchSource(self.bootstrap_servers, ClientSecurity.from_file(file))
        return FetchSource(self.bootstrap_servers)

    def read(self, ranges: Sequence[Range], damage: list[pa.RecordBatch]) -> Iterator[LogBytes]:
        """As in LogSource. The rest of a range after bytes that cannot begin a batch is not read."""
        with self.connect() as source:
            for log in ranges:
                assert isinstance(log, LogRange)  # noqa: S101 - what cut_logs made
                try:
                    for fetched in source.read(log):
                        yield LogBytes(
                            topic=log.topic,
                            partition=log.partition,
                            data=memoryview(fetched.data),
                            start=max(log.start, fetched.fetch_offset),
                            end=min(log.end, fetched.end),
                        )
                except UnreadableOffsetError as error:
                    where = log.topic, log.partition
                    damage.append(damage_row(*where, error.sentence, error.offset, last=log.end - 1))


def cut_logs(logs: Sequence[LogRange], most: int = _OFFSETS_PER_RANGE) -> tuple[LogRange, ...]:
    """The same offsets in ranges of at most `most` offsets."""
    return tuple(
        LogRange(topic=log.topic, partition=log.partition, start=start, end=min(start + most, log.end))
        for log in logs
        for start in range(log.start, log.end, most)
    )
