"""The coordinator logs of a live cluster, read on from where a scan ended (port CoordinatorLogs).

A short tail is decoded in this process, by the same definitions as Spark's workers decode: it takes less time than
Spark needs to start. A long one is left to Spark, which then scans everything anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_rollout.adapters.coordinator_logs import spark_submit as scan_submit
from kafka_rollout.adapters.coordinator_logs.deleted_groups import deleted_while_pending, is_asked, pieces
from kafka_rollout.adapters.coordinator_logs.group_records import LONGEST, read_group_records, records_of_scan
from kafka_rollout.adapters.coordinator_logs.order import facts_of_order, out_of_order, strict_types
from kafka_rollout.adapters.coordinator_logs.parsing import ParsingChecks
from kafka_rollout.adapters.coordinator_logs.reading import PartitionReading
from kafka_rollout.adapters.kafka.fetch import FetchSource
from kafka_rollout.adapters.kafka.security import ClientSecurity
from kafka_rollout.adapters.releases.definitions import load_schemas
from kafka_rollout.domain.coordinator_logs.incremental_scan import find_unscanned_ranges, merge_scans, releases_of
from kafka_rollout.domain.coordinator_logs.scan import (
    OFFSETS_TOPIC,
    DeletedWhilePending,
    LogRange,
    OutOfOrder,
    ScanResult,
)
from kafka_rollout.domain.coordinator_logs.verdicts import unknown_ends
from kafka_rollout.domain.groups.described import CLASSIC
from kafka_rollout.domain.groups.records import GroupRecords
from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.releases import Catalogue
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.settings import Settings

log = logging.getLogger(__name__)

SHORT = 200_000  # offsets: about five seconds here, half of what Spark needs to start


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCoordinatorLogs:
    cluster: ClusterSpec
    catalogue: Catalogue
    settings: Settings
    security: ClientSecurity | None = None
    short: int = SHORT
    longest: int = LONGEST

    def scan_new_records(self, before: ScanResult, *, complete: bool = False) -> ScanResult:
        with FetchSource(self.cluster.bootstrap_servers, self.security) as source:
            tail = None if complete else self._tail(source, before)
            if tail is None:
                before = self._scan_completely(before)
                # What came meanwhile is read here, however long it is: the next one would be as long.
                tail = find_unscanned_ranges(before.logs, self._ranges(source)) or ()
            return merge_scans(self.catalogue, before, self._read(source, before, tail))

    def group_records(self, *, by_spark: bool = False) -> GroupRecords:
        # Spark starts in the time in which `short` records are read here twice.
        longest = min(self.longest, 2 * self.short) if by_spark else self.longest
        try:
            with FetchSource(self.cluster.bootstrap_servers, self.security) as source:
                schemas = load_schemas(self.settings.include)
                return read_group_records(source, schemas, self.catalogue, longest=longest)
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
        tail = find_unscanned_ranges(before.logs, self._ranges(source))
        return None if tail is None or sum(log.end - log.start for log in tail) > self.short else tail

    def _ranges(self, source: FetchSource) -> tuple[LogRange, ...]:
        return source.ranges(
            sorted({topic for release in self.catalogue for topic in self.catalogue.get(release).coordinator_logs})
        )

    def _scan_completely(self, before: ScanResult) -> ScanResult:
        _, result = scan_submit.scan_command(
            self.cluster, self.settings, security=self.security, releases=releases_of(self.catalogue, before)
        )
        return result

    def _read(self, source: FetchSource, before: ScanResult, tail: Sequence[LogRange]) -> ScanResult:
        schemas = load_schemas(self.settings.include, new_group_coordinator=before.new_group_coordinator)
        releases = releases_of(self.catalogue, before)
        ordered = strict_types(facts_of_order(self._configured(before), releases))
        read = [
            PartitionReading(
                log=log, parsing=ParsingChecks(log=log, schemas=schemas, releases=releases), ordered=ordered
            )
            for log in tail
        ]
        for reading in read:
            for _ in reading.read(source):
                pass
        classes = [found for reading in read for found in reading.kinds()]
        broken = [found for reading in read for found in reading.parsing.found()]
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
            deleted_while_pending=self._deleted_while_pending(source, before, read),
            out_of_order=self._out_of_order(source, before, read),
        )

    def _deleted_while_pending(
        self, source: FetchSource, before: ScanResult, tail: Sequence[PartitionReading]
    ) -> tuple[DeletedWhilePending, ...]:
        """In all of the logs. Partitions whose tails leave a doubt are read anew: what was open where the scan ended,
        and which offsets are there, only the whole of them tells.
        """
        if not is_asked(self.catalogue, releases_of(self.catalogue, before)):
            return ()
        checked, found = set[int](), list[DeletedWhilePending]()
        alive = _alive(before)
        for reading in tail:
            known = {group.group.encode() for group in before.deleted_while_pending if _is_of(group, reading.log)}
            groups = known | reading.commits.doubtful(alive)
            if reading.log.start == reading.log.end or reading.log.topic != OFFSETS_TOPIC or not groups:
                continue
            whole = _whole(before, reading.log)
            log.info("%s-%d is read once more, for %d groups that may be deleted", *_place(whole), len(groups))
            found += deleted_while_pending(whole.partition, groups, pieces(source, whole))
            checked.add(whole.partition)
        kept = (group for group in before.deleted_while_pending if group.partition not in checked)
        return tuple(sorted([*kept, *found]))

    def _out_of_order(
        self, source: FetchSource, before: ScanResult, tail: Sequence[PartitionReading]
    ) -> tuple[OutOfOrder, ...]:
        """In all of the logs. What a group's newer records meet only the whole of a partition tells."""
        facts = facts_of_order(self._configured(before), releases_of(self.catalogue, before))
        checked, found = set[int](), list[OutOfOrder]()
        for reading in tail:
            if not facts or not reading.groups:
                continue
            known = {group.group.encode() for group in before.out_of_order if _is_of(group, reading.log)}
            whole, groups = _whole(before, reading.log), known | reading.groups
            log.info("%s-%d is read once more, for the order of %d groups' records", *_place(whole), len(groups))
            found += out_of_order(whole.partition, groups, pieces(source, whole), facts)
            checked.add(whole.partition)
        kept = (group for group in before.out_of_order if group.partition not in checked)
        return tuple(sorted([*kept, *found]))

    def _configured(self, scan: ScanResult) -> Catalogue:
        return self.catalogue.configured(new_group_coordinator=scan.new_group_coordinator)


def _whole(before: ScanResult, tail: LogRange) -> LogRange:
    """The tail with what was scanned before it."""
    starts = {_place(log): log.start for log in before.logs}
    return replace(tail, start=starts.get(_place(tail), tail.start))


def _place(log: LogRange) -> tuple[str, int]:
    return log.topic, log.partition


def _alive(scan: ScanResult) -> frozenset[bytes]:
    """Groups whose GroupMetadata the scan found alive; one of a newer protocol may have left a tombstone of it."""
    if scan.inventory is None:
        return frozenset()
    return frozenset(
        group.name.encode() for group in scan.inventory.groups if group.type == CLASSIC and not group.offsets_only
    )


def _is_of(group: DeletedWhilePending | OutOfOrder, log: LogRange) -> bool:
    return (group.topic, group.partition) == (log.topic, log.partition)
