"""Reading what __consumer_offsets holds of groups: the newest record of each key, and the classes of all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka_rollout.adapters.codecs import CODECS
from kafka_rollout.adapters.coordinator_logs.deleted_groups import deleted_while_pending, pieces
from kafka_rollout.adapters.coordinator_logs.order import Facts, facts_of_order, out_of_order, strict_types
from kafka_rollout.adapters.coordinator_logs.parsing import ParsingChecks
from kafka_rollout.adapters.kafka.fetch import FetchSource
from kafka_rollout.adapters.releases.definitions import Schemas
from kafka_rollout.domain.coordinator_logs.cleaning import defaults_of
from kafka_rollout.domain.coordinator_logs.contents import GroupInventory, StateRecord
from kafka_rollout.domain.coordinator_logs.scan import (
    OFFSETS_TOPIC,
    DeletedWhilePending,
    LogRange,
    OutOfOrder,
    RecordKind,
    ScanResult,
)
from kafka_rollout.domain.coordinator_logs.verdicts import groups_out_of_order, unloadable_groups
from kafka_rollout.domain.groups.records import SERVED_BY, GroupRecords, alive_by_type
from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.releases import Catalogue
from kafka_rollout.wire.coordinator_records import VERSION_BYTES, ClassKey, KindCounts, RecordLayouts
from kafka_rollout.wire.messages import MessageFormatError, decode
from kafka_rollout.wire.pending_commits import PendingCommits, text_at
from kafka_rollout.wire.record_batch import RecordSpan

LONGEST = 1_000_000  # records: under a minute
_TOPIC = [OFFSETS_TOPIC]
_COMMITS = frozenset({0, 1})  # key versions of committed offsets


def read_group_records(
    source: FetchSource, schemas: Schemas, catalogue: Catalogue, *, longest: int = LONGEST
) -> GroupRecords:
    """Raises RefusedError as soon as more than `longest` records were read (offsets do not tell: most of a log that the
    cleaner keeps short are gone), TransientError as FetchSource does."""
    ranges = source.ranges(_TOPIC)
    read = [_Partition(log, ParsingChecks(log=log, schemas=schemas, releases=schemas.releases)) for log in ranges]
    records = 0
    for partition in read:
        for count in partition.go_through(source):
            records += count
            if records > longest:
                raise RefusedError(
                    f"{OFFSETS_TOPIC} holds more than the {longest:,} records that are read in one process.",
                    remedy="Let Spark read it: kafka-rollout scan --live.",
                )
    pending = [found for partition in read for found in partition.deleted_while_pending(source)]
    facts = facts_of_order(catalogue, schemas.releases)
    disordered = [found for partition in read for found in partition.out_of_order(source, facts)]
    newest = tuple(record for partition in read for record in partition.newest_records(schemas))
    return GroupRecords(
        read_at=time.time(),
        offsets=sum(log.end - log.start for log in ranges),
        alive=alive_by_type(newest),
        newest=newest,
        classes=tuple(found for partition in read for found in partition.classes()),
        broken=(
            *(found for partition in read for found in partition.parsing.found()),
            *unloadable_groups(catalogue, pending, schemas.releases),
            *groups_out_of_order(disordered),
        ),
        partitions=tuple((log.topic, log.partition) for log in ranges),
        cleaning=source.cleaning(_TOPIC if ranges else []).get(OFFSETS_TOPIC, defaults_of(OFFSETS_TOPIC)),
    )


def records_of_scan(scan: ScanResult) -> GroupRecords:
    """The same by a scan with Spark. Raises RefusedError where it has more groups than it names."""
    inventory = GroupInventory.from_dict(scan.inventory) if scan.inventory is not None else GroupInventory()
    if inventory.groups_left_out:
        raise RefusedError(
            f"{OFFSETS_TOPIC} tells of {inventory.groups_left_out:,} groups more than a scan names.",
            remedy="Delete groups that nobody needs, or accept that nobody sees whether all are converted (UNSAFE).",
        )
    return GroupRecords(
        read_at=scan.scanned_at,
        offsets=sum(log.end - log.start for log in scan.logs),
        alive={kind: frozenset(g.name for g in inventory.groups if g.type == kind) for kind in SERVED_BY.values()},
        classes=scan.classes,
        broken=scan.broken,
        partitions=tuple((log.topic, log.partition) for log in scan.logs),
        cleaning=scan.cleaning.get(OFFSETS_TOPIC, defaults_of(OFFSETS_TOPIC)),
    )


@dataclass(slots=True)
class _Partition:
    log: LogRange
    parsing: ParsingChecks
    counts: KindCounts = field(default_factory=KindCounts)
    newest: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)
    commits: PendingCommits = field(default_factory=PendingCommits)

    def go_through(self, source: FetchSource) -> Iterator[int]:
        """How many records each fetch brought."""
        before = 0
        for fetched in source.read(self.log):
            start = max(self.log.start, fetched.fetch_offset)
            self.counts.add(
                fetched.data,
                CODECS,
                start=start,
                end=self.log.end,
                on_record=self._keep,
                on_batch=self.commits.begin,
            )
            now = self.counts.counts.total()
            yield now - before
            before = now

    def _keep(self, payload: bytes, record: RecordSpan, what: ClassKey) -> None:
        self.commits.look_into(payload, record, what)
        if what[0] is None or what[0] in _COMMITS:
            return
        key = payload[record.key_at : record.key_at + record.key_length]
        value = payload[record.value_at : record.value_at + record.value_length] if record.value_length >= 0 else None
        self.newest[key] = (record.offset, value)
        self.parsing.look_into(payload, record, what)

    def deleted_while_pending(self, source: FetchSource) -> tuple[DeletedWhilePending, ...]:
        """Read once more where there may be any: the offsets that are loaded are not kept by `go_through`."""
        groups = self.commits.suspects()
        return deleted_while_pending(self.log.partition, groups, pieces(source, self.log)) if groups else ()

    def out_of_order(self, source: FetchSource, facts: Facts) -> tuple[OutOfOrder, ...]:
        """Read once more likewise."""
        types = strict_types(facts)
        keys = (key for key in self.newest if int.from_bytes(key[:VERSION_BYTES], "big") in types)
        groups = {group for key in keys if (group := text_at(key, VERSION_BYTES)[0]) is not None}
        return out_of_order(self.log.partition, groups, pieces(source, self.log), facts) if groups else ()

    def newest_records(self, schemas: Schemas) -> list[StateRecord]:
        """Those that the newest release of the catalogue can read; what it cannot is in the classes all the same."""
        found = []
        for key, (offset, value) in self.newest.items():
            layouts = schemas.layouts(schemas.releases[-1], OFFSETS_TOPIC, int.from_bytes(key[:VERSION_BYTES], "big"))
            if layouts is None:
                continue
            try:
                record = StateRecord(
                    topic=self.log.topic,
                    partition=self.log.partition,
                    record=layouts.name,
                    key=decode(layouts.key, key, VERSION_BYTES).value,
                    value=None if value is None else _value(layouts, value),
                    offset=offset,
                )
            except MessageFormatError:
                continue
            found.append(record)
        return found

    def classes(self) -> list[RecordKind]:
        return self.counts.classes(self.log.topic, self.log.partition)


def _value(layouts: RecordLayouts, value: bytes) -> Any:
    version = int.from_bytes(value[:VERSION_BYTES], "big", signed=True)
    if version not in layouts.value.valid_versions:
        raise MessageFormatError(f"{layouts.name} has no version {version}.")
    return decode(layouts.value.layout(version), value, VERSION_BYTES).value
