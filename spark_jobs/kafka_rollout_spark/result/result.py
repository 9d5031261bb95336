"""From the merged rows of a scan's workers to its result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_rollout.coordinator_logs.contents import StateRecord
from kafka_rollout.coordinator_logs.scan import (
    OWNERS_OF_TAG,
    BrokenRecords,
    Damage,
    LogSize,
    OwnerRecords,
    TaggedFields,
)
from kafka_rollout.kafka.documents.definitions import Schemas
from kafka_rollout.kafka.formats.layouts import StructLayout
from kafka_rollout.kafka.formats.messages import Decoded, MessageFormatError, decode, join
from kafka_rollout.kafka.formats.record_kinds import LogRange, RecordKind
from kafka_rollout.releases.facts import Catalogue, Release
from kafka_rollout_spark.kernel.programs import LayoutUse, RecordUse
from kafka_rollout_spark.rows import RowKind

Row = Mapping[str, Any]
TagPlace = tuple[str, int, int, int, str, int]  # topic, partition, key version, value version, path and tag

_VERSION_BYTES = 2


@dataclass(frozen=True, slots=True)
class OwnersOfTags:
    """The groups and transactional ids whose current record has a tagged field.

    `listed`: topic and key version of the record types of which owners are known.
    """

    names: Mapping[TagPlace, Collection[str]]
    listed: Collection[tuple[str, int]]

    def find(self, row: Row) -> list[str] | None:
        if (row["topic"], row["key_version"]) not in self.listed:
            return None
        place = (row["topic"], row["partition"], row["key_version"], row["value_version"], row["path"], row["tag"])
        return sorted(self.names.get(place, ()))


def of_kind(rows: Iterable[Row], kind: RowKind) -> Iterator[Row]:
    return (row for row in rows if row["kind"] == kind)


def record_classes(rows: Iterable[Row], *, live: bool) -> tuple[RecordKind, ...]:
    classes = (
        RecordKind(
            **_fields(row, "topic", "partition", "key_version", "value_version", "count", "first_offset"),
            live=_live(row, live),
        )
        for row in of_kind(rows, RowKind.CLASS)
    )
    return tuple(sorted(classes, key=lambda c: (c.topic, c.partition, c.first_offset)))


def with_last_batches(rows: Iterable[Row], classes: Iterable[RecordKind]) -> Iterator[tuple[RecordKind, int]]:
    """With each class the base offset of the last batch that holds such a record."""
    places = ("topic", "partition", "key_version", "value_version")
    lasts = {tuple(row[name] for name in places): row["last_offset"] for row in of_kind(rows, RowKind.CLASS)}
    return ((c, lasts[c.topic, c.partition, c.key_version, c.value_version]) for c in classes)


def broken_records(rows: Iterable[Row], *, live: bool) -> tuple[BrokenRecords, ...]:
    broken = (
        BrokenRecords(
            **_fields(row, "topic", "partition", "key_version", "value_version", "part", "count", "first_offset"),
            releases=tuple(sorted(Release.parse(text) for text in row["releases"].split(","))),
            reason=row["reason"],
            live=_live(row, live),
        )
        for row in of_kind(rows, RowKind.BROKEN)
    )
    return tuple(sorted(broken, key=lambda b: (b.topic, b.partition, b.first_offset, b.part)))


def tagged_fields(
    rows: Iterable[Row],
    catalogue: Catalogue,
    schemas: Schemas,
    owners: OwnersOfTags,
) -> tuple[TaggedFields, ...]:
    tagged = []
    for row in of_kind(rows, RowKind.TAG):
        names = {release: name for release in catalogue if (name := _tag_name(schemas, release, row)) is not None}
        place = _fields(row, "topic", "partition", "key_version", "value_version", "path", "tag")
        known_by = tuple(sorted(names))
        listed = owners.find(row)
        tagged.append(
            TaggedFields(
                **place,
                **_fields(row, "count", "first_offset"),
                name=names[known_by[-1]] if known_by else None,
                known_by=known_by,
                owners=None if listed is None else tuple(listed[:OWNERS_OF_TAG]),
                owners_left_out=max(0, len(listed or ()) - OWNERS_OF_TAG),
            )
        )
    return tuple(sorted(tagged, key=lambda t: (t.topic, t.partition, t.key_version, t.value_version, t.path, t.tag)))


def owner_records(row: Row, *, live: bool) -> OwnerRecords:
    counted = _fields(row, "topic", "partition", "owner", "name", "key_version", "value_version", "count")
    return OwnerRecords(**counted, first_offset=row["first_offset"], live=_live(row, live))


def log_sizes(rows: Iterable[Row], logs: Sequence[LogRange]) -> tuple[LogSize, ...]:
    """One of each log; zeros for a log in which no batch was read."""
    by_partition = {(row["topic"], row["partition"]): row for row in of_kind(rows, RowKind.LOG)}
    return tuple(_log_size(log, by_partition.get((log.topic, log.partition), {})) for log in logs)


def damage_of(rows: Iterable[Row]) -> tuple[Damage, ...]:
    names = ("topic", "partition", "file", "position", "log_bytes", "sentence")
    damage = (
        Damage(**_fields(row, *names), offsets=0 if row["file"] else row["last_offset"] - row["position"] + 1)
        for row in of_kind(rows, RowKind.DAMAGE)
    )
    return tuple(sorted(damage, key=lambda d: (d.topic, d.partition, d.file, d.position)))


def state_records(rows: Iterable[Row], records: Sequence[RecordUse]) -> Iterator[StateRecord]:
    """The newest records that describe groups and transactional ids, but those that no release reads."""
    uses = {(use.topic, use.key_version): use for use in records}
    for row in of_kind(rows, RowKind.STATE):
        use = uses[row["topic"], row["key_version"]]
        key = _decoded(use.keys, row["key"])
        data = row["value"]
        version = None if data is None else int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
        value = None if version is None else _decoded(use.values.get(version, ()), data)
        if key is None or (value is None and data is not None):
            continue
        tags = frozenset() if value is None else {(tag.path, tag.tag) for tag in value.tags}
        yield StateRecord(
            topic=row["topic"],
            partition=row["partition"],
            record=use.name,
            key=key.value,
            value=None if value is None else value.value,
            offset=row["last_offset"],
            tags=frozenset((row["key_version"], version or 0, path, tag) for path, tag in tags),
        )


def _decoded(uses: Sequence[LayoutUse], data: bytes) -> Decoded | None:
    for use in uses:
        try:
            return decode(use.layout, data, _VERSION_BYTES)
        except MessageFormatError:
            continue
    return None


def _tag_name(schemas: Schemas, release: Release, row: Row) -> str | None:
    """What the release calls the tagged field; None if its definition does not have it."""
    known = schemas.layouts(release, row["topic"], row["key_version"])
    if known is None or row["value_version"] not in known.value.valid_versions:
        return None
    struct: StructLayout | None = known.value.layout(row["value_version"]).struct
    for step in row["path"].split(".") if row["path"] else ():
        fields = (*struct.fields, *struct.tagged.values()) if struct else ()
        struct = next((field.struct for field in fields if join("", field) == step), None)
    field = struct.tagged.get(row["tag"]) if struct else None
    return field.name if field else None


def _log_size(log: LogRange, row: Row) -> LogSize:
    def number(name: str, otherwise: int) -> int:
        value = row.get(name)
        return otherwise if value is None else int(value)

    return LogSize(
        topic=log.topic,
        partition=log.partition,
        records=number("count", 0),
        batches=number("batches", 0),
        control_batches=number("control_batches", 0),
        log_bytes=number("log_bytes", 0),
        first_timestamp=number("first_timestamp", -1),
        last_timestamp=number("last_timestamp", -1),
    )


def _fields(row: Row, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _live(row: Row, live: bool) -> int | None:
    return (row["live"] or 0) if live else None
