"""The coordinator logs of a running cluster: incremental scans, and the records of groups (port CoordinatorLogs).

If there are few new records since the earlier scan, this process reads them, with the definitions that Spark's workers
use. This takes less time than the start of Spark. If there are many, Spark scans all logs.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import size
from kafka_rollout.client.fetch import FetchSource, Replicas
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
    replicas_of,
)
from kafka_rollout.coordinator_logs.replicas import (
    TopicPartition,
    count_replicas,
    has_each_offset,
    logs_of_leaders,
    merge_groups,
    merge_replicas,
    unread_replica,
)
from kafka_rollout.coordinator_logs.scan import Damage, DeletedWhilePending, OutOfOrder, ScanResult
from kafka_rollout.coordinator_logs.spark import submit as scan_submit
from kafka_rollout.coordinator_logs.verdicts import groups_out_of_order, unknown_ends, unloadable_groups
from kafka_rollout.formats.cleaning import defaults_of
from kafka_rollout.formats.coordinator_records import VERSION_BYTES, RecordLayouts
from kafka_rollout.formats.documents.definitions import Schemas, load_schemas
from kafka_rollout.formats.log_types import ReplicaRange, UnreadableOffsetError
from kafka_rollout.formats.messages import MessageFormatError, decode
from kafka_rollout.groups.group_records import GroupRecords, alive_by_type
from kafka_rollout.model.contents import SERVED_BY
from kafka_rollout.model.groups import CLASSIC
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Catalogue

LONGEST = 1_000_000  # records; reading them takes less than a minute
_TOPIC = [GROUPS_TOPIC]


@dataclass(slots=True, kw_only=True)
class GroupReading:
    """One reading of the log of groups from the start, to which later records are added."""

    schemas: Schemas
    catalogue: Catalogue
    new_group_coordinator: bool | None
    longest: int
    replicas: Replicas
    read: list[PartitionReading]
    pending: tuple[DeletedWhilePending, ...] = ()
    disordered: tuple[OutOfOrder, ...] = ()

    def refuse_more(self, records: int) -> None:
        if records > self.longest:
            raise RefusedError(
                f"{GROUPS_TOPIC} contains more than {self.longest:,} records, the limit of this command.",
                remedy="Use Spark: kafka-rollout scan --live.",
            )

    def read_on(self, source: FetchSource) -> bool:
        """Add what the leaders have now; return False if only a new reading shows what is in the log.

        Followers get the same records. What their log cleaners remove, and whether the new records are in an order that
        a release refuses, shows the next reading from the start.
        """
        now = source.replicas(_TOPIC)
        leaders = {log.partition: log for log in now.ranges if log.copy == 0}
        by_partition: defaultdict[int, list[PartitionReading]] = defaultdict(list)
        for reading in self.read:
            by_partition[reading.log.partition].append(reading)
        if leaders.keys() != by_partition.keys() or set(now.unread) != set(self.replicas.unread):
            return False
        for partition, readings in by_partition.items():
            new = leaders[partition]
            known = [one.log.end for one in readings]
            if new.end < max(known) or any(one.damage for one in readings):
                return False
            for reading in readings:
                reading.log = replace(reading.log, start=reading.log.end, end=new.end)
            if min(known) < new.end:
                try:
                    for fetched in source.read(replace(new, start=min(known))):
                        for reading in readings:
                            reading.add(fetched)
                        self.refuse_more(sum(one.counts.counts.total() for one in self.read if one.copy == 0))
                except UnreadableOffsetError:  # the new reading has it as damage
                    return False
        self.replicas = now
        return True

    def records(self, source: FetchSource, *, is_whole: bool) -> GroupRecords:
        ranges, of = logs_of_leaders(self.replicas.ranges), count_replicas(one.log for one in self.read)
        newest = tuple(
            record for reading in self.read if reading.copy == 0 for record in _newest_records(reading, self.schemas)
        )
        return GroupRecords(
            read_at=time.time(),
            offsets=sum(log.end - log.start for log in ranges),
            alive=alive_by_type(newest),
            newest=newest,
            classes=merge_replicas((kind for reading in self.read for kind, _ in reading.kinds()), of),
            broken=(
                *merge_replicas((found for reading in self.read for found in reading.parsing.found()), of),
                *unloadable_groups(self.catalogue, merge_groups(self.pending, of), self.schemas.releases),
                *groups_out_of_order(merge_groups(self.disordered, of)),
            ),
            partitions=tuple((log.topic, log.partition) for log in ranges),
            damage=(*(place for reading in self.read for place in reading.damage), *_unread(self.replicas)),
            cleaning=source.cleaning(_TOPIC if ranges else []).get(GROUPS_TOPIC, defaults_of(GROUPS_TOPIC)),
            new_group_coordinator=self.new_group_coordinator,
            is_whole=is_whole,
        )


def read_groups(
    source: FetchSource,
    schemas: Schemas,
    catalogue: Catalogue,
    *,
    new_group_coordinator: bool | None,
    longest: int = LONGEST,
) -> GroupReading:
    """Read the records of all groups. `schemas` and `catalogue` are for `new_group_coordinator`.

    Of its records, `newest` and `alive` are those of the leaders; `classes` and `broken` of all replicas, because each
    can become the leader. Raises RefusedError after `longest` records of a replica, and TransientError as FetchSource
    does. The offsets do not show the number of records, because the log cleaner removes most of them.
    """
    replicas = source.replicas(_TOPIC)
    facts = facts_of_order(catalogue, schemas.releases)
    reading = GroupReading(
        schemas=schemas,
        catalogue=catalogue,
        new_group_coordinator=new_group_coordinator,
        longest=longest,
        replicas=replicas,
        read=[
            PartitionReading(
                log=log,
                parsing=ParsingChecks(log=log, schemas=schemas, releases=schemas.releases),
                ordered=ordered_types(facts, cleaned=True),
                groups_only=True,
            )
            for log in replicas.ranges
        ],
    )
    records: Counter[int] = Counter()  # by copy
    for partition in reading.read:
        for count in partition.read(source):
            records[partition.copy] += count
            reading.refuse_more(records[partition.copy])
    # Partitions with such candidates are read again: only the whole log shows the loaded groups and their order.
    reading.pending = tuple(
        found
        for partition in reading.read
        if (groups := partition.commits.suspects())
        for found in deleted_while_pending(
            partition.log.partition, groups, read_log(source, partition.log), replicas_of(partition.log)
        )
    )
    reading.disordered = tuple(
        found
        for partition in reading.read
        if partition.groups
        for found in out_of_order(
            partition.log.partition,
            partition.groups,
            read_log(source, partition.log),
            facts,
            replicas_of(partition.log),
        )
    )
    return reading


def _unread(replicas: Replicas) -> tuple[Damage, ...]:
    return tuple(unread_replica(one.topic, one.partition, one.broker) for one in replicas.unread)


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
SMALL_RECORDS = 500_000  # of a replica, in this process; reading them takes about eight seconds
SMALL_BYTES = 128_000_000  # of record batches of a replica
# A waiting gate reads the log from the start again after this time, or after this multiple of the time that it took.
_AGAIN_S, _AGAIN_TIMES, _AGAIN_TIMES_SPARK = 60.0, 20, 5


@dataclass(slots=True)
class KeptReading:
    """The newest reading of the log of groups from the start, for checks that are repeated.

    The log cleaner removes records at any place, so it is read again: often while that takes little time. Spark's
    result cannot be read on from, and counts as it is.
    """

    planned: bool | None = None
    at: float = 0.0  # monotonic
    seconds: float = 0.0  # it took so long
    reading: GroupReading | None = None
    records: GroupRecords | None = None  # of Spark

    def keep(
        self,
        planned: bool | None,
        at: float,
        seconds: float,
        reading: GroupReading | None,
        records: GroupRecords | None,
    ) -> None:
        self.planned, self.at, self.seconds, self.reading, self.records = planned, at, seconds, reading, records

    def is_fresh(self, planned: bool | None, now: float) -> bool:
        most_s = max(_AGAIN_S, _AGAIN_TIMES * self.seconds) if self.reading else _AGAIN_TIMES_SPARK * self.seconds
        return planned == self.planned and now - self.at < most_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCoordinatorLogs:
    cluster: ClusterSpec
    catalogue: Catalogue
    settings: Settings
    security: ClientSecurity | None = None
    silent: SilentNodes = field(default_factory=SilentNodes)
    short: int = SHORT
    longest: int = LONGEST
    monotonic: Callable[[], float] = time.monotonic
    kept: KeptReading = field(default_factory=KeptReading, repr=False, compare=False)

    def scan_new_records(self, before: ScanResult, *, planned: bool | None, complete: bool = False) -> ScanResult:
        complete = complete or planned not in (None, before.new_group_coordinator)
        with FetchSource(self.cluster.bootstrap_servers, self.security, silent=self.silent) as source:
            replicas = source.replicas(self.catalogue.coordinator_topics)
            unscanned = None if complete else self._find_unscanned(replicas, before)
            if unscanned is None:
                _, before = scan_submit.scan_command(
                    self.cluster,
                    self.settings,
                    new_group_coordinator=planned,
                    security=self.security,
                    releases=releases_of(self.catalogue, before),
                )
                # Here new records are read in any number: after another complete scan there would be as many again.
                replicas = source.replicas(self.catalogue.coordinator_topics)
                unscanned = find_unscanned_ranges(before.logs, replicas.ranges) or ()
            unscanned_replicas = replace(replicas, ranges=unscanned)
            return merge_scans(self.catalogue, before, self._read(source, before, unscanned_replicas))

    def scan_small(self, *, planned: bool | None) -> ScanResult:
        with FetchSource(self.cluster.bootstrap_servers, self.security, silent=self.silent) as source:
            replicas = source.replicas(self.catalogue.coordinator_topics)
            nothing = ScanResult(
                cluster=self.cluster.name,
                scanned_at=time.time(),
                logs=(),
                classes=(),
                verdicts=(),
                cleaning=source.cleaning(self.catalogue.coordinator_topics),
                new_group_coordinator=_coordinator(source, planned),
            )
            return merge_scans(self.catalogue, nothing, self._read(source, nothing, replicas, small=True))

    def unread_replicas(self) -> tuple[Damage, ...]:
        with FetchSource(self.cluster.bootstrap_servers, self.security, silent=self.silent) as source:
            return _unread(source.replicas(self.catalogue.coordinator_topics))

    def group_records(self, *, planned: bool | None, by_spark: bool = False, incremental: bool = False) -> GroupRecords:
        kept, began = self.kept, self.monotonic()
        reading = None
        if incremental and kept.is_fresh(planned, began):
            reading = kept.reading
            if by_spark and kept.records is not None:
                return replace(kept.records, is_whole=False)
        kept.reading = None  # a failure in between leaves nothing to read on from
        longest = min(self.longest, 2 * self.short) if by_spark else self.longest
        try:
            with FetchSource(self.cluster.bootstrap_servers, self.security, silent=self.silent) as source:
                if reading is not None and reading.read_on(source):
                    kept.reading = reading
                    return reading.records(source, is_whole=False)
                if planned is None:
                    source.replicas(_TOPIC)  # finds the coordinators
                new = _coordinator(source, planned)
                reading = read_groups(
                    source,
                    load_schemas(*self.settings.catalogue_folders, new_group_coordinator=new),
                    self.catalogue.configured(new_group_coordinator=new),
                    new_group_coordinator=new,
                    longest=longest,
                )
                records = reading.records(source, is_whole=True)
                kept.keep(planned, self.monotonic(), self.monotonic() - began, reading, None)
                return records
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
        records = records_of_scan(result)
        kept.keep(planned, self.monotonic(), self.monotonic() - began, None, records)
        return records

    def _find_unscanned(self, replicas: Replicas, before: ScanResult) -> tuple[ReplicaRange, ...] | None:
        """Return the ranges without a scan; None if Spark must scan all, because there are too many new records or the
        logs were replaced.
        """
        ranges = find_unscanned_ranges(before.logs, replicas.ranges)
        if ranges is None or sum(log.end - log.start for log in logs_of_leaders(ranges)) > self.short:
            return None
        return ranges

    def _read(self, source: FetchSource, before: ScanResult, unscanned: Replicas, *, small: bool = False) -> ScanResult:
        """Read the ranges. `small`: raise RefusedError above SMALL_RECORDS or SMALL_BYTES.

        New records of the leader after an earlier scan are enough if it has each offset: a follower has no others.
        Without an earlier scan, a follower with fewer records can have them in an order that a release refuses.
        """
        schemas = load_schemas(*self.settings.catalogue_folders, new_group_coordinator=before.new_group_coordinator)
        releases = releases_of(self.catalogue, before)
        ordered = ordered_types(facts_of_order(self._configured(before), releases), cleaned=True)
        read = [
            PartitionReading(
                log=log, parsing=ParsingChecks(log=log, schemas=schemas, releases=releases), ordered=ordered
            )
            for log in unscanned.ranges
        ]
        scanned = {(log.topic, log.partition) for log in before.logs}
        enough: set[TopicPartition] = set()
        records: Counter[int] = Counter()  # by copy
        log_bytes: Counter[int] = Counter()
        for reading in read:
            place, copy = (reading.log.topic, reading.log.partition), reading.copy
            if place in enough:
                continue
            for new in reading.read(source):
                records[copy] += new
                size_now = log_bytes[copy] + reading.size().log_bytes
                if small and (records[copy] > SMALL_RECORDS or size_now > SMALL_BYTES):
                    raise RefusedError(
                        f"The coordinator logs have more than {SMALL_RECORDS:,} records or {size(SMALL_BYTES)}, the "
                        "limit without Spark.",
                        remedy="Write an inventory, then scan them: kafka-rollout scan --cluster NAME.",
                    )
            log_bytes[copy] += reading.size().log_bytes
            if copy == 0 and place in scanned and has_each_offset(reading.size(), reading.log):
                enough.add(place)
        read = [one for one in read if one.copy == 0 or (one.log.topic, one.log.partition) not in enough]
        of = count_replicas(reading.log for reading in read)
        broken = [
            found
            for reading in read
            for found in (*reading.parsing.found(), *unknown_ends(self.catalogue, reading.kinds(), releases))
        ]
        unread = [place for place in _unread(unscanned) if (place.topic, place.partition) not in enough]
        return replace(
            before,
            scanned_at=time.time(),
            logs=logs_of_leaders(unscanned.ranges),
            classes=merge_replicas((kind for reading in read for kind, _ in reading.kinds()), of),
            sizes=tuple(reading.size() for reading in read if reading.copy == 0),
            broken=merge_replicas(broken, of),
            tagged=(),
            owners=(),
            owners_left_out=0,
            damage=(*(place for reading in read for place in reading.damage), *unread),
            deleted_while_pending=self._deleted_while_pending(source, before, read, unscanned),
            out_of_order=self._out_of_order(source, before, read, unscanned),
        )

    def _deleted_while_pending(
        self, source: FetchSource, before: ScanResult, read: Sequence[PartitionReading], replicas: Replicas
    ) -> tuple[DeletedWhilePending, ...]:
        """Find such groups in all logs.

        If the new records of a partition do not give a certain result, the whole partition is read, of each replica.
        Only the whole log shows which transactions were open at the end of the earlier scan, and which offsets exist.
        """
        if not has_affected_release(self.catalogue, releases_of(self.catalogue, before)):
            return ()
        current = _current_groups(before)
        doubtful: defaultdict[int, set[bytes]] = defaultdict(set)  # by partition
        for reading in read:
            if reading.log.start < reading.log.end and reading.log.topic == GROUPS_TOPIC:
                doubtful[reading.log.partition] |= reading.commits.doubtful(current)
        unread = {one.partition for one in replicas.unread if one.topic == GROUPS_TOPIC}
        known = [group for group in before.deleted_while_pending if group.partition not in doubtful.keys() - unread]
        for group in before.deleted_while_pending:
            if group.partition in doubtful:
                doubtful[group.partition].add(group.group.encode())
        found = [
            group
            for log in _of_groups(replicas, {partition for partition, groups in doubtful.items() if groups})
            for group in deleted_while_pending(
                log.partition,
                doubtful[log.partition],
                _read_whole(source, before, log, doubtful[log.partition]),
                replicas_of(log),
            )
        ]
        return tuple(sorted({*merge_groups(found, count_replicas(replicas.ranges)), *known}))

    def _out_of_order(
        self, source: FetchSource, before: ScanResult, read: Sequence[PartitionReading], replicas: Replicas
    ) -> tuple[OutOfOrder, ...]:
        """Find such groups in all logs. Only a whole replica shows the records before the new records of a group."""
        facts = facts_of_order(self._configured(before), releases_of(self.catalogue, before))
        changed: defaultdict[int, set[bytes]] = defaultdict(set)  # by partition
        for reading in read:
            if facts and reading.groups:
                changed[reading.log.partition] |= reading.groups
        unread = {one.partition for one in replicas.unread if one.topic == GROUPS_TOPIC}
        known = [group for group in before.out_of_order if group.partition not in changed.keys() - unread]
        for group in before.out_of_order:
            if group.partition in changed:
                changed[group.partition].add(group.group.encode())
        found = [
            group
            for log in _of_groups(replicas, changed)
            for group in out_of_order(
                log.partition,
                changed[log.partition],
                _read_whole(source, before, log, changed[log.partition]),
                facts,
                replicas_of(log),
            )
        ]
        return tuple(sorted({*merge_groups(found, count_replicas(replicas.ranges)), *known}))

    def _configured(self, scan: ScanResult) -> Catalogue:
        return self.catalogue.configured(new_group_coordinator=scan.new_group_coordinator)


def _coordinator(source: FetchSource, planned: bool | None) -> bool | None:
    return source.starts_new_group_coordinator() if planned is None else planned


def _of_groups(replicas: Replicas, partitions: Collection[int]) -> Iterator[ReplicaRange]:
    """Yield each replica of these partitions of the log of groups."""
    return (log for log in replicas.ranges if log.topic == GROUPS_TOPIC and log.partition in partitions)


def _read_whole(
    source: FetchSource, before: ScanResult, unscanned: ReplicaRange, groups: Collection[bytes]
) -> Iterator[Bounded]:
    """Read the partition from the start of the earlier scan."""
    place = unscanned.topic, unscanned.partition
    starts = {(scanned.topic, scanned.partition): scanned.start for scanned in before.logs}
    log.info("%s-%d is read as a whole, because of %d groups", *place, len(groups))
    return read_log(source, replace(unscanned, start=min(starts.get(place, unscanned.start), unscanned.end)))


def _current_groups(scan: ScanResult) -> frozenset[bytes]:
    """Return the groups with a current GroupMetadata record. For a group of a newer protocol it can be a tombstone."""
    if scan.inventory is None:
        return frozenset()
    return frozenset(
        group.name.encode() for group in scan.inventory.groups if group.type == CLASSIC and not group.offsets_only
    )
