"""One scan of coordinator logs: the reading by Spark, the verdicts, the inventory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_rollout.adapters.coordinator_logs.deleted_groups import is_asked
from kafka_rollout.adapters.coordinator_logs.order import Facts, facts_of_order
from kafka_rollout.adapters.releases.definitions import Schemas
from kafka_rollout.domain.coordinator_logs.contents import GroupInventory, take_inventory
from kafka_rollout.domain.coordinator_logs.scan import DeletedWhilePending, OutOfOrder, OwnerRecords, ScanResult
from kafka_rollout.domain.coordinator_logs.verdicts import (
    evaluate_records,
    groups_out_of_order,
    unknown_ends,
    unloadable_groups,
)
from kafka_rollout.domain.model.errors import FatalError
from kafka_rollout.domain.model.releases import Catalogue, Release
from kafka_rollout_spark.kernel.spec import DecodingSpec, ScanDepth, buckets_for
from kafka_rollout_spark.make_spec import make_spec
from kafka_rollout_spark.merge.transforms import bring_live, merge, merge_few
from kafka_rollout_spark.progress import Progress, reported
from kafka_rollout_spark.result import result as parts
from kafka_rollout_spark.result.group_order import find_out_of_order
from kafka_rollout_spark.result.open_transactions import find_deleted_while_pending
from kafka_rollout_spark.rows import RowKind
from kafka_rollout_spark.source.ranges import LogsToRead
from kafka_rollout_spark.source.splits import SPEC, to_option

OWNERS_LISTED = 1_000
STATES_LISTED = 100_000  # more groups, members and transactional ids than this are counted, not told of one by one
_GROUPS_READ = 4 * STATES_LISTED  # rows: a group has one of each class of commits in its partition
_FEW = (RowKind.CLASS, RowKind.LOG, RowKind.BROKEN, RowKind.TAG, RowKind.PRODUCER, RowKind.DAMAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a scan is to answer; catalogue and schemas as the brokers are configured (Catalogue.configured)."""

    catalogue: Catalogue
    schemas: Schemas
    releases: Sequence[Release]
    depth: ScanDepth = ScanDepth.DEEP
    live: bool = False

    def spec(self, logs: LogsToRead) -> DecodingSpec:
        return make_spec(
            self.catalogue,
            self.schemas,
            self.releases,
            {log.topic for log in logs.ranges},
            depth=self.depth,
            live=self.live,
            buckets=buckets_for(logs.log_bytes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """What the workers told, merged; `few` are the rows that are never many, and the others are in the frame, if there
    can be any, while Spark still holds it.
    """

    spec: DecodingSpec
    scanned_at: float
    frame: DataFrame | None
    few: list[dict[str, Any]]

    def owners(self) -> Iterator[OwnerRecords]:
        """All of them, by number of records, streamed."""
        if self.frame is None:
            return
        for row in self._owners(self.frame).toLocalIterator(prefetchPartitions=True):
            yield parts.owner_records(row.asDict(), live=self.spec.live)

    def owners_listed(self) -> tuple[tuple[OwnerRecords, ...], int]:
        """The first of them, and how many more there are."""
        if self.frame is None:
            return (), 0
        frame = self._owners(self.frame)
        rows = frame.limit(OWNERS_LISTED + 1).toArrow().to_pylist()
        more = frame.count() - OWNERS_LISTED if len(rows) > OWNERS_LISTED else 0
        return tuple(parts.owner_records(row, live=self.spec.live) for row in rows[:OWNERS_LISTED]), more

    def inventory(self) -> GroupInventory | None:
        if self.frame is None:
            return None
        rows = self.frame.filter(F.col("kind") == RowKind.STATE).limit(STATES_LISTED).toArrow().to_pylist()
        commits = self.frame.filter(F.col("kind") == RowKind.COMMITS).groupBy("name").agg(F.sum("count")).collect()
        taken = take_inventory(
            parts.state_records(rows, self.spec.records), dict(map(tuple, commits)), self._committing(self.frame)
        )
        if len(rows) == STATES_LISTED:
            groups, ids = self._groups_and_ids(self.frame)
            taken = replace(
                taken,
                groups_left_out=groups - sum(not group.offsets_only for group in taken.groups),
                transactional_ids_left_out=ids - len(taken.transactional_ids),
            )
        return taken.shortened()

    def deleted_while_pending(self, logs: LogsToRead) -> tuple[DeletedWhilePending, ...]:
        """Not looked for where records are not looked into."""
        return () if self.frame is None else find_deleted_while_pending(self.few, self.frame, logs)

    def out_of_order(self, logs: LogsToRead, facts: Facts) -> tuple[OutOfOrder, ...]:
        """Likewise."""
        return () if self.frame is None else find_out_of_order(self.few, self.frame, logs, facts)

    @staticmethod
    def _owners(frame: DataFrame) -> DataFrame:
        return frame.filter((F.col("kind") == RowKind.OWNER) & F.col("name").isNotNull()).orderBy(
            F.desc("count"), "topic", "partition", "name", "key_version", "value_version"
        )

    @staticmethod
    def _committing(frame: DataFrame) -> dict[str, int]:
        """Groups whose last record of a committed offset is no tombstone, and their partition."""
        told = frame.filter(F.col("kind") == RowKind.GROUP).limit(_GROUPS_READ)
        lasts: dict[str, tuple[int, bool, int]] = {}
        # Here and not by Spark, for which another shuffle takes longer than these few take.
        for row in told.select("name", "partition", "value_version", "last_offset").toArrow().to_pylist():
            last = row["last_offset"], row["value_version"] is not None, row["partition"]
            lasts[row["name"]] = max(last, lasts.get(row["name"], last))
        return {name: partition for name, (_, committed, partition) in lasts.items() if committed}

    @staticmethod
    def _groups_and_ids(frame: DataFrame) -> tuple[int, int]:
        known = frame.filter((F.col("kind") == RowKind.STATE) & F.col("value").isNotNull())
        counts = {row["record"]: int(row["count"]) for row in known.groupBy("record").count().collect()}
        groups = sum(count for record, count in counts.items() if record.endswith("GroupMetadata"))
        return groups, counts.get("TransactionLog", 0)


@contextmanager
def read_logs(spark: SparkSession, logs: LogsToRead, spec: DecodingSpec, say: Progress) -> Iterator[Scanned]:
    """Read the logs with Spark, once; what it holds is there until the block ends. Nothing that was asked for is left
    out silently: it is read, or told as damage, or this raises.
    """
    scanned_at = time.time()
    if not logs.pieces:
        yield Scanned(spec=spec, scanned_at=scanned_at, frame=None, few=[])
        return
    cores = spark.sparkContext.defaultParallelism
    options = logs.options_for(cores)
    spark.dataSource.register(logs.source)
    rows = spark.read.format(logs.source.name()).options(**options, **{SPEC: to_option(spec)}).load()
    rows = bring_live(rows, spec.buckets) if spec.live else rows
    frame = None if spec.depth is ScanDepth.CLASSES else merge(rows).persist()
    with reported(spark, len(logs.shares(cores)), logs.size, logs.unit, say):
        if frame is None:
            few = merge_few(rows.toArrow())
        else:
            few = frame.filter(F.col("kind").isin(*_FEW)).toArrow().to_pylist()
    told = {(row["topic"], row["partition"]) for row in few if row["kind"] in {RowKind.LOG, RowKind.DAMAGE}}
    if missing := {(log.topic, log.partition) for log in logs.ranges if log.end > log.start} - told:
        topic, partition = min(missing)
        raise FatalError(
            f"Spark told nothing of {len(missing)} partitions of {logs.cluster}, {topic}-{partition} among them.",
            remedy="Scan again.",
        )
    try:
        yield Scanned(spec=spec, scanned_at=scanned_at, frame=frame, few=few)
    finally:
        if frame is not None:
            frame.unpersist()


def make_result(question: Question, logs: LogsToRead, scanned: Scanned) -> ScanResult:
    """Judge every release by what was read."""
    classes = parts.record_classes(scanned.few, live=question.live)
    ends = unknown_ends(question.catalogue, parts.with_last_batches(scanned.few, classes), question.releases)
    asked = is_asked(question.catalogue, question.releases)
    deleted = scanned.deleted_while_pending(logs) if asked else ()
    unloadable = unloadable_groups(question.catalogue, deleted, question.releases)
    ordered = facts_of_order(question.catalogue, question.releases)
    out_of_order = scanned.out_of_order(logs, ordered) if ordered else ()
    broken = (
        *parts.broken_records(scanned.few, live=question.live),
        *ends,
        *unloadable,
        *groups_out_of_order(out_of_order),
    )
    owners, owners_left_out = scanned.owners_listed()
    return ScanResult(
        cluster=logs.cluster,
        scanned_at=scanned.scanned_at,
        logs=logs.ranges,
        classes=classes,
        verdicts=evaluate_records(
            question.catalogue,
            classes,
            question.releases,
            broken=broken,
            partitions=[(log.topic, log.partition) for log in logs.ranges],
        ),
        sizes=parts.log_sizes(scanned.few, logs.ranges),
        broken=broken,
        tagged=parts.tagged_fields(scanned.few, question.catalogue, question.schemas),
        owners=owners,
        owners_left_out=owners_left_out,
        copies=logs.copies,
        damage=parts.damage_of(scanned.few),
        deleted_while_pending=deleted,
        out_of_order=out_of_order,
        inventory=scanned.inventory(),
        cleaning=logs.cleaning,
        new_group_coordinator=logs.new_group_coordinator,
    )
