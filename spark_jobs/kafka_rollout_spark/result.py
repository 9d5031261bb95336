"""From the merged rows of a scan's workers to its result.

A second reading of partitions, after all logs were read, finds two kinds of groups:

Deleted groups with pending commits: the workers reported the data and the markers of every producer id. A partition
with data that is not before a marker is read from the start of that transaction, and from the start of the log if the
transaction commits for a deleted group. Both are rare, and partitions are small.

Groups with a record that does not fit the records before it: the workers reported the first record of each kind for
each group of the newer types. A partition is read again if a release may stop at one of its groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.coordinator_logs.contents import StateRecord
from kafka_rollout.coordinator_logs.reading.partitions import (
    CoordinatorFacts,
    deleted_while_pending,
    ordered_types,
    out_of_order,
)
from kafka_rollout.coordinator_logs.scan import (
    OWNERS_OF_TAG,
    BrokenRecords,
    Damage,
    DeletedWhilePending,
    LogSize,
    OutOfOrder,
    TaggedFields,
)
from kafka_rollout.coordinator_logs.verdicts import GROUP_METADATA_KEY
from kafka_rollout.formats.coordinator_records import VERSION_BYTES
from kafka_rollout.formats.documents.definitions import Schemas
from kafka_rollout.formats.group_replay import FirstRecords, PendingCommits, may_be_refused, text_at
from kafka_rollout.formats.layouts import StructLayout
from kafka_rollout.formats.log_types import LogFormatError, LogRange, RecordKind
from kafka_rollout.formats.messages import Decoded, MessageFormatError, decode, join
from kafka_rollout.formats.record_batch import batches
from kafka_rollout.releases.facts import Catalogue, Release
from kafka_rollout_spark.kernel.programs import MOST_GROUPS, LayoutUse, RecordUse
from kafka_rollout_spark.merge.merged import MergedRows
from kafka_rollout_spark.rows import ENDED, OPENED, ReplicaId, RowKind, of_kind, tuples
from kafka_rollout_spark.source import LogsToRead

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")
TagPlace = tuple[str, int, int, int, str, int]

TAG_PLACE = ("topic", "partition", "key_version", "value_version", "path", "tag")


def values(kind: type[Value], table: pa.Table | pa.RecordBatch, **columns: Sequence[Any]) -> Iterator[Value]:
    """Yield a value for each row. Its fields are the columns with their names, or of `columns`."""
    found = {
        field.name: columns[field.name] if field.name in columns else table[field.name].to_pylist()
        for field in fields(kind)
    }
    return (kind(**dict(zip(found, row, strict=True))) for row in zip(*found.values(), strict=True))


Names = Mapping[ReplicaId, str]


def replicas_of(rows: pa.Table | pa.RecordBatch, names: Names) -> list[tuple[str, ...]]:
    """Return the replica of each row, as in RecordKind.replicas. `names`: as in LogsToRead."""
    columns = (rows[name].to_pylist() for name in ("topic", "partition", "copy"))
    return [(names[log],) for log in zip(*columns, strict=True)]


def record_classes(few: pa.Table, names: Names) -> tuple[RecordKind, ...]:
    rows = of_kind(few, RowKind.CLASS)
    classes = values(RecordKind, rows, replicas=replicas_of(rows, names))
    return tuple(sorted(classes, key=lambda c: (c.topic, c.partition, c.first_offset)))


def with_last_batches(few: pa.Table, classes: Iterable[RecordKind]) -> Iterator[tuple[RecordKind, int]]:
    """With each class the base offset of the last batch that holds such a record."""
    columns = ["topic", "partition", "key_version", "value_version", "last_offset"]
    lasts = {tuple(place): last for *place, last in tuples(of_kind(few, RowKind.CLASS).select(columns))}
    return ((c, lasts[c.topic, c.partition, c.key_version, c.value_version]) for c in classes)


def broken_records(few: pa.Table, names: Names) -> tuple[BrokenRecords, ...]:
    rows = of_kind(few, RowKind.BROKEN)
    releases = [tuple(sorted(map(Release.parse, text.split(",")))) for text in rows["releases"].to_pylist()]
    broken = values(BrokenRecords, rows, releases=releases, replicas=replicas_of(rows, names))
    return tuple(sorted(broken, key=lambda b: (b.topic, b.partition, b.first_offset, b.part)))


def tagged_fields(
    few: pa.Table, catalogue: Catalogue, schemas: Schemas, owners: Mapping[TagPlace, Sequence[str] | None]
) -> tuple[TaggedFields, ...]:
    """`owners`: the sorted names of those whose current record has the field; None if they are not listed."""
    rows = of_kind(few, RowKind.TAG)
    places = list(tuples(rows.select(TAG_PLACE)))
    names = [
        {release: name for release in catalogue if (name := _tag_name(schemas, release, place)) is not None}
        for place in places
    ]
    listed = [owners[place] for place in places]
    tagged = values(
        TaggedFields,
        rows,
        name=[known[max(known)] if known else None for known in names],
        known_by=[tuple(sorted(known)) for known in names],
        owners=[None if found is None else tuple(found[:OWNERS_OF_TAG]) for found in listed],
        owners_left_out=[max(0, len(found or ()) - OWNERS_OF_TAG) for found in listed],
    )
    return tuple(sorted(tagged, key=lambda t: (t.topic, t.partition, t.key_version, t.value_version, t.path, t.tag)))


def log_sizes(few: pa.Table, logs: Sequence[LogRange]) -> tuple[LogSize, ...]:
    """One of each log; zeros for a log in which no batch was read."""
    rows = of_kind(few, RowKind.LOG)
    times = {name: rows[name].fill_null(-1).to_pylist() for name in ("first_timestamp", "last_timestamp")}
    sizes = values(LogSize, rows, records=rows["count"].to_pylist(), **times)
    found = {(size.topic, size.partition): size for size in sizes}
    places = [(log.topic, log.partition) for log in logs]
    return tuple(found.get(place) or LogSize(topic=place[0], partition=place[1]) for place in places)


def damage_of(few: pa.Table, names: Names) -> tuple[Damage, ...]:
    rows = of_kind(few, RowKind.DAMAGE)
    places = tuples(rows.select(["file", "position", "last_offset"]))
    files = zip(rows["file"].to_pylist(), replicas_of(rows, names), strict=True)
    replicas = ["" if file else name for file, (name,) in files]
    offsets = [0 if file else last - position + 1 for file, position, last in places]
    damage = values(Damage, rows, offsets=offsets, replica=replicas)
    return tuple(sorted(damage, key=lambda d: (d.topic, d.partition, d.file, d.position)))


def state_records(rows: pa.Table, records: Sequence[RecordUse]) -> Iterator[StateRecord]:
    """The newest records that describe groups and transactional ids, but those that no release reads."""
    uses = {(use.topic, use.key_version): use for use in records}
    columns = ["topic", "partition", "key_version", "key", "value", "last_offset"]
    for topic, partition, key_version, key_data, data, offset in tuples(rows.select(columns)):
        use = uses[topic, key_version]
        key = _decoded(use.keys, key_data)
        version = None if data is None else int.from_bytes(data[:VERSION_BYTES], "big", signed=True)
        value = None if version is None else _decoded(use.values.get(version, ()), data)
        if key is None or (value is None and data is not None):
            continue
        tags = frozenset() if value is None else {(tag.path, tag.tag) for tag in value.tags}
        yield StateRecord(
            topic=topic,
            partition=partition,
            record=use.name,
            key=key.value,
            value=None if value is None else value.value,
            offset=offset,
            tags=frozenset((key_version, version or 0, path, tag) for path, tag in tags),
        )


def _decoded(uses: Sequence[LayoutUse], data: bytes) -> Decoded | None:
    for use in uses:
        try:
            return decode(use.layout, data, VERSION_BYTES)
        except MessageFormatError:
            continue
    return None


def _tag_name(schemas: Schemas, release: Release, place: TagPlace) -> str | None:
    """What the release calls the tagged field; None if its definition does not have it."""
    topic, _, key_version, value_version, path, tag = place
    known = schemas.layouts(release, topic, key_version)
    if known is None or value_version not in known.value.valid_versions:
        return None
    struct: StructLayout | None = known.value.layout(value_version).struct
    for step in path.split(".") if path else ():
        found = (*struct.fields, *struct.tagged.values()) if struct else ()
        struct = next((field.struct for field in found if join("", field) == step), None)
    field = struct.tagged.get(tag) if struct else None
    return field.name if field else None


def find_deleted_while_pending(
    few: pa.Table, contents: MergedRows, logs: LogsToRead
) -> tuple[DeletedWhilePending, ...]:
    """Return the deleted groups for which open transactions commit offsets.

    `few`, `contents`: as in Scanned, of a deep scan of these logs, of one copy.
    """
    waiting = {place: _waiting(logs, place, producers) for place, producers in _open_transactions(few).items()}
    found: list[DeletedWhilePending] = []
    for partition, groups in _deleted(contents, waiting).items():
        log = logs.read_whole(GROUPS_TOPIC, partition)
        found += deleted_while_pending(partition, groups, log, logs.replica(GROUPS_TOPIC, partition))
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


def find_out_of_order(
    few: pa.Table, contents: MergedRows, logs: LogsToRead, facts: CoordinatorFacts
) -> tuple[OutOfOrder, ...]:
    """`few`, `contents`: as in Scanned, of a deep scan of these logs, of one copy."""
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
            log = logs.read_whole(GROUPS_TOPIC, partition)
            found += out_of_order(partition, suspects, log, facts, logs.replica(GROUPS_TOPIC, partition))
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
