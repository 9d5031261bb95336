"""Reads one partition of a coordinator log in this process, with the same results as the compiled kernel.

A second reading of a partition finds groups with a record that a release refuses after the records before it
(formats.group_replay), and groups that were deleted while a transaction committed offsets for them (there too).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.coordinator_logs.reading.records import KindLayouts, layouts_of_kind, parse
from kafka_rollout.coordinator_logs.replicas import of_broker
from kafka_rollout.coordinator_logs.scan import BrokenRecords, Damage, DeletedWhilePending, LogSize, OutOfOrder
from kafka_rollout.formats.coordinator_records import VERSION_BYTES, ClassKey, KindCounts
from kafka_rollout.formats.documents.definitions import Schemas
from kafka_rollout.formats.group_replay import GroupReplay, PendingCommits, group_records, text_at
from kafka_rollout.formats.log_types import (
    Bytes,
    LogFormatError,
    LogRange,
    RecordKind,
    RecordSpan,
    ReplicaRange,
    UnreadableOffsetError,
)
from kafka_rollout.formats.messages import MessageFormatError
from kafka_rollout.releases.facts import Catalogue, CoordinatorLogFacts, Release

if TYPE_CHECKING:
    from kafka_rollout.client.fetch import FetchedBytes, FetchSource

_COMMITS = frozenset({0, 1})  # key versions of committed offsets


def replicas_of(log: LogRange) -> tuple[str, ...]:
    """Return the replica that is read, as in RecordKind.replicas."""
    return (of_broker(log.broker),) if isinstance(log, ReplicaRange) else ()


@dataclass(slots=True, kw_only=True)
class ParsingChecks:
    """The records of one partition that a release cannot parse although it knows their type and version."""

    log: LogRange
    schemas: Schemas
    releases: Sequence[Release]
    broken: dict[tuple[ClassKey, int], BrokenRecords] = field(default_factory=dict)
    kinds: dict[ClassKey, KindLayouts] = field(default_factory=dict)

    def found(self) -> tuple[BrokenRecords, ...]:
        return tuple(self.broken.values())

    def check(self, payload: bytes, record: RecordSpan, what: ClassKey) -> None:
        """Count a record that a release cannot parse."""
        kind = self.kinds.get(what)
        if kind is None:
            kind = self.kinds[what] = layouts_of_kind(self.schemas, self.releases, self.log.topic, *what)
        for number, (use, error) in enumerate(parse(kind, payload, record)):
            if not isinstance(error, MessageFormatError):
                continue
            key, value = what
            assert key is not None  # noqa: S101 - a key without a version has no layout
            found = BrokenRecords(
                topic=self.log.topic,
                partition=self.log.partition,
                key_version=key,
                value_version=value,
                part=use.part,
                releases=use.releases,
                count=0,
                first_offset=record.offset,
                reason=error.sentence,
                replicas=replicas_of(self.log),
            )
            known = self.broken.get((what, number), found)
            self.broken[what, number] = replace(known, count=known.count + 1)


@dataclass(slots=True, kw_only=True)
class PartitionReading:
    """The records of a range of offsets, counted by kind and checked."""

    log: LogRange
    parsing: ParsingChecks
    ordered: frozenset[int]
    """Key versions whose groups are collected in `groups`."""
    groups_only: bool = False
    """Committed offsets are counted and not parsed; for each other key, `newest` gets the newest record (key → offset,
    value)."""
    counts: KindCounts = field(default_factory=KindCounts)
    commits: PendingCommits = field(default_factory=PendingCommits)
    groups: set[bytes] = field(default_factory=set)
    damage: list[Damage] = field(default_factory=list)
    newest: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)

    @property
    def copy(self) -> int:
        """As in ReplicaRange; 0 is the leader's."""
        return self.log.copy if isinstance(self.log, ReplicaRange) else 0

    def read(self, source: FetchSource) -> Iterator[int]:
        """Read the range; yield the number of records of each fetch. What cannot be read is added to `damage`."""
        before = 0
        try:
            for fetched in source.read(self.log):
                self.add(fetched)
                now = self.counts.counts.total()
                yield now - before
                before = now
        except UnreadableOffsetError as error:
            self._note_damage(error.offset, self.log.end, error)

    def add(self, fetched: FetchedBytes) -> None:
        """Count the records of the range in what was fetched, each after those before it."""
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
                replica="".join(replicas_of(log)),
            )
        )

    def kinds(self) -> list[tuple[RecordKind, int]]:
        """Each kind with the base offset of the last batch that contains it."""
        return [
            (
                replace(kind, replicas=replicas_of(self.log)),
                self.counts.last_batches[kind.key_version, kind.value_version],
            )
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


Bounded = tuple[Bytes, int, int]  # (whole batches, start, end): records with start <= offset < end count


def has_affected_release(catalogue: Catalogue, releases: Iterable[Release]) -> bool:
    """Return whether one of these releases fails at such groups."""
    logs = (catalogue.get(release).coordinator_logs.get(GROUPS_TOPIC) for release in releases)
    return any(log is not None and bool(log.deleted_while_pending) for log in logs)


def deleted_while_pending(
    partition: int, groups: Iterable[bytes], log: Iterable[Bounded], replicas: tuple[str, ...] = ()
) -> tuple[DeletedWhilePending, ...]:
    """Return which of the groups were deleted while a transaction committed offsets for them.

    `log`: the partition of __consumer_offsets from its start. `replicas`: the replica that is read.
    """
    commits = PendingCommits(groups=frozenset(groups))
    for data, start, end in log:
        commits.add(data, start=start, end=end)
    return tuple(
        sorted(
            DeletedWhilePending(
                topic=GROUPS_TOPIC,
                partition=partition,
                offset=offset,
                group=group.decode("utf-8", "replace"),
                producers=producers,
                replicas=replicas,
            )
            for group, (offset, producers) in commits.refused().items()
        )
    )


def read_log(source: FetchSource, log: LogRange) -> Iterator[Bounded]:
    """Read the range up to an offset that cannot be read. The first reading reports the damage."""
    with suppress(UnreadableOffsetError):
        for fetched in source.read(log):
            yield fetched.data, max(log.start, fetched.fetch_offset), log.end


CoordinatorFacts = Mapping[Release, CoordinatorLogFacts]


def facts_of_order(catalogue: Catalogue, releases: Iterable[Release]) -> CoordinatorFacts:
    """Return the facts of the releases that check the order of groups' records."""
    logs = {release: catalogue.get(release).coordinator_logs.get(GROUPS_TOPIC) for release in releases}
    return {release: log for release, log in logs.items() if log is not None and log.group_families}


def ordered_types(facts: CoordinatorFacts, *, cleaned: bool = False) -> frozenset[int]:
    """Return the key versions of the records that these releases compare with earlier records.

    `cleaned`: only those that can be in an order at which a release stops, because of the log cleaner. For other types
    this cannot happen: no coordinator writes them in such an order.
    """
    roles = (role for log in facts.values() for role in log.group_roles.items())
    return frozenset(version for version, (family, _) in roles if not (cleaned and family.takes_over_offsets))


def out_of_order(
    partition: int,
    groups: Collection[bytes],
    log: Iterable[Bounded],
    facts: CoordinatorFacts,
    replicas: tuple[str, ...] = (),
) -> tuple[OutOfOrder, ...]:
    """Return the groups with such a record. `log`, `replicas`: as for deleted_while_pending."""
    replays = {release: GroupReplay(rules) for release, rules in facts.items()}
    for data, start, end in log:
        for record in group_records(data, groups=groups, start=start, end=end):
            for replay in replays.values():
                replay.add(record)
    refusing: dict[OutOfOrder, list[Release]] = {}
    for release, replay in replays.items():
        for group, refused in replay.refused.items():
            value = refused.record.value
            found = OutOfOrder(
                topic=GROUPS_TOPIC,
                partition=partition,
                offset=refused.record.offset,
                group=group.decode("utf-8", "replace"),
                key_version=refused.record.key_version,
                value_version=None if value is None else int.from_bytes(value[:VERSION_BYTES], "big", signed=True),
                releases=(),
                complaint=refused.complaint,
                replicas=replicas,
            )
            refusing.setdefault(found, []).append(release)
    return tuple(sorted(replace(found, releases=tuple(sorted(releases))) for found, releases in refusing.items()))
