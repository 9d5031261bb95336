"""Reads one partition of a coordinator log in this process, with the same results as the compiled kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_rollout.adapters.codecs import CODECS
from kafka_rollout.adapters.coordinator_logs.parsing import ParsingChecks
from kafka_rollout.adapters.kafka.fetch import FetchSource
from kafka_rollout.domain.coordinator_logs.scan import OFFSETS_TOPIC, LogRange, LogSize, RecordKind
from kafka_rollout.domain.model.errors import RolloutError
from kafka_rollout.wire.coordinator_records import VERSION_BYTES, ClassKey, KindCounts
from kafka_rollout.wire.log_types import RecordSpan
from kafka_rollout.wire.pending_commits import PendingCommits, text_at

_COMMITS = frozenset({0, 1})  # key versions of committed offsets


@dataclass(slots=True, kw_only=True)
class PartitionReading:
    """The records of a range of offsets, counted by kind and checked.

    `groups_only`: committed offsets are counted and not parsed; for each other key, `newest` gets the newest record
    (key → offset, value). `ordered`: key versions whose groups are collected in `groups`.
    """

    log: LogRange
    parsing: ParsingChecks
    ordered: frozenset[int]
    groups_only: bool = False
    counts: KindCounts = field(default_factory=KindCounts)
    commits: PendingCommits = field(default_factory=PendingCommits)
    groups: set[bytes] = field(default_factory=set)
    newest: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)

    def read(self, source: FetchSource) -> Iterator[int]:
        """Read the range; yield the number of records of each fetch. Errors name the partition."""
        of_groups = self.log.topic == OFFSETS_TOPIC
        before = 0
        for fetched in source.read(self.log):
            try:
                self.counts.add(
                    fetched.data,
                    CODECS,
                    start=max(self.log.start, fetched.fetch_offset),
                    end=self.log.end,
                    on_record=self._check if of_groups else self.parsing.check,
                    on_batch=self.commits.begin if of_groups else None,
                )
            except RolloutError as error:
                where = f"{self.log.topic}-{self.log.partition}"
                raise type(error)(f"{where}: {error.sentence}", remedy=error.remedy) from error
            now = self.counts.counts.total()
            yield now - before
            before = now

    def kinds(self) -> list[tuple[RecordKind, int]]:
        """Each kind with the base offset of the last batch that contains it."""
        return [
            (kind, self.counts.last_batches[kind.key_version, kind.value_version])
            for kind in self.counts.classes(self.log.topic, self.log.partition)
        ]

    def size(self) -> LogSize:
        return LogSize(
            topic=self.log.topic,
            partition=self.log.partition,
            records=self.counts.counts.total(),
            batches=self.counts.batches,
            control_batches=self.counts.control_batches,
            log_bytes=self.counts.log_bytes,
            first_timestamp=-1,
            last_timestamp=-1,
        )

    def _check(self, payload: bytes, record: RecordSpan, what: ClassKey) -> None:
        self.commits.add_record(payload, record, what)
        if self.groups_only:
            if what[0] is None or what[0] in _COMMITS:
                return
            value_end = record.value_at + record.value_length
            value = payload[record.value_at : value_end] if record.value_length >= 0 else None
            self.newest[payload[record.key_at : record.key_at + record.key_length]] = (record.offset, value)
        self.parsing.check(payload, record, what)
        if what[0] in self.ordered:
            group, _ = text_at(payload[record.key_at : record.key_at + record.key_length], VERSION_BYTES)
            if group is not None:
                self.groups.add(group)
