"""One scan of coordinator logs: what the workers need, the reading by Spark, the verdicts, the inventory."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext

from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.coordinator_logs.contents import GroupInventory, StateRecord, describes_owner, take_inventory
from kafka_rollout.coordinator_logs.executor_credentials import runs_in_one_process
from kafka_rollout.coordinator_logs.reading.partitions import facts_of_order, has_affected_release, ordered_types
from kafka_rollout.coordinator_logs.replicas import count_replicas, merge_groups, merge_replicas
from kafka_rollout.coordinator_logs.scan import (
    BrokenRecords,
    DeletedWhilePending,
    LoadVerdict,
    OutOfOrder,
    OwnerRecords,
    ScanRequest,
    ScanResult,
)
from kafka_rollout.coordinator_logs.verdicts import (
    evaluate_records,
    groups_out_of_order,
    unknown_ends,
    unloadable_groups,
)
from kafka_rollout.formats.documents.definitions import Schemas, load_schemas
from kafka_rollout.formats.layouts import Layout
from kafka_rollout.formats.log_types import RecordKind
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Catalogue, Release
from kafka_rollout_spark import result as parts
from kafka_rollout_spark.kernel.programs import DecodingSpec, LayoutUse, RecordUse, buckets_for, write_programs
from kafka_rollout_spark.merge.merged import MergedRows, read_here, read_merged
from kafka_rollout_spark.progress import ScanProgress, amount_text, watched
from kafka_rollout_spark.rows import WORKER_ROWS, RowKind, of_kind, tuples
from kafka_rollout_spark.source import LogsToRead

OWNERS_LISTED = 1_000
STATES_LISTED = 100_000  # more groups, members and transactional ids than this are counted, not listed
_GROUPS_READ = 4 * STATES_LISTED  # rows: a group has one of each class of commits in its partition
_FEW = (RowKind.CLASS, RowKind.LOG, RowKind.BROKEN, RowKind.TAG, RowKind.PRODUCER, RowKind.DAMAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """Catalogue and message definitions, as the brokers are configured (Catalogue.configured)."""

    catalogue: Catalogue
    schemas: Schemas

    @classmethod
    def load(cls, folders: Sequence[Path], *, new_group_coordinator: bool | None = False) -> Documents:
        return cls(
            catalogue=load_catalogue(*folders).configured(new_group_coordinator=new_group_coordinator),
            schemas=load_schemas(*folders, new_group_coordinator=new_group_coordinator),
        )

    def spec(self, request: ScanRequest, logs: LogsToRead) -> DecodingSpec:
        return make_spec(
            self.catalogue,
            self.schemas,
            request.releases,
            () if request.classes_only else {log.topic for log in logs.logs},
            live=request.live,
            buckets=buckets_for(logs.log_bytes),
        )


def make_spec(
    catalogue: Catalogue,
    schemas: Schemas,
    releases: Sequence[Release],
    topics: Collection[str],
    *,
    live: bool = False,
    buckets: int = 1,
) -> DecodingSpec:
    """The spec of a scan for these releases that parses the records of these logs.

    Records are decoded with the layouts of all releases of the catalogue: for a record that an old release does not
    know, only a newer layout shows the group or transactional id.
    """
    newest_first, logs = sorted(catalogue, reverse=True), {}
    for topic in topics:
        key_versions = sorted({version for release in catalogue for version in schemas.log(release, topic)})
        records = [_record_use(schemas, newest_first, topic, key_version) for key_version in key_versions]
        logs[topic] = write_programs(records, _loaded_by_all(catalogue, releases, records))
    return DecodingSpec(logs=logs, live=live, buckets=buckets)


def _record_use(schemas: Schemas, releases: Sequence[Release], topic: str, key_version: int) -> RecordUse:
    """`releases`, newest first: so are the layouts."""
    keys: defaultdict[Layout, list[Release]] = defaultdict(list)
    values: defaultdict[int, defaultdict[Layout, list[Release]]] = defaultdict(lambda: defaultdict(list))
    names = []
    for release in releases:
        known = schemas.layouts(release, topic, key_version)
        if known is None:
            continue
        names.append(known.name)
        keys[known.key].append(release)
        for version in range(known.value.valid_versions.min, known.value.valid_versions.max + 1):
            values[version][known.value_layout(version)].append(release)
    return RecordUse(
        topic=topic,
        key_version=key_version,
        name=names[0],
        keys=_uses(keys),
        values={version: _uses(layouts) for version, layouts in values.items()},
        state=describes_owner(names[0]),
    )


def _uses(layouts: dict[Layout, list[Release]]) -> tuple[LayoutUse, ...]:
    return tuple(LayoutUse(layout=layout, releases=tuple(releases)) for layout, releases in layouts.items())


def _loaded_by_all(
    catalogue: Catalogue, releases: Sequence[Release], records: Sequence[RecordUse]
) -> Iterator[tuple[int, int | None]]:
    """Record kinds that no asked release stops at or ignores. A release without a coordinator for the log does not
    count."""
    by_their_order = ordered_types(facts_of_order(catalogue, releases))
    for record in records:
        if record.topic == GROUPS_TOPIC and record.key_version in by_their_order:
            continue
        for value_version in (None, *record.values):
            one = RecordKind(
                topic=record.topic,
                partition=0,
                key_version=record.key_version,
                value_version=value_version,
                count=1,
                first_offset=0,
            )
            if {v.verdict for v in evaluate_records(catalogue, [one], releases)} <= {
                LoadVerdict.LOADS,
                LoadVerdict.NOT_LOADED,
            }:
                yield record.key_version, value_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """The merged rows; `few` are those of the kinds that are never many. `contents` is valid only while read_logs is
    open."""

    spec: DecodingSpec
    """Without `logs`, the records were not parsed."""
    scanned_at: float
    contents: MergedRows
    few: pa.Table

    def of(self, copy: int) -> Scanned:
        """Return what was found in this replica of each partition."""
        few = self.few.filter(pc.field("copy") == copy)
        return replace(self, contents=self.contents.of(copy), few=few)

    def owners(self, names: parts.Names) -> Iterator[tuple[OwnerRecords, str]]:
        """All of them with their replica, streamed unsorted. `names`: as in LogsToRead."""
        for batch in self.contents.owners():
            replicas = (name for (name,) in parts.replicas_of(batch, names))
            yield from zip(parts.values(OwnerRecords, batch), replicas, strict=True)

    def owners_listed(self) -> tuple[tuple[OwnerRecords, ...], int]:
        """Those with the most records, and the number of the others. Call it on `of` a copy."""
        rows = self.contents.owners(OWNERS_LISTED + 1)
        owners = tuple(owner for batch in rows for owner in parts.values(OwnerRecords, batch))
        if len(owners) <= OWNERS_LISTED:
            return owners, 0
        named = self.contents.table(RowKind.OWNER, columns=["count"], is_valid="name")
        return owners[:OWNERS_LISTED], named.num_rows - OWNERS_LISTED

    def states(self) -> tuple[Sequence[StateRecord], bool]:
        """The newest records that describe groups and transactional ids, and whether these are all."""
        rows = self.contents.table(RowKind.STATE, limit=STATES_LISTED)
        return tuple(parts.state_records(rows, self.spec.records)), rows.num_rows < STATES_LISTED

    def inventory(self, states: Iterable[StateRecord], *, complete: bool) -> GroupInventory | None:
        if not self.spec.logs:
            return None
        commits = self.contents.table(RowKind.COMMITS, columns=["name", "count"])
        commits = commits.group_by("name").aggregate([("count", "sum")])
        taken = take_inventory(
            states,
            dict(zip(commits["name"].to_pylist(), commits["count_sum"].to_pylist(), strict=True)),
            self._committing(),
        )
        if not complete:
            groups, ids = self._count_groups_and_ids()
            taken = replace(
                taken,
                groups_left_out=groups - sum(not group.offsets_only for group in taken.groups),
                transactional_ids_left_out=ids - len(taken.transactional_ids),
            )
        return taken.shortened()

    def owners_of_tags(self, states: Iterable[StateRecord]) -> dict[parts.TagPlace, list[str] | None]:
        """The groups and transactional ids whose current record has a tagged field.

        Of committed offsets, they are the groups with a record of the same version: it exists for the field.
        """
        owners: defaultdict[parts.TagPlace, set[str]] = defaultdict(set)
        for record in states:
            for key_version, value_version, path, tag in record.tags:
                owners[record.topic, record.partition, key_version, value_version, path, tag].add(record.owner)
        listed = {(use.topic, use.key_version) for use in self.spec.records if use.state}
        tags = list(tuples(of_kind(self.few, RowKind.TAG).select(parts.TAG_PLACE)))
        if any((topic, key_version) not in listed for topic, _, key_version, *_ in tags):
            groups: defaultdict[tuple[Any, ...], set[str]] = defaultdict(set)
            columns = ("topic", "partition", "key_version", "value_version", "name")
            for *kind, name in tuples(self.contents.table(RowKind.GROUP, columns=columns, limit=_GROUPS_READ)):
                groups[tuple(kind)].add(name)
                listed.add((kind[0], kind[2]))
            for *kind, path, tag in tags:
                owners[*kind, path, tag] |= groups[tuple(kind)]
        return {place: sorted(owners[place]) if (place[0], place[2]) in listed else None for place in tags}

    def _committing(self) -> dict[str, int]:
        """Groups whose newest committed offset is not a tombstone, and their partition."""
        columns = ("name", "partition", "value_version", "last_offset")
        lasts: dict[str, tuple[int, bool, int]] = {}
        rows = self.contents.table(RowKind.GROUP, columns=columns, limit=_GROUPS_READ)
        for name, partition, value_version, last_offset in tuples(rows):
            last = last_offset, value_version is not None, partition
            lasts[name] = max(last, lasts.get(name, last))
        return {name: partition for name, (_, committed, partition) in lasts.items() if committed}

    def _count_groups_and_ids(self) -> tuple[int, int]:
        known = self.contents.table(RowKind.STATE, columns=["record"], is_valid="value")
        counts = {row["values"]: row["counts"] for row in known["record"].value_counts().to_pylist()}
        groups = sum(count for record, count in counts.items() if record.endswith("GroupMetadata"))
        return groups, counts.get("TransactionLog", 0)


@contextmanager
def read_logs(
    spark: SparkContext | None, logs: LogsToRead, spec: DecodingSpec, report: ScanProgress
) -> Iterator[Scanned]:
    """Read the logs once; without `spark` in this process. Every byte is read, or damage, or raises an error."""
    scanned_at = time.time()
    if not logs.ranges:
        empty = WORKER_ROWS.empty_table()
        yield Scanned(spec=DecodingSpec(), scanned_at=scanned_at, contents=MergedRows(), few=empty)
        return
    if spark is None:
        report(f"reading {amount_text(logs.size, logs.unit)} without Spark")
        rows = read_here(logs.source, spec, logs.ranges)
        few = rows.table(*_FEW)
    else:
        splits = logs.splits(spark.defaultParallelism if runs_in_one_process(spark.master or "") else None)
        with watched(spark, len(splits), logs.size, logs.unit, report):
            rows = read_merged(spark, logs.source, spec, splits, is_small=logs.is_small)
            few = rows.table(*_FEW)
    try:
        kinds = tuples(few.select(["kind", "topic", "partition", "copy"]))
        found = {tuple(log) for kind, *log in kinds if kind in (RowKind.LOG, RowKind.DAMAGE)}
        read = {(log.topic, log.partition, log.copy) for log in logs.replicas if log.end > log.start}
        if missing := read - found:
            topic, partition, copy = min(missing)
            raise FatalError(
                f"The reading returned no rows for {len(missing)} replicas of {logs.cluster}, for example "
                f"{topic}-{partition} ({logs.names[topic, partition, copy]}).",
                remedy="Scan again.",
            )
        yield Scanned(spec=spec, scanned_at=scanned_at, contents=rows, few=few)
    finally:
        rows.close()


def _owners(scanned: Scanned, copies: Sequence[int]) -> tuple[tuple[OwnerRecords, ...], int]:
    """Return the owners of all replicas with the most records, and the number of the others in a replica."""
    listed = [scanned.of(copy).owners_listed() for copy in copies]
    owners = merge_replicas((owner for found, _ in listed for owner in found), {})
    ordered = sorted(owners, key=lambda o: (-o.count, o.topic, o.partition, o.name, o.key_version))
    left_out = max((number for _, number in listed), default=0)
    return tuple(ordered[:OWNERS_LISTED]), left_out + max(0, len(ordered) - OWNERS_LISTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What decides the verdicts, in one copy of each partition."""

    classes: tuple[RecordKind, ...]
    broken: tuple[BrokenRecords, ...]
    deleted: tuple[DeletedWhilePending, ...]
    out_of_order: tuple[OutOfOrder, ...]


