"""From the merged rows of a scan's workers to its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from kafka_rollout.coordinator_logs.contents import StateRecord
from kafka_rollout.coordinator_logs.scan import (
    OWNERS_OF_TAG,
    BrokenRecords,
    Damage,
    LogSize,
    TaggedFields,
)
from kafka_rollout.kafka.documents.definitions import Schemas
from kafka_rollout.kafka.formats.layouts import StructLayout
from kafka_rollout.kafka.formats.log_types import LogRange, RecordKind
from kafka_rollout.kafka.formats.messages import Decoded, MessageFormatError, decode, join
from kafka_rollout.releases.facts import Catalogue, Release
from kafka_rollout_spark.kernel.programs import LayoutUse, RecordUse
from kafka_rollout_spark.rows import RowKind, of_kind, tuples

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")
TagPlace = tuple[str, int, int, int, str, int]

TAG_PLACE = ("topic", "partition", "key_version", "value_version", "path", "tag")
_VERSION_BYTES = 2


def values(kind: type[Value], table: pa.Table | pa.RecordBatch, **columns: Sequence[Any]) -> Iterator[Value]:
    """Yield a value for each row. Its fields are the columns with their names, or of `columns`."""
    found = {
        field.name: columns[field.name] if field.name in columns else table[field.name].to_pylist()
        for field in fields(kind)
    }
    return (kind(**dict(zip(found, row, strict=True))) for row in zip(*found.values(), strict=True))


def record_classes(few: pa.Table) -> tuple[RecordKind, ...]:
    classes = values(RecordKind, of_kind(few, RowKind.CLASS))
    return tuple(sorted(classes, key=lambda c: (c.topic, c.partition, c.first_offset)))


def with_last_batches(few: pa.Table, classes: Iterable[RecordKind]) -> Iterator[tuple[RecordKind, int]]:
    """With each class the base offset of the last batch that holds such a record."""
    columns = ["topic", "partition", "key_version", "value_version", "last_offset"]
    lasts = {tuple(place): last for *place, last in tuples(of_kind(few, RowKind.CLASS).select(columns))}
    return ((c, lasts[c.topic, c.partition, c.key_version, c.value_version]) for c in classes)


def broken_records(few: pa.Table) -> tuple[BrokenRecords, ...]:
    rows = of_kind(few, RowKind.BROKEN)
    releases = [tuple(sorted(map(Release.parse, text.split(",")))) for text in rows["releases"].to_pylist()]
    broken = values(BrokenRecords, rows, releases=releases)
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


def damage_of(few: pa.Table) -> tuple[Damage, ...]:
    rows = of_kind(few, RowKind.DAMAGE)
    places = tuples(rows.select(["file", "position", "last_offset"]))
    damage = values(Damage, rows, offsets=[0 if file else last - position + 1 for file, position, last in places])
    return tuple(sorted(damage, key=lambda d: (d.topic, d.partition, d.file, d.position)))


def state_records(rows: pa.Table, records: Sequence[RecordUse]) -> Iterator[StateRecord]:
    """The newest records that describe groups and transactional ids, but those that no release reads."""
    uses = {(use.topic, use.key_version): use for use in records}
    columns = ["topic", "partition", "key_version", "key", "value", "last_offset"]
    for topic, partition, key_version, key_data, data, offset in tuples(rows.select(columns)):
        use = uses[topic, key_version]
        key = _decoded(use.keys, key_data)
        version = None if data is None else int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
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
            return decode(use.layout, data, _VERSION_BYTES)
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
