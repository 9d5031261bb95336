"""What was found in the replicas of the logs as one result, in which the worst replica decides.

Each broker cleans its own replica, at its own time. So replicas with the same end contain different records, and a
follower can have records that its leader has no more. Each replica in sync can become the leader in a roll.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from kafka_rollout.coordinator_logs.scan import (
    BrokenRecords,
    Damage,
    DeletedWhilePending,
    LogSize,
    OutOfOrder,
    OwnerRecords,
    TaggedFields,
)
from kafka_rollout.formats.log_types import LogRange, RecordKind, ReplicaRange

TopicPartition = tuple[str, int]  # topic and partition
Found = TypeVar("Found", bound=RecordKind | BrokenRecords | TaggedFields | OwnerRecords)
FoundGroup = TypeVar("FoundGroup", bound=DeletedWhilePending | OutOfOrder)

NOT_IDENTITY = frozenset({"count", "first_offset", "reason", "live", "owners", "owners_left_out", "replicas"})
"""The fields in which records of the same kind can differ."""


def of_broker(broker: int) -> str:
    """Return the name of a replica in RecordKind.replicas."""
    return f"broker {broker}"


def logs_of_leaders(read: Iterable[ReplicaRange]) -> tuple[LogRange, ...]:
    """Return the range of each partition, as its leader has it."""
    return tuple(
        LogRange(topic=log.topic, partition=log.partition, start=log.start, end=log.end)
        for log in read
        if log.copy == 0
    )


def has_each_offset(size: LogSize, log: LogRange) -> bool:
    """Return whether the log cleaner removed nothing of this range, so that no other replica has another record.

    An open transaction and an aborted one leave no gap: each marker is a control batch with one record.
    """
    return size.records + size.control_batches >= log.end - log.start


def unread_replica(topic: str, partition: int, broker: int) -> Damage:
    """Return a replica that no broker returned, as a part of the log that was not read."""
    return Damage(
        topic=topic,
        partition=partition,
        file="",
        position=0,
        log_bytes=0,
        replica=of_broker(broker),
        sentence=f"Broker {broker} does not respond, or the log directory of the replica is offline.",
    )


def count_replicas(read: Iterable[LogRange]) -> Counter[TopicPartition]:
    """Return the number of replicas of each partition that were read. `read`: a range of each."""
    return Counter((log.topic, log.partition) for log in read)


def merge_replicas(found: Iterable[Found], read: Mapping[TopicPartition, int]) -> tuple[Found, ...]:
    """Return one entry for the same records in several replicas, with the greatest count and the lowest offset.

    `found`: of each replica, the leader's first; `replicas` names the replica. `read`: as count_replicas returns it.
    """
    merged: dict[tuple[Any, ...], Found] = {}
    for one in found:
        names = [field.name for field in fields(one)]
        identity = tuple(getattr(one, name) for name in names if name not in NOT_IDENTITY)
        known = merged.get(identity)
        merged[identity] = one if known is None else _worse(known, one)
    return tuple(_of_all(one, read) for one in merged.values())


def merge_groups(found: Iterable[FoundGroup], read: Mapping[TopicPartition, int]) -> tuple[FoundGroup, ...]:
    """Return each group once. `found`, `read`: as for merge_replicas."""
    merged: dict[tuple[Any, ...], FoundGroup] = {}
    for one in found:
        identity = one.topic, one.partition, one.group, getattr(one, "releases", ())
        known = merged.get(identity)
        merged[identity] = one if known is None else replace(known, replicas=(*known.replicas, *one.replicas))
    return tuple(sorted(_of_all(one, read) for one in merged.values()))


def _worse(known: Found, other: Found) -> Found:
    first = min(known, other, key=lambda one: one.first_offset)
    changes: dict[str, Any] = {"count": max(known.count, other.count)}
    lives = [live for one in (known, other) if (live := getattr(one, "live", None)) is not None]
    if len(lives) == 2:
        changes["live"] = max(lives)
    if isinstance(known, RecordKind | BrokenRecords) and isinstance(other, RecordKind | BrokenRecords):
        changes["replicas"] = (*known.replicas, *other.replicas)
    return replace(first, **changes)


_OfReplicas = TypeVar(
    "_OfReplicas", bound=RecordKind | BrokenRecords | TaggedFields | OwnerRecords | DeletedWhilePending | OutOfOrder
)


def _of_all(one: _OfReplicas, read: Mapping[TopicPartition, int]) -> _OfReplicas:
    """Return it without `replicas` if all replicas have it."""
    if isinstance(one, TaggedFields | OwnerRecords):
        return one
    everywhere = len(set(one.replicas)) >= read.get((one.topic, one.partition), 1)
    return replace(one, replicas=() if everywhere else tuple(sorted(set(one.replicas))))
