"""The coordinator logs of a running cluster: incremental scans, and the records of groups (port CoordinatorLogs).

If there are few new records since the earlier scan, this process reads them, with the definitions that Spark's workers
use. This takes less time than the start of Spark. If there are many, Spark scans all logs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import size
from kafka_rollout.client.fetch import FetchSource
from kafka_rollout.client.requests import SilentNodes
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.coordinator_logs.contents import GroupInventory, StateRecord
from kafka_rollout.coordinator_logs.incremental_scan import find_unscanned_ranges, merge_scans, releases_of
from kafka_rollout.coordinator_logs.reading.partitions import (
    Bounded,
    ParsingChecks,
    PartitionReading,
    deleted_while_pending,
    facts_of_order,
    has_affected_release,
    ordered_types,
    out_of_order,
    read_log,
)
from kafka_rollout.coordinator_logs.scan import DeletedWhilePending, OutOfOrder, ScanResult
from kafka_rollout.coordinator_logs.spark import submit as scan_submit
from kafka_rollout.coordinator_logs.verdicts import groups_out_of_order, unknown_ends, unloadable_groups
from kafka_rollout.formats.cleaning import defaults_of
from kafka_rollout.formats.coordinator_records import VERSION_BYTES, RecordLayouts
from kafka_rollout.formats.documents.definitions import Schemas, load_schemas
from kafka_rollout.formats.log_types import LogRange
from kafka_rollout.formats.messages import MessageFormatError, decode
from kafka_rollout.groups.group_records import GroupRecords, alive_by_type
from kafka_rollout.model.contents import SERVED_BY
from kafka_rollout.model.groups import CLASSIC
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Catalogue

LONGEST = 1_000_000  # records; reading them takes less than a minute
_TOPIC = [GROUPS_TOPIC]


def read_group_records(
    source: FetchSource,
    schemas: Schemas,
    catalogue: Catalogue,
    *,
    new_group_coordinator: bool | None,
    longest: int = LONGEST,
) -> GroupRecords:
    """Read the records of all groups. `schemas` and `catalogue` are for `new_group_coordinator`.

    Raises RefusedError after `longest` records, and TransientError as FetchSource does. The offsets do not show the
    number of records, because the log cleaner removes most of them.
    """
    ranges = source.ranges(_TOPIC)
    facts = facts_of_order(catalogue, schemas.releases)
    read = [
        PartitionReading(
            log=log,
            parsing=ParsingChecks(log=log, schemas=schemas, releases=schemas.releases),
            ordered=ordered_types(facts, cleaned=True),
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
                    f"{GROUPS_TOPIC} contains more than {longest:,} records, the limit of this command.",
                    remedy="Use Spark: kafka-rollout scan --live.",
                )
    # Partitions with such candidates are read again: only the whole log shows the loaded groups and their order.
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
        damage=tuple(place for partition in read for place in partition.damage),
        cleaning=source.cleaning(_TOPIC if ranges else []).get(GROUPS_TOPIC, defaults_of(GROUPS_TOPIC)),
        new_group_coordinator=new_group_coordinator,
    )


def records_of_scan(scan: ScanResult) -> GroupRecords:
    """Return the group records from a scan with Spark. Raises RefusedError if the scan does not list all groups."""
    inventory = scan.inventory or GroupInventory()
    if inventory.groups_left_out:
        raise RefusedError(
            f"The scan does not list {inventory.groups_left_out:,} groups of {GROUPS_TOPIC}.",
            remedy="Delete unused groups, or accept with UNSAFE that their conversion is not checked.",
        )
    return GroupRecords(
        read_at=scan.scanned_at,
        offsets=sum(log.end - log.start for log in scan.logs),
        alive={kind: frozenset(g.name for g in inventory.groups if g.type == kind) for kind in SERVED_BY.values()},
        classes=scan.classes,
        broken=scan.broken,
        partitions=tuple((log.topic, log.partition) for log in scan.logs),
        damage=scan.damage,
        cleaning=scan.cleaning.get(GROUPS_TOPIC, defaults_of(GROUPS_TOPIC)),
        new_group_coordinator=scan.new_group_coordinator,
    )


def _newest_records(reading: PartitionReading, schemas: Schemas) -> list[StateRecord]:
    """Return the records that the newest release of the catalogue can read. The counts by kind include the others."""
    found = []
    for key, (offset, value) in reading.newest.items():
        layouts = schemas.layouts(schemas.releases[-1], GROUPS_TOPIC, int.from_bytes(key[:VERSION_BYTES], "big"))
        if layouts is None:
            continue
        try:
            record = StateRecord(
                topic=GROUPS_TOPIC,
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


log = logging.getLogger(__name__)

SHORT = 200_000  # offsets; reading them takes about five seconds
SMALL_RECORDS = 500_000  # in this process; reading them takes about eight seconds
SMALL_BYTES = 128_000_000  # of record batches


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCoordinatorLogs:
    cluster: ClusterSpec
    catalogue: Catalogue
    settings: Settings
    security: ClientSecurity | None = None
    silent: SilentNodes = field(default_factory=SilentNodes)
    short: int = SHORT
    longest: int = LONGEST

    def scan_new_records(self, before: ScanResult, *, planned: bool | None, complete: bool = False) -> ScanResult:
        complete = complete or planned not in (None, before.new_group_coordinator)
        with FetchSource(self.cluster.bootstrap_servers, self.security, silent=self.silent) as source:
            unscanned = None if complete else self._find_unscanned(source, before)
            if unscanned is None:
                _, before = scan_submit.scan_command(
                    self.cluster,
                    self.settings,
                    new_group_coordinator=planned,
                    security=self.security,
                    releases=releases_of(self.catalogue, before),
                )
                # Here new records are read in any number: after another complete scan there would be as many again.
                unscanned = find_unscanned_ranges(before.logs, source.ranges(self.catalogue.coordinator_topics)) or ()
            return merge_scans(self.catalogue, before, self._read(source, before, unscanned))

    def scan_small(self, *, planned: bool | None) -> ScanResult:
        with FetchSource(self.cluster.bootstrap_servers, self.security, silent=self.silent) as source:
            ranges = source.ranges(self.catalogue.coordinator_topics)
            nothing = ScanResult(
                cluster=self.cluster.name,
                scanned_at=time.time(),
                logs=(),
                classes=(),
                verdicts=(),
                cleaning=source.cleaning(self.catalogue.coordinator_topics),
                new_group_coordinator=_coordinator(source, planned),
            )
            return merge_scans(self.catalogue, nothing, self._read(source, nothing, ranges, small=True))

    def group_records(self, *, planned: bool | None, by_spark: bool = False) -> GroupRecords:
        longest = min(self.longest, 2 * self.short) if by_spark else self.longest
        try:
            with FetchSource(self.cluster.bootstrap_servers, self.security, silent=self.silent) as source:
                if planned is None:
                    source.ranges(_TOPIC)  # finds the coordinators
                new = _coordinator(source, planned)
                return read_group_records(
                    source,
                    load_schemas(*self.settings.catalogue_folders, new_group_coordinator=new),
                    self.catalogue.configured(new_group_coordinator=new),
                    new_group_coordinator=new,
                    longest=longest,
                )
        except RefusedError as error:
            if not by_spark:
                raise
            log.info("%s Using Spark.", error.sentence)
        _, result = scan_submit.scan_command(
            self.cluster,
            self.settings,
            new_group_coordinator=planned,
            security=self.security,
            topics=(GROUPS_TOPIC,),
            on_progress=lambda line: log.info("scan: %s", line),
        )
        return records_of_scan(result)

    def _find_unscanned(self, source: FetchSource, before: ScanResult) -> tuple[LogRange, ...] | None:
        """Return the ranges without a scan; None if Spark must scan all, because there are too many new records or the
        logs were replaced.
        """
        ranges = find_unscanned_ranges(before.logs, source.ranges(self.catalogue.coordinator_topics))
        return None if ranges is None or sum(log.end - log.start for log in ranges) > self.short else ranges

    def _read(
        self, source: FetchSource, before: ScanResult, unscanned: Sequence[LogRange], *, small: bool = False
    ) -> ScanResult:
        """Read the ranges. `small`: raise RefusedError above SMALL_RECORDS or SMALL_BYTES."""
        schemas = load_schemas(*self.settings.catalogue_folders, new_group_coordinator=before.new_group_coordinator)
        releases = releases_of(self.catalogue, before)
        ordered = ordered_types(facts_of_order(self._configured(before), releases), cleaned=True)
        read = [
            PartitionReading(
                log=log, parsing=ParsingChecks(log=log, schemas=schemas, releases=releases), ordered=ordered
            )
            for log in unscanned
        ]
        records = log_bytes = 0
        for reading in read:
            for new in reading.read(source):
                records += new
                if small and (records > SMALL_RECORDS or log_bytes + reading.size().log_bytes > SMALL_BYTES):
                    raise RefusedError(
                        f"The coordinator logs have more than {SMALL_RECORDS:,} records or {size(SMALL_BYTES)}, the "
                        "limit without Spark.",
                        remedy="Write an inventory, then scan them: kafka-rollout scan --cluster NAME.",
                    )
            log_bytes += reading.size().log_bytes
        classes = [found for reading in read for found in reading.kinds()]
        broken = [found for reading in read for found in reading.parsing.found()]
        return replace(
            before,
            scanned_at=time.time(),
            logs=tuple(unscanned),
            classes=tuple(kind for kind, _ in classes),
            sizes=tuple(reading.size() for reading in read),
            broken=(*broken, *unknown_ends(self.catalogue, classes, releases)),
            tagged=(),
            owners=(),
            owners_left_out=0,
            damage=tuple(place for reading in read for place in reading.damage),
            deleted_while_pending=self._deleted_while_pending(source, before, read),
            out_of_order=self._out_of_order(source, before, read),
        )

    def _deleted_while_pending(
        self, source: FetchSource, before: ScanResult, read: Sequence[PartitionReading]
    ) -> tuple[DeletedWhilePending, ...]:
        """Find such groups in all logs.

        If the new records of a partition do not give a certain result, the whole partition is read. Only the whole log
        shows which transactions were open at the end of the earlier scan, and which offsets exist.
        """
        if not has_affected_release(self.catalogue, releases_of(self.catalogue, before)):
            return ()
        current = _current_groups(before)
        doubtful = {
            reading.log: {group.group.encode() for group in before.deleted_while_pending if _is_of(group, reading.log)}
            | reading.commits.doubtful(current)
            for reading in read
            if reading.log.start < reading.log.end and reading.log.topic == GROUPS_TOPIC
        }
        found = [group for group in before.deleted_while_pending if not any(_is_of(group, log) for log in doubtful)]
        for log, groups in doubtful.items():
            if groups:
                found += deleted_while_pending(log.partition, groups, _read_whole(source, before, log, groups))
        return tuple(sorted(found))

    def _out_of_order(
        self, source: FetchSource, before: ScanResult, read: Sequence[PartitionReading]
    ) -> tuple[OutOfOrder, ...]:
        """Find such groups in all logs. Only a whole partition shows the records before the new records of a group."""
        facts = facts_of_order(self._configured(before), releases_of(self.catalogue, before))
        changed = {reading.log: reading.groups for reading in read if facts and reading.groups}
        found = [group for group in before.out_of_order if not any(_is_of(group, log) for log in changed)]
        for log, new in changed.items():
            groups = new | {group.group.encode() for group in before.out_of_order if _is_of(group, log)}
            found += out_of_order(log.partition, groups, _read_whole(source, before, log, groups), facts)
        return tuple(sorted(found))

    def _configured(self, scan: ScanResult) -> Catalogue:
        return self.catalogue.configured(new_group_coordinator=scan.new_group_coordinator)


def _coordinator(source: FetchSource, planned: bool | None) -> bool | None:
    return source.starts_new_group_coordinator() if planned is None else planned


def _read_whole(
    source: FetchSource, before: ScanResult, unscanned: LogRange, groups: Collection[bytes]
) -> Iterator[Bounded]:
    """Read the partition from the start of the earlier scan."""
    place = unscanned.topic, unscanned.partition
    starts = {(scanned.topic, scanned.partition): scanned.start for scanned in before.logs}
    log.info("%s-%d is read as a whole, because of %d groups", *place, len(groups))
    return read_log(source, replace(unscanned, start=starts.get(place, unscanned.start)))


def _current_groups(scan: ScanResult) -> frozenset[bytes]:
    """Return the groups with a current GroupMetadata record. For a group of a newer protocol it can be a tombstone."""
    if scan.inventory is None:
        return frozenset()
    return frozenset(
        group.name.encode() for group in scan.inventory.groups if group.type == CLASSIC and not group.offsets_only
    )


def _is_of(group: DeletedWhilePending | OutOfOrder, log: LogRange) -> bool:
    return (group.topic, group.partition) == (log.topic, log.partition)