def _find_in_copy(documents: Documents, releases: Sequence[Release], logs: LogsToRead, scanned: Scanned) -> _Found:
    catalogue = documents.catalogue
    classes = parts.record_classes(scanned.few, logs.names)
    ends = unknown_ends(catalogue, parts.with_last_batches(scanned.few, classes), releases)
    ordered = facts_of_order(catalogue, releases)
    affected = has_affected_release(catalogue, releases)
    return _Found(
        classes=classes,
        broken=(*parts.broken_records(scanned.few, logs.names), *ends),
        deleted=parts.find_deleted_while_pending(scanned.few, scanned.contents, logs) if affected else (),
        out_of_order=parts.find_out_of_order(scanned.few, scanned.contents, logs, ordered) if ordered else (),
    )


def make_result(request: ScanRequest, documents: Documents, logs: LogsToRead, scanned: Scanned) -> ScanResult:
    """Evaluate every release of the request: kinds of records by all replicas, sizes and groups by the leaders."""
    catalogue, releases = documents.catalogue, request.releases
    copies = sorted({log.copy for log in logs.replicas})
    found = [_find_in_copy(documents, releases, logs.of(copy), scanned.of(copy)) for copy in copies]
    of = count_replicas(logs.replicas)
    classes = merge_replicas((kind for one in found for kind in one.classes), of)
    deleted = merge_groups((group for one in found for group in one.deleted), of)
    out_of_order = merge_groups((group for one in found for group in one.out_of_order), of)
    broken = (
        *merge_replicas((records for one in found for records in one.broken), of),
        *unloadable_groups(catalogue, deleted, releases),
        *groups_out_of_order(out_of_order),
    )
    owners, owners_left_out = _owners(scanned, copies)
    damage = (*logs.damage, *parts.damage_of(scanned.few, logs.names))
    scanned = scanned.of(0)
    states, complete = scanned.states()
    return ScanResult(
        cluster=logs.cluster,
        scanned_at=scanned.scanned_at,
        logs=logs.logs,
        classes=tuple(sorted(classes, key=lambda c: (c.topic, c.partition, c.first_offset))),
        verdicts=evaluate_records(
            catalogue,
            classes,
            releases,
            broken=broken,
            partitions=[(log.topic, log.partition) for log in logs.logs],
            damage=damage,
        ),
        sizes=parts.log_sizes(scanned.few, logs.logs),
        broken=broken,
        tagged=parts.tagged_fields(scanned.few, catalogue, documents.schemas, scanned.owners_of_tags(states)),
        owners=owners,
        owners_left_out=owners_left_out,
        copies=logs.copies,
        damage=damage,
        deleted_while_pending=deleted,
        out_of_order=out_of_order,
        inventory=scanned.inventory(states, complete=complete),
        cleaning=logs.cleaning,
        new_group_coordinator=logs.new_group_coordinator,
    )
