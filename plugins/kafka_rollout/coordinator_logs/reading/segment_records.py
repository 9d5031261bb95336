"""Reads one partition of a coordinator log in this process, with the same results as the compiled kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.coordinator_logs.scan import BrokenRecords, Damage, LogSize
from kafka_rollout.kafka.client.fetch import FetchedBytes, FetchSource
from kafka_rollout.kafka.documents.definitions import Schemas
from kafka_rollout.kafka.formats.coordinator_records import VERSION_BYTES, ClassKey, KindCounts, decode_checked
from kafka_rollout.kafka.formats.group_replay import PendingCommits, text_at
from kafka_rollout.kafka.formats.layouts import Layout
from kafka_rollout.kafka.formats.log_types import (
    LogFormatError,
    LogRange,
    RecordKind,
    RecordSpan,
    UnreadableOffsetError,
)
from kafka_rollout.kafka.formats.messages import MessageFormatError
from kafka_rollout.releases.facts import Release

_COMMITS = frozenset({0, 1})  # key versions of committed offsets


@dataclass(frozen=True, slots=True)
class _Use:
    """A layout of a key or value, and the releases that use it."""

    part: str
    layout: Layout
    releases: list[Release]


@dataclass(slots=True, kw_only=True)
class ParsingChecks:
    """The records of one partition that a release cannot parse although it knows their type and version."""

    log: LogRange
    schemas: Schemas
    releases: Sequence[Release]
    broken: dict[tuple[ClassKey, str, int], BrokenRecords] = field(default_factory=dict)
    uses: dict[ClassKey, list[_Use]] = field(default_factory=dict)

    def found(self) -> tuple[BrokenRecords, ...]:
        return tuple(self.broken.values())

    def check(self, payload: bytes, record: RecordSpan, what: ClassKey) -> None:
        """Count a record that a release cannot parse."""
        uses = self.uses.get(what)
        if uses is None:
            uses = self.uses[what] = self._uses_of(*what)
        for number, use in enumerate(uses):
            at, length = (
                (record.key_at, record.key_length) if use.part == "key" else (record.value_at, record.value_length)
            )
            try:
                decode_checked(use.layout, payload[at : at + length], VERSION_BYTES)
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
                parts["value"] = known.value_layout(value)
            for part, layout in parts.items():
                same = next((use for use in uses if (use.part, use.layout) == (part, layout)), None)
                if same is None:
                    uses.append(_Use(part, layout, [release]))
                else:
                    same.releases.append(release)
        return uses


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
    damage: list[Damage] = field(default_factory=list)
    newest: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)

    def read(self, source: FetchSource) -> Iterator[int]:
        """Read the range; yield the number of records of each fetch. What cannot be read is added to `damage`."""
        before = 0
        try:
            for fetched in source.read(self.log):
                self._add(fetched)
                now = self.counts.counts.total()
                yield now - before
                before = now
        except UnreadableOffsetError as error:
            self._note_damage(error.offset, self.log.end, error)

    def _add(self, fetched: FetchedBytes) -> None:
        of_groups = self.log.topic == GROUPS_TOPIC
        try:
            self.counts.add(
                fetched.data,
                start=max(self.log.start, fetched.fetch_offset),
                end=self.log.end,
                on_record=self._check if of_groups else self.parsing.check,
                on_batch=self.commits.begin if of_groups else None,
                on_damage=lambda batch, error: self._note_damage(batch.base_offset, batch.last_offset + 1, error),
            )
        except LogFormatError as error:  # the next fetch begins after these bytes
            self._note_damage(fetched.fetch_offset, fetched.end, error)

    def _note_damage(self, start: int, end: int, error: LogFormatError) -> None:
        """Add the offsets `start` to `end` − 1, as far as the range has them: a damaged header can name others."""
        log = self.log
        first = min(max(log.start, start), log.end - 1)
        self.damage.append(
            Damage(
                topic=log.topic,
                partition=log.partition,
                file="",
                position=first,
                log_bytes=0,
                sentence=error.sentence,
                offsets=max(1, min(end, log.end) - first),
            )
        )

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
