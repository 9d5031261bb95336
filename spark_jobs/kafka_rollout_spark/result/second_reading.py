"""Finds two kinds of groups by a second reading of partitions, after all logs were read.

Deleted groups with pending commits: the workers reported the data and the markers of every producer id. A partition
with data that is not before a marker is read from the start of that transaction, and from the start of the log if the
transaction commits for a deleted group. Both are rare, and partitions are small.

Groups with a record that does not fit the records before it: the workers reported the first record of each kind for
each group of the newer types. A partition is read again if a release may stop at one of its groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.coordinator_logs.reading.second_reading import (
    Facts,
    deleted_while_pending,
    ordered_types,
    out_of_order,
)
from kafka_rollout.coordinator_logs.scan import DeletedWhilePending, OutOfOrder
from kafka_rollout.coordinator_logs.verdicts import GROUP_METADATA_KEY
from kafka_rollout.kafka.formats.coordinator_records import VERSION_BYTES
from kafka_rollout.kafka.formats.group_replay import FirstRecords, PendingCommits, may_be_refused, text_at
from kafka_rollout.kafka.formats.log_types import LogFormatError
from kafka_rollout.kafka.formats.record_batch import batches
from kafka_rollout_spark.kernel.spec import MOST_GROUPS
from kafka_rollout_spark.merge.merged import MergedRows
from kafka_rollout_spark.rows import ENDED, OPENED, RowKind, of_kind, tuples
from kafka_rollout_spark.source.ranges import LogsToRead


def find_deleted_while_pending(
    few: pa.Table, contents: MergedRows, logs: LogsToRead
) -> tuple[DeletedWhilePending, ...]:
    """Return the deleted groups for which open transactions commit offsets.

    `few`, `contents`: as in Scanned, of a deep scan of these logs.
    """
    waiting = {place: _waiting(logs, place, producers) for place, producers in _open_transactions(few).items()}
    found: list[DeletedWhilePending] = []
    for partition, groups in _deleted(contents, waiting).items():
        found += deleted_while_pending(partition, groups, logs.read_whole(GROUPS_TOPIC, partition))
    return tuple(sorted(found))


def _open_transactions(few: pa.Table) -> Mapping[int, Mapping[int, int]]:
    """Return partition → producer id with data after its last marker → lowest offset that this data can have."""
    rows = of_kind(few, RowKind.PRODUCER).filter(pc.field("topic") == GROUPS_TOPIC)
    producers = list(tuples(rows.select(["partition", "key_hash", "part", "first_offset", "last_offset"])))
    markers = {(partition, producer): last for partition, producer, part, _, last in producers if part == ENDED}
    found: dict[int, dict[int, int]] = {}
    for partition, producer, part, first, last in producers:
        marker = markers.get((partition, producer), -1)
        if part == OPENED and last > marker:
            found.setdefault(partition, {})[producer] = max(first, marker + 1)
    return found


def _waiting(logs: LogsToRead, partition: int, producers: Mapping[int, int]) -> frozenset[bytes]:
    """Return the groups for which the open transactions of these producers commit offsets."""
    since, commits = min(producers.values()), PendingCommits()
    for block in logs.read(GROUPS_TOPIC, partition, since=since):
        with suppress(LogFormatError):  # the first reading has reported it as damage
            for batch in batches(block.data):
                if batch.producer_id in producers and batch.last_offset >= since:
                    commits.add(batch.data, start=block.start, end=block.end)
    return frozenset(commits.waiting())


def _deleted(contents: MergedRows, waiting: Mapping[int, Collection[bytes]]) -> Mapping[int, set[bytes]]:
    """Return partition → those of its groups whose newest GroupMetadata is a tombstone. One query for all."""
    groups = {
        (partition, b"".join((GROUP_METADATA_KEY.to_bytes(2), len(group).to_bytes(2), group))): group
        for partition, held in waiting.items()
        for group in held
    }
    if not groups:
        return {}
    tombstones = contents.table(
        RowKind.STATE,
        columns=["partition", "key"],
        is_null="value",
        topic=[GROUPS_TOPIC],
        partition={partition for partition, _ in groups},
        key_version=[GROUP_METADATA_KEY],
    )
    found: dict[int, set[bytes]] = {}
    for partition, key in tuples(tombstones):
        if (partition, key) in groups:
            found.setdefault(partition, set()).add(groups[partition, key])
    return found


_ROWS = 10_000


def find_out_of_order(few: pa.Table, contents: MergedRows, logs: LogsToRead, facts: Facts) -> tuple[OutOfOrder, ...]:
    """`few`, `contents`: as in Scanned, of a deep scan of these logs."""
    types = ordered_types(facts)
    classes = of_kind(few, RowKind.CLASS).select(["topic", "partition", "key_version"])
    partitions = {partition for topic, partition, type_ in tuples(classes) if topic == GROUPS_TOPIC and type_ in types}
    if not partitions:
        return ()
    found: list[OutOfOrder] = []
    roles = [log.group_roles for log in facts.values()]
    for partition, groups in sorted(_first_records(contents, partitions, types).items()):
        suspects = {group for group, firsts in groups.items() if any(may_be_refused(one, firsts) for one in roles)}
        if suspects:
            found += out_of_order(partition, suspects, logs.read_whole(GROUPS_TOPIC, partition), facts)
    return tuple(sorted(found))


def _first_records(
    contents: MergedRows, partitions: Collection[int], types: Iterable[int]
) -> Mapping[int, Mapping[bytes, FirstRecords]]:
    """By partition and group, for the groups with records of these types."""

    def rows(kind: RowKind, columns: Sequence[str], **conditions: Any) -> Iterator[tuple[Any, ...]]:
        table = contents.table(kind, columns=columns, topic=[GROUPS_TOPIC], partition=partitions, **conditions)
        for batch in table.to_batches(max_chunksize=_ROWS):  # each group has several
            yield from tuples(batch)

    found: dict[int, dict[bytes, FirstRecords]] = {}
    columns = "partition", "name", "key_version", "value_version", "first_offset"
    for partition, name, key_version, value_version, first in rows(
        RowKind.OWNER, columns, is_valid="name", key_version=list(types)
    ):
        firsts = found.setdefault(partition, {}).setdefault(name.encode(), FirstRecords())
        firsts.note(key_version, first, is_tombstone=value_version is None)
    committing: dict[int, set[bytes]] = {}
    for partition, text, first in rows(RowKind.GROUP, ("partition", "name", "first_offset"), is_valid="value_version"):
        name = text.encode()
        committing.setdefault(partition, set()).add(name)
        if (known := found.get(partition, {}).get(name)) is not None:
            known.committed = first if known.committed is None else min(first, known.committed)
    for partition, names in committing.items():
        # A task reports at most this number of groups: others may commit from the start of the log on.
        for name, firsts in found.get(partition, {}).items() if len(names) >= MOST_GROUPS else ():
            firsts.committed = firsts.committed if name in names else -1
    for partition, key in rows(RowKind.STATE, ("partition", "key"), is_valid="value", key_version=[GROUP_METADATA_KEY]):
        group, _ = text_at(key, VERSION_BYTES)
        if group is not None and (known := found.get(partition, {}).get(group)) is not None:
            known.is_classic = True
    return found
