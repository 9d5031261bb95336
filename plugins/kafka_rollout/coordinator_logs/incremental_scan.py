"""Incremental scan: reads only the records written after an earlier scan and merges both results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from kafka_rollout.base.errors import FatalError
from kafka_rollout.coordinator_logs.replicas import NOT_IDENTITY
from kafka_rollout.coordinator_logs.scan import BrokenRecords, LogSize, OwnerRecords, ScanResult, TaggedFields
from kafka_rollout.coordinator_logs.verdicts import (
    evaluate_records,
    groups_out_of_order,
    unloadable_groups,
    with_any,
)
from kafka_rollout.formats.log_types import LogRange, RecordKind, ReplicaRange
from kafka_rollout.releases.facts import Catalogue, Release

Counted = TypeVar("Counted", bound=RecordKind | BrokenRecords | TaggedFields | OwnerRecords)


def find_unscanned_ranges(scanned: Iterable[LogRange], now: Iterable[ReplicaRange]) -> tuple[ReplicaRange, ...] | None:
    """Return the ranges of each replica that the earlier scan did not read; None if a log of a leader ends before the
    earlier scan did.

    Such a log was recreated. A follower that ends there gets from the leader what the earlier scan has read there.
    """
    ends = {(log.topic, log.partition): log.end for log in scanned}
    tail = []
    for log in now:
        end = ends.get((log.topic, log.partition), log.start)
        if log.end < end and log.copy == 0:
            return None
        tail.append(replace(log, start=min(max(log.start, end), log.end)))
    return tuple(tail)


def releases_of(catalogue: Catalogue, scan: ScanResult) -> tuple[Release, ...]:
    """Return the releases of a scan. A scan without logs has no verdicts: then all releases of the catalogue."""
    return scan.releases or tuple(catalogue)


def merge_scans(catalogue: Catalogue, before: ScanResult, tail: ScanResult) -> ScanResult:
    """Return both scans as one result, with new verdicts. `tail`: scan of the same logs from the end of `before`.

    Records that the cleaner removed in between still count, so a verdict can be worse than that of a new scan, never
    better. `live` and the inventory are removed, because newer records supersede older ones. `deleted_while_pending`
    and `out_of_order` of the tail apply to the whole logs, because later records can resolve earlier ones.
    """
    ends = {(log.topic, log.partition): log.end for log in before.logs}
    for log in tail.logs:
        if log.start < ends.get((log.topic, log.partition), log.start):
            raise FatalError(f"{log.topic}-{log.partition} was scanned twice from offset {log.start}.")
    logs, classes = _logs(before.logs, tail.logs), _sum_up(before.classes, tail.classes)
    configured = catalogue.configured(new_group_coordinator=before.new_group_coordinator)
    broken = (
        *_sum_up(*([one for one in scan.broken if not one.pending and one.part != "order"] for scan in (before, tail))),
        *unloadable_groups(configured, tail.deleted_while_pending, releases_of(catalogue, before)),
        *groups_out_of_order(tail.out_of_order),
    )
    damage = tuple(dict.fromkeys(before.damage + tail.damage))
    return ScanResult(
        cluster=before.cluster,
        scanned_at=tail.scanned_at,
        logs=logs,
        classes=classes,
        verdicts=evaluate_records(
            configured,
            classes,
            releases_of(catalogue, before),
            broken=broken,
            partitions=[(log.topic, log.partition) for log in logs],
            damage=damage,
        ),
        sizes=_sizes(before.sizes, tail.sizes),
        broken=broken,
        tagged=_sum_up(before.tagged, tail.tagged),
        owners=_sum_up(before.owners, tail.owners),
        owners_left_out=before.owners_left_out + tail.owners_left_out,
        copies=before.copies,
        damage=damage,
        deleted_while_pending=tail.deleted_while_pending,
        out_of_order=tail.out_of_order,
        cleaning={**before.cleaning, **tail.cleaning},
        new_group_coordinator=before.new_group_coordinator,
    )


def _logs(before: Sequence[LogRange], tail: Sequence[LogRange]) -> tuple[LogRange, ...]:
    logs = {(log.topic, log.partition): log for log in before}
    for log in tail:
        earlier = logs.get((log.topic, log.partition), log)
        logs[log.topic, log.partition] = replace(earlier, end=log.end)
    return tuple(logs[place] for place in sorted(logs))


def _sum_up(before: Iterable[Counted], tail: Iterable[Counted]) -> tuple[Counted, ...]:
    merged: dict[tuple[Any, ...], Counted] = {}
    for found in (*before, *tail):
        names = [field.name for field in fields(found)]
        identity = tuple(getattr(found, name) for name in names if name not in NOT_IDENTITY)
        first = merged.get(identity, found)  # its offset is the lower one
        count = found.count if first is found else first.count + found.count
        changes: dict[str, Any] = {"count": count} | ({"live": None} if "live" in names else {})
        if "replicas" in names and first is not found:
            changes["replicas"] = with_any([getattr(one, "replicas", ()) for one in (first, found)])
        merged[identity] = replace(first, **changes)
    return tuple(merged.values())


def _sizes(before: Iterable[LogSize], tail: Iterable[LogSize]) -> tuple[LogSize, ...]:
    merged = {(size.topic, size.partition): size for size in before}
    for size in tail:
        place = (size.topic, size.partition)
        earlier = merged.get(place, LogSize(topic=size.topic, partition=size.partition))
        merged[place] = LogSize(
            topic=size.topic,
            partition=size.partition,
            records=earlier.records + size.records,
            batches=earlier.batches + size.batches,
            control_batches=earlier.control_batches + size.control_batches,
            log_bytes=earlier.log_bytes + size.log_bytes,
            first_timestamp=size.first_timestamp if earlier.first_timestamp < 0 else earlier.first_timestamp,
            last_timestamp=max(earlier.last_timestamp, size.last_timestamp),
        )
    return tuple(merged.values())
