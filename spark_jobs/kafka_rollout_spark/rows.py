"""What the workers of a scan get, bytes of logs (LogBytes), and the rows that they return.

There is one wide Arrow schema, in which every kind of row has its own columns. Rows are partial: each worker reports
what it read. merge/merged.py merges them by `kind` and MERGE_BY: the sum of `SUMS`, the least of `MINIMA`, the greatest
of `MAXIMA`, the value of `OF_FIRST` in the row with the least `first_offset`, and of `OF_LAST` in the row with the
greatest `last_offset`. Nulls do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBytes:
    """Bytes of one replica that begin at a record batch. They must stay valid until the next LogBytes are read.

    Records with start <= offset < end count; a batch counts if its last offset is in this range. `file` and `position`
    are the place of the bytes in a segment. Fetched bytes have no file: the place of damage in them is an offset.
    """

    topic: str
    partition: int
    copy: int = 0
    """As in ReplicaRange."""
    data: memoryview
    start: int = 0
    end: int = 2**63 - 1
    file: str | None = None
    position: int = 0


OPENED, ENDED = "opened", "ended"  # transactional batches of a producer, and transaction markers


class RowKind(StrEnum):
    """Kinds of rows, each with its columns in addition to `kind`, `topic`, `partition` and `copy`.

    Rows with `count` 0 and no `first_offset` only add to `live`, the number of current records, which `reduce_entries`
    computes. It is null if the scan does not determine current records.
    """

    CLASS = "class"  # key_version, value_version, count, first_offset, last_offset (its last batch's base), live
    LOG = "log"  # count (records), batches, control_batches, log_bytes, first/last_offset, first/last_timestamp
    BROKEN = "broken"  # key_version, value_version, part, releases, count, first_offset, reason, live
    TAG = "tag"  # key_version, value_version, path, tag, count, first_offset
    OWNER = "owner"  # key_version, value_version, owner, name, name_hash, count, first_offset, live
    COMMITS = "commits"  # key_version, value_version, name (the committed topic), name_hash, count, first_offset
    GROUP = "group"  # key_version, value_version, name (a group that commits), name_hash, count, first/last_offset
    STATE = "state"  # record, key_hash, last_offset, key_version, key, value (with its version); the newest is kept
    PRODUCER = "producer"  # key_hash (producer id), part (OPENED or ENDED), first/last_offset (of data or markers)
    DAMAGE = "damage"  # file, position, log_bytes, sentence; of a live log: file "", position and last_offset (offsets)
    ENTRIES = "entries"  # bucket, first_offset (base of the entries' offsets), entries, classes; not merged


WORKER_ROWS = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("copy", pa.int32()),  # as in ReplicaRange
        pa.field("key_version", pa.int32()),  # as in RecordKind
        pa.field("value_version", pa.int32()),
        pa.field("part", pa.string()),  # as in BrokenRecords
        pa.field("releases", pa.string()),  # as in BrokenRecords, with commas between
        pa.field("path", pa.string()),  # as in TaggedFields
        pa.field("tag", pa.int64()),
        pa.field("owner", pa.string()),  # as in OwnerRecords; null in rows that only add to `live`
        pa.field("name", pa.string()),  # as in OwnerRecords
        pa.field("name_hash", pa.int64()),
        pa.field("record", pa.string()),  # the catalogue's record name
        pa.field("key_hash", pa.int64()),
        pa.field("key", pa.binary()),  # with the two bytes of its version
        pa.field("value", pa.binary()),  # with the two bytes of its version; null for a tombstone
        pa.field("count", pa.int64()),
        pa.field("live", pa.int64()),
        pa.field("first_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("batches", pa.int64()),
        pa.field("control_batches", pa.int64()),
        pa.field("log_bytes", pa.int64()),
        pa.field("first_timestamp", pa.int64()),  # epoch milliseconds
        pa.field("last_timestamp", pa.int64()),
        pa.field("file", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("sentence", pa.string()),
        pa.field("bucket", pa.int32()),
        pa.field("entries", pa.binary()),
        pa.field("classes", pa.binary()),
    ]
)
MERGE_BY = (
    *("topic", "partition", "copy", "key_version", "value_version", "part", "releases", "path", "tag"),
    *("name_hash", "record", "key_hash", "file", "position"),
)
SUMS = ("count", "live", "batches", "control_batches", "log_bytes")
MINIMA = ("first_offset", "first_timestamp")
MAXIMA = ("last_offset", "last_timestamp", "owner", "name", "sentence")
OF_FIRST = ("reason",)
OF_LAST = ("key", "value")


ReplicaId = tuple[str, int, int]  # topic, partition, copy


def rows(kind: RowKind, log: ReplicaId, size: int, /, **columns: Any) -> pa.RecordBatch:
    """Return `size` rows of one kind. Columns that are not given are null."""
    constants = {"kind": str(kind), **dict(zip(("topic", "partition", "copy"), log, strict=True))}
    arrays = []
    for field in WORKER_ROWS:
        if field.name in constants:
            arrays.append(pa.repeat(pa.scalar(constants[field.name], field.type), size))
        elif field.name in columns:
            arrays.append(pa.array(columns[field.name], field.type))
        else:
            arrays.append(pa.nulls(size, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=WORKER_ROWS)


def damage_row(
    log: ReplicaId,
    sentence: str,
    position: int,
    *,
    file: str = "",
    log_bytes: int = 0,
    last: int | None = None,
) -> pa.RecordBatch:
    """Return a row of kind `damage`. `last`: the last offset of damage in a live log."""
    columns = {"file": file, "position": position, "log_bytes": log_bytes, "last_offset": last, "sentence": sentence}
    return rows(RowKind.DAMAGE, log, 1, **{name: [content] for name, content in columns.items()})


def of_kind(table: pa.Table, kind: RowKind) -> pa.Table:
    return table.filter(pc.field("kind") == str(kind))


def tuples(table: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield the values of each row, in the order of the columns."""
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
