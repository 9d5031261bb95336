"""Arrow batches of decoded records and of damage, with the columns of the data source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kafka_rollout.coordinator_logs.reading.records import DamagedBatch, DecodedRecord, Kinds, RecordDecoder
from kafka_rollout_spark.rows import LogBytes, ReplicaId

ROWS = 10_000
Place = tuple[str, int, str | None]  # topic, partition, replica
_GROUPS, _IDS = ("group", "groupId"), ("transactionalId",)


class Batches:
    """Makes the batches of one task."""

    def __init__(self, schema: pa.Schema, kinds: Mapping[str, Kinds], names: Mapping[ReplicaId, str]) -> None:
        self._schema = schema
        self._names = names
        self._decoders = {topic: RecordDecoder(of_log) for topic, of_log in kinds.items()}
        self._records = schema.field("fields").type

    def of(self, chunks: Iterator[LogBytes]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the chunks, with a row for each batch that cannot be read."""
        for chunk in chunks:
            place = self._place(chunk.topic, chunk.partition, chunk.copy)
            found = self._decoders[chunk.topic].read(chunk.data, start=chunk.start, end=chunk.end)
            for at in range(0, len(found), ROWS):
                yield self._of_records(place, found[at : at + ROWS])

    def of_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the damage that a source reported (kafka_rollout_spark.rows)."""
        found = []
        for row in rows.to_pylist():
            place = self._place(row["topic"], row["partition"], row["copy"])
            at = f"{row['file']} at byte {row['position']}: " if row["file"] else ""
            found.append((*place, None if row["file"] else row["position"], f"{at}{row['sentence']}"))
        return self.of_damage(found)

    def of_damage(self, found: Sequence[tuple[str, int, str | None, int | None, str]]) -> pa.RecordBatch:
        names = ("topic", "partition", "replica", "offset", "damage")
        return self._batch(len(found), dict(zip(names, map(list, zip(*found, strict=True)), strict=True)))

    def _place(self, topic: str, partition: int, copy: int) -> Place:
        return topic, partition, self._names.get((topic, partition, copy))

    def _of_records(self, place: Place, found: Sequence[DecodedRecord | DamagedBatch]) -> pa.RecordBatch:
        records = [one if isinstance(one, DecodedRecord) else None for one in found]
        topic, partition, replica = place
        columns = {
            "topic": [topic] * len(found),
            "partition": [partition] * len(found),
            "replica": [replica] * len(found),
            "offset": [one.offset for one in found],
            "batch_offset": [one and one.batch_offset for one in records],
            "timestamp": [one and (1000 * one.timestamp if one.timestamp >= 0 else None) for one in records],
            "key_version": [one and one.key_version for one in records],
            "value_version": [one and one.value_version for one in records],
            "record": [one and one.name for one in records],
            "group": [one and _named(one.key, _GROUPS) for one in records],
            "transactional_id": [one and _named(one.key, _IDS) for one in records],
            "fields": self._fields(records),
            "broken": [one and ([_broken(part) for part in one.broken] or None) for one in records],
            "damage": [one.sentence if isinstance(one, DamagedBatch) else None for one in found],
        }
        return self._batch(len(found), columns)

    def _fields(self, records: Sequence[DecodedRecord | None]) -> pa.Array:
        by_name: dict[str, list[int]] = {}
        for index, one in enumerate(records):
            if one is not None and one.name is not None:
                by_name.setdefault(one.name, []).append(index)
        arrays = []
        for field in self._records:
            contents: list[Any] = [None] * len(records)
            for index in by_name.get(field.name, ()):
                one = records[index]
                contents[index] = one and {"key": one.key, "value": one.value}
            is_used = field.name in by_name
            arrays.append(pa.array(contents, field.type) if is_used else pa.nulls(len(records), field.type))
        known = {index for name in by_name if self._records.get_field_index(name) >= 0 for index in by_name[name]}
        mask = pa.array([index not in known for index in range(len(records))], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=list(self._records), mask=mask)

    def _batch(self, size: int, columns: Mapping[str, Any]) -> pa.RecordBatch:
        arrays = []
        for field in self._schema:
            content = columns.get(field.name)
            if content is None:
                arrays.append(pa.nulls(size, field.type))
            else:
                arrays.append(content if isinstance(content, pa.Array) else pa.array(content, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _named(key: Mapping[str, Any] | None, names: Sequence[str]) -> str | None:
    return None if key is None else next((key[name] for name in names if name in key), None)


def _broken(part: Any) -> dict[str, Any]:
    return {"part": part.part, "releases": [str(release) for release in part.releases], "reason": part.reason}
