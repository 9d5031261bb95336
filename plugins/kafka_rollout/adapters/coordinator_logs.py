"""The coordinator logs of a live cluster, read on from where a scan ended (port CoordinatorLogs).

A short tail is decoded in this process, by the same definitions as Spark's workers decode: it takes less time than
Spark needs to start. A long one is left to Spark, which then scans everything anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_rollout.adapters import scan_submit
from kafka_rollout.adapters.codecs import CODECS
from kafka_rollout.adapters.fetch_source import FetchSource
from kafka_rollout.adapters.group_records import LONGEST, read_group_records, records_of_scan
from kafka_rollout.adapters.schemas import Schemas, load_schemas
from kafka_rollout.adapters.security import ClientSecurity
from kafka_rollout.adapters.settings import Settings
from kafka_rollout.domain.errors import RefusedError, RolloutError
from kafka_rollout.domain.group_records import OFFSETS_TOPIC, GroupRecords
from kafka_rollout.domain.releases import Catalogue, Release
from kafka_rollout.domain.scan import BrokenRecords, LogRange, LogSize, RecordClass, ScanResult
from kafka_rollout.domain.scan_judging import unknown_ends
from kafka_rollout.domain.scan_tail import carry_on, releases_of, tail_of
from kafka_rollout.domain.topology import ClusterSpec
from kafka_rollout.wire.coordinator_records import ClassCounts, ClassKey
from kafka_rollout.wire.layouts import Layout
from kafka_rollout.wire.messages import MessageFormatError, decode
from kafka_rollout.wire.record_batch import RecordSpan

log = logging.getLogger(__name__)

SHORT = 200_000  # offsets: about five seconds here, half of what Spark needs to start
_VERSION_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCoordinatorLogs:
    cluster: ClusterSpec
    catalogue: Catalogue
    settings: Settings
    security: ClientSecurity | None = None
    short: int = SHORT
    longest: int = LONGEST

    def scan_on(self, before: ScanResult, *, anew: bool = False) -> ScanResult:
        with FetchSource(self.cluster.bootstrap_servers, self._client()) as source:
            tail = None if anew else self._tail(source, before)
            if tail is None:
                before = self._scan_anew(before)
                # What came meanwhile is read here, however long it is: the next one would be as long.
                tail = tail_of(before.logs, self._ranges(source)) or ()
            return carry_on(self.catalogue, before, self._read(source, before, tail))

    def group_records(self, *, by_spark: bool = False) -> GroupRecords:
        # Spark starts in the time in which `short` records are read here twice.
        longest = min(self.longest, 2 * self.short) if by_spark else self.longest
        try:
            with FetchSource(self.cluster.bootstrap_servers, self._client()) as source:
                return read_group_records(source, load_schemas(self.settings.include), longest=longest)
        except RefusedError as error:
            if not by_spark:
                raise
            log.info("%s Spark reads it.", error.sentence)
        _, result = scan_submit.scan_command(
            self.cluster,
            self.settings,
            security=self.security,
            topics=(OFFSETS_TOPIC,),
            on_progress=lambda line: log.info("scan: %s", line),
        )
        return records_of_scan(result)

    def _tail(self, source: FetchSource, before: ScanResult) -> tuple[LogRange, ...] | None:
        """None for Spark: it is long, or the logs are no longer those that were scanned."""
        tail = tail_of(before.logs, self._ranges(source))
        return None if tail is None or sum(log.end - log.start for log in tail) > self.short else tail

    def _ranges(self, source: FetchSource) -> tuple[LogRange, ...]:
        return source.ranges(
            sorted({topic for release in self.catalogue for topic in self.catalogue.get(release).coordinator_logs})
        )

    def _client(self) -> Mapping[str, Any]:
        return self.security.kafka_python() if self.security else {}

    def _scan_anew(self, before: ScanResult) -> ScanResult:
        _, result = scan_submit.scan_command(
            self.cluster, self.settings, security=self.security, releases=releases_of(self.catalogue, before)
        )
        return result

    def _read(self, source: FetchSource, before: ScanResult, tail: Sequence[LogRange]) -> ScanResult:
        schemas, releases = load_schemas(self.settings.include), releases_of(self.catalogue, before)
        read = [_Reading(log=log, schemas=schemas, releases=releases) for log in tail]
        for reading in read:
            reading.go_through(source)
        classes = [found for reading in read for found in reading.classes()]
        broken = [found for reading in read for found in reading.broken.values()]
        return replace(
            before,
            scanned_at=time.time(),
            logs=tuple(tail),
            classes=tuple(record_class for record_class, _ in classes),
            sizes=tuple(reading.size() for reading in read),
            broken=(*broken, *unknown_ends(self.catalogue, classes, releases)),
            tagged=(),
            owners=(),
            owners_left_out=0,
            damage=(),
        )


@dataclass(frozen=True, slots=True)
class _Use:
    """A layout of a part of a record, and the releases that read by it."""

    part: str
    layout: Layout
    releases: list[Release]


@dataclass(slots=True, kw_only=True)
class _Reading:
    """One partition's tail."""

    log: LogRange
    schemas: Schemas
    releases: Sequence[Release]
    counts: ClassCounts = field(default_factory=ClassCounts)
    broken: dict[tuple[ClassKey, str, int], BrokenRecords] = field(default_factory=dict)
    uses: dict[ClassKey, list[_Use]] = field(default_factory=dict)

    def go_through(self, source: FetchSource) -> None:
        for fetched in source.read(self.log):
            start = max(self.log.start, fetched.fetch_offset)
            try:
                self.counts.add(fetched.data, CODECS, start=start, end=self.log.end, on_record=self._look_into)
            except RolloutError as error:
                where = f"{self.log.topic}-{self.log.partition}"
                raise type(error)(f"{where}: {error.sentence}", remedy=error.remedy) from error

    def classes(self) -> list[tuple[RecordClass, int]]:
        """With each the base offset of the last batch that holds such a record."""
        return [
            (each, self.counts.last_batches[each.key_version, each.value_version])
            for each in self.counts.classes(self.log.topic, self.log.partition)
        ]

    def size(self) -> LogSize:
        return LogSize(
            topic=self.log.topic,
            partition=self.log.partition,
            records=sum(self.counts.counts.values()),
            batches=self.counts.batches,
            control_batches=self.counts.control_batches,
            log_bytes=self.counts.log_bytes,
            first_timestamp=-1,
            last_timestamp=-1,
        )

    def _look_into(self, payload: bytes, record: RecordSpan, what: ClassKey) -> None:
        """Note a record that does not parse by a layout that some release has of it."""
        uses = self.uses.get(what)
        if uses is None:
            uses = self.uses[what] = self._uses_of(*what)
        for number, use in enumerate(uses):
            at, length = (
                (record.key_at, record.key_length) if use.part == "key" else (record.value_at, record.value_length)
            )
            try:
                decode(use.layout, payload[at : at + length], _VERSION_BYTES)
            except MessageFormatError as error:
                self._note(what, number, use, record.offset, error.sentence)

    def _note(self, what: ClassKey, number: int, use: _Use, offset: int, reason: str) -> None:
        known = self.broken.get((what, use.part, number))
        key, value = what
        assert key is not None  # noqa: S101 - a key without a version has no layout
        self.broken[what, use.part, number] = (
            replace(known, count=known.count + 1)
            if known
            else BrokenRecords(
                topic=self.log.topic,
                partition=self.log.partition,
                key_version=key,
                value_version=value,
                part=use.part,
                releases=tuple(use.releases),
                count=1,
                first_offset=offset,
                reason=reason,
            )
        )

    def _uses_of(self, key: int | None, value: int | None) -> list[_Use]:
        uses: list[_Use] = []
        for release in self.releases:
            known = self.schemas.layouts(release, self.log.topic, key) if key is not None else None
            if known is None:
                continue
            parts = {"key": known.key}
            if value is not None and value in known.value.valid_versions:
                parts["value"] = known.value.layout(value)
            for part, layout in parts.items():
                same = next((use for use in uses if (use.part, use.layout) == (part, layout)), None)
                if same is None:
                    uses.append(_Use(part, layout, [release]))
                else:
                    same.releases.append(release)
        return uses
