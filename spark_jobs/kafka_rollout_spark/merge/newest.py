"""Finds the newest record of each key: converts the entries of a bucket to rows that add to `live`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_rollout_spark.kernel import keys
from kafka_rollout_spark.kernel.tables import ENTRY
from kafka_rollout_spark.rows import WORKER_ROWS, ReplicaId, RowKind, rows

_FIRST_SLOTS = 1 << 16
_FULL = 0.75  # of the slots

# log, key version, value version, (part, releases) of every layout that cannot read such a record
LiveClass = tuple[ReplicaId, int | None, int | None, tuple[tuple[str, str], ...]]


class NewestOfKeys:
    """The keys of a bucket. Memory: 40 bytes per key, 60 while the table grows, and 8 bytes per slot."""

    COLUMNS = ("topic", "partition", "copy", "first_offset", "entries", "classes")

    def __init__(self) -> None:
        self._table = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self._known = self._room()
        self._used = 0
        self._classes: dict[LiveClass, int] = {}

    def add(self, row: dict[str, Any]) -> None:
        entries = np.frombuffer(row["entries"], dtype=np.int64).reshape(-1, ENTRY)
        classes = np.array([self._class(row, fields) for fields in json.loads(row["classes"])], dtype=np.int64)
        at = 0
        while True:
            at, self._used = keys.add_entries(
                self._table.ctypes.data, len(self._table), self._known.ctypes.data, self._used, len(self._known),
                entries.ctypes.data, at, len(entries), row["first_offset"], classes.ctypes.data,
            )  # fmt: skip
            if at == len(entries):
                return
            self._grow()

    def _room(self) -> Any:
        return np.empty((int(_FULL * len(self._table)), keys.KNOWN), dtype=np.int64)

    def _grow(self) -> None:
        slots = 2 * len(self._table)
        self._table = np.zeros(0, dtype=np.int64)  # the smaller one is not needed for the larger one
        self._table = np.zeros(slots, dtype=np.int64)
        smaller = self._known
        self._known = self._room()
        self._known[: self._used] = smaller[: self._used]
        keys.fill_table(self._table.ctypes.data, slots, self._known.ctypes.data, self._used, keys.KNOWN)

    def _class(self, row: dict[str, Any], fields: Any) -> int:
        key_version, value_version, broken = fields
        log = row["topic"], row["partition"], row["copy"]
        of_log = log, key_version, value_version, tuple(tuple(pair) for pair in broken)
        return self._classes.setdefault(of_log, len(self._classes))

    def rows(self) -> Iterator[pa.RecordBatch]:
        classes = list(self._classes)
        known = self._known[: self._used]
        counts = np.bincount(known[:, keys.CLASS], minlength=len(classes)).tolist()
        found = []
        for ((topic, partition, copy), key_version, value_version, broken), live in zip(classes, counts, strict=True):
            of_class = {
                **{"topic": topic, "partition": partition, "copy": copy},
                **{"key_version": key_version, "value_version": value_version, "count": 0, "live": live},
            }
            found.append({"kind": RowKind.CLASS, **of_class})
            found += [{"kind": RowKind.BROKEN, **of_class, "part": p, "releases": names} for p, names in broken]
        yield pa.RecordBatch.from_pylist(found, schema=WORKER_ROWS)
        owned = np.flatnonzero(known[:, keys.OWNER])
        owners_of_all, classes_of_all = known[owned, keys.OWNER], known[owned, keys.CLASS]
        for place, (log, key_version, value_version, _) in enumerate(classes):
            owners, lives = np.unique(owners_of_all[classes_of_all == place], return_counts=True)
            if len(owners):
                yield rows(
                    RowKind.OWNER,
                    log,
                    len(owners),
                    key_version=[key_version] * len(owners),
                    value_version=[value_version] * len(owners),
                    name_hash=owners,
                    count=np.zeros(len(owners), dtype=np.int64),
                    live=lives,
                )


def reduce_entries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of kind `entries` become rows that bring `live`; all other rows are handed through.

    Buckets do not share a key: one call gets all entries of its buckets.
    """
    newest = NewestOfKeys()
    for batch in batches:
        is_entry = pc.equal(batch["kind"], str(RowKind.ENTRIES))
        yield batch.filter(pc.invert(is_entry))
        for row in batch.filter(is_entry).select(list(NewestOfKeys.COLUMNS)).to_pylist():
            newest.add(row)
    yield from newest.rows()
