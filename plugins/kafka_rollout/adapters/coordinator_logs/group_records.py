"""The records of groups in __consumer_offsets: the newest of each key, and the kinds of all."""

from __future__ import annotations

import time
from typing import Any

from kafka_rollout.adapters.coordinator_logs.deleted_groups import deleted_while_pending, read_log
from kafka_rollout.adapters.coordinator_logs.order import facts_of_order, out_of_order, strict_types
from kafka_rollout.adapters.coordinator_logs.parsing import ParsingChecks
from kafka_rollout.adapters.coordinator_logs.reading import PartitionReading
from kafka_rollout.adapters.kafka.fetch import FetchSource
from kafka_rollout.adapters.releases.definitions import Schemas
from kafka_rollout.domain.coordinator_logs.cleaning import defaults_of
from kafka_rollout.domain.coordinator_logs.contents import GroupInventory, StateRecord
from kafka_rollout.domain.coordinator_logs.scan import OFFSETS_TOPIC, ScanResult
from kafka_rollout.domain.coordinator_logs.verdicts import groups_out_of_order, unloadable_groups
from kafka_rollout.domain.groups.records import GroupRecords, alive_by_type
from kafka_rollout.domain.model.cluster_contents import SERVED_BY
from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.releases import Catalogue
from kafka_rollout.wire.coordinator_records import VERSION_BYTES, RecordLayouts
from kafka_rollout.wire.messages import MessageFormatError, decode

LONGEST = 1_000_000  # records: under a minute
_TOPIC = [OFFSETS_TOPIC]


def read_group_records(
    source: FetchSource, schemas: Schemas, catalogue: Catalogue, *, longest: int = LONGEST
) -> GroupRecords:
    """Raises RefusedError after `longest` records (offsets do not show the number: the log cleaner removes most
    records), TransientError as FetchSource does."""
    ranges = source.ranges(_TOPIC)
    facts = facts_of_order(catalogue, schemas.releases)
    read = [
        PartitionReading(
            log=log,
            parsing=ParsingChecks(log=log, schemas=schemas, releases=schemas.releases),
            ordered=strict_types(facts),
            groups_only=True,
        )
        for log in ranges
    ]
    records = 0
    for partition in read:
        for count in partition.read(source):
            records += count
            if records > longest:
                raise RefusedError(
                    f"{OFFSETS_TOPIC} contains more than {longest:,} records, the limit of this command.",
                    remedy="Use Spark: kafka-rollout scan --live.",
                )
    # Partitions that may have any are read again: only the whole log shows the loaded groups and their order.
    pending = [
        found
        for partition in read
        if (groups := partition.commits.suspects())
        for found in deleted_while_pending(partition.log.partition, groups, read_log(source, partition.log))
    ]
    disordered = [
        found
        for partition in read
        if partition.groups
        for found in out_of_order(partition.log.partition, partition.groups, read_log(source, partition.log), facts)
    ]
    newest = tuple(record for partition in read for record in _newest_records(partition, schemas))
    return GroupRecords(
        read_at=time.time(),
        offsets=sum(log.end - log.start for log in ranges),
        alive=alive_by_type(newest),
        newest=newest,
        classes=tuple(kind for partition in read for kind, _ in partition.kinds()),
        broken=(
            *(found for partition in read for found in partition.parsing.found()),
            *unloadable_groups(catalogue, pending, schemas.releases),
            *groups_out_of_order(disordered),
        ),
        partitions=tuple((log.topic, log.partition) for log in ranges),
        cleaning=source.cleaning(_TOPIC if ranges else []).get(OFFSETS_TOPIC, defaults_of(OFFSETS_TOPIC)),
    )


def records_of_scan(scan: ScanResult) -> GroupRecords:
    """The same from a scan with Spark. Raises RefusedError if the scan does not list all groups."""
    inventory = scan.inventory or GroupInventory()
    if inventory.groups_left_out:
        raise RefusedError(
            f"The scan does not list {inventory.groups_left_out:,} groups of {OFFSETS_TOPIC}.",
            remedy="Delete unused groups, or accept with UNSAFE that their conversion is not checked.",
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


def _newest_records(reading: PartitionReading, schemas: Schemas) -> list[StateRecord]:
    """Return the records that the newest release of the catalogue can read. The counts by kind include the others."""
    found = []
    for key, (offset, value) in reading.newest.items():
        layouts = schemas.layouts(schemas.releases[-1], OFFSETS_TOPIC, int.from_bytes(key[:VERSION_BYTES], "big"))
        if layouts is None:
            continue
        try:
            record = StateRecord(
                topic=OFFSETS_TOPIC,
                partition=reading.log.partition,
                record=layouts.name,
                key=decode(layouts.key, key, VERSION_BYTES).value,
                value=None if value is None else _value(layouts, value),
                offset=offset,
            )
        except MessageFormatError:
            continue
        found.append(record)
    return found


def _value(layouts: RecordLayouts, value: bytes) -> Any:
    version = int.from_bytes(value[:VERSION_BYTES], "big", signed=True)
    if version not in layouts.value.valid_versions:
        raise MessageFormatError(f"{layouts.name} has no version {version}.")
    return decode(layouts.value.layout(version), value, VERSION_BYTES).value
