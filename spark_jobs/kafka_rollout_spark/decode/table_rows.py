"""Converts the tables that the kernel filled to rows (rows.py)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_rollout_spark.kernel import noting
from kafka_rollout_spark.kernel import tables as t
from kafka_rollout_spark.kernel.programs import LayoutUse, LogPrograms, Numbers, owner_kind
from kafka_rollout_spark.rows import ENDED, OPENED, RowKind, rows

_UUID_BYTES, _PARTITION_BYTES = 16, 4

Key, Value = "key", "value"
_LAYOUTS_MASK = (1 << 2 * t.LAYOUT_BITS) - 1
Memory = npt.NDArray[np.uint8]


class ClassCode:
    """The parts of a class code (tables.py). A version is None as in RecordKind."""

    __slots__ = ("broken", "key_version", "value_version")

    def __init__(self, code: int) -> None:
        self.value_version = _version(code >> 2 * t.LAYOUT_BITS)
        self.key_version = _version(code >> (t.VERSION_BITS + 2 * t.LAYOUT_BITS))
        bits = [bit for bit in range(2 * t.LAYOUT_BITS) if code >> bit & 1] if code & _LAYOUTS_MASK else ()
        self.broken = tuple((Value if bit < t.LAYOUT_BITS else Key, bit % t.LAYOUT_BITS) for bit in bits)


def _version(bits: int) -> int | None:
    bits &= t.VERSION_MASK
    if bits == t.NO_VERSION:
        return None
    return bits - 2 * (bits & 0x8000)


class TableRows:
    """Rows of one log, most of them from the tables. The caller empties the tables."""

    def __init__(self, tables: t.Tables, log: LogPrograms, topic: str, partition: int) -> None:
        self._log = topic, partition
        self._tables = tables
        self._records = {record.key_version: record for record in log.records}
        self._paths = log.paths
        self._codes: list[ClassCode] = []
        self._classes_json = (0, b"")

    def rows(self, kind: RowKind, size: int, **columns: Any) -> pa.RecordBatch:
        """Return `size` rows of one kind of this log. Columns that are not given are null."""
        return rows(kind, *self._log, size, **columns)

    def clear(self) -> None:
        """Forget the classes. Call this when the table of classes was emptied."""
        self._codes = []
        self._classes_json = (0, b"")

    def codes(self) -> list[ClassCode]:
        new = self._tables.class_code[len(self._codes) : self._tables.control[t.CLASSES]]
        self._codes += [ClassCode(code) for code in new.tolist()]
        return self._codes

    def layout(self, code: ClassCode, part: str, bit: int) -> LayoutUse:
        """Return the layout with which the key or value of such a record does not parse."""
        assert code.key_version is not None  # noqa: S101 - a key without a version is not parsed
        record = self._records[code.key_version]
        return record.keys[bit] if part == Key else record.values[code.value_version or 0][bit]

    def classes(self) -> pa.RecordBatch:
        codes, (counts, firsts) = self.codes(), self._counts()
        lasts = self._tables.class_last[: len(codes)]
        columns = {"count": counts, "first_offset": firsts, "last_offset": lasts, **_versions(codes)}
        return self.rows(RowKind.CLASS, len(codes), **columns)

    def broken(self, reasons: dict[tuple[int, str, int], str]) -> pa.RecordBatch:
        """Return the records that do not parse. `reasons`: (class, part, layout) → reason of the first record."""
        columns: dict[str, list[Any]] = {name: [] for name in _BROKEN}
        for index, (code, count, first) in enumerate(zip(self.codes(), *self._counts(), strict=True)):
            for part, bit in code.broken:
                values = (
                    *(code.key_version, code.value_version, part, self.releases(code, part, bit)),
                    *(count, first, reasons.get((index, part, bit))),
                )
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(value)
        return self.rows(RowKind.BROKEN, len(columns["part"]), **columns)

    def _counts(self) -> tuple[list[int], list[int]]:
        used = int(self._tables.control[t.CLASSES])
        return self._tables.class_count[:used].tolist(), self._tables.class_first[:used].tolist()

    def releases(self, code: ClassCode, part: str, bit: int) -> str:
        return ",".join(str(release) for release in self.layout(code, part, bit).releases)

    def names(self, memory: Memory) -> Iterator[pa.RecordBatch]:
        """Yield groups and transactional ids, committed topics, tagged fields, and groups that commit."""
        tables, codes = self._tables, self.codes()
        for kind, fill in (
            (noting.OWNER_NAME, self._owners),
            (noting.COMMITS_NAME, self._commits),
            (noting.TAG_NAME, self._tags),
            (noting.GROUP_NAME, self._groups),
        ):
            slots = np.flatnonzero((tables.name_hash != 0) & (tables.name_what >> 32 == kind))
            if len(slots) == 0:
                continue
            of_names = [codes[index] for index in tables.name_what[slots] & 0xFFFFFFFF]
            row_kind, columns = fill(slots, of_names, memory)
            yield self.rows(
                row_kind,
                len(slots),
                count=tables.name_count[slots],
                first_offset=tables.name_first[slots],
                **_versions(of_names),
                **columns,
            )

    def _owners(self, slots: Numbers, codes: Sequence[ClassCode], memory: Memory) -> tuple[RowKind, dict[str, Any]]:
        kinds = {version: owner_kind(record.keys[0].layout) for version, record in self._records.items()}
        owners = [kinds[code.key_version] for code in codes if code.key_version is not None]
        names = [_owner_name(owner, name) for owner, name in zip(owners, self._texts(slots, memory), strict=True)]
        return RowKind.OWNER, {"owner": owners, "name": names, "name_hash": self._tables.name_hash[slots]}

    def _commits(self, slots: Numbers, _: Sequence[ClassCode], memory: Memory) -> tuple[RowKind, dict[str, Any]]:
        names = [name.decode("utf-8", "replace") for name in self._texts(slots, memory)]
        return RowKind.COMMITS, {"name": names, "name_hash": self._tables.name_hash[slots]}

    def _groups(self, slots: Numbers, codes: Sequence[ClassCode], memory: Memory) -> tuple[RowKind, dict[str, Any]]:
        _, named = self._commits(slots, codes, memory)
        return RowKind.GROUP, {**named, "last_offset": self._tables.name_last[slots]}

    def _tags(self, slots: Numbers, _: Sequence[ClassCode], __: Memory) -> tuple[RowKind, dict[str, Any]]:
        hashed = self._tables.name_hash[slots] - 1
        tags = hashed & 0xFFFFFFFF
        return RowKind.TAG, {
            "path": [self._paths[path] for path in hashed >> 33],
            "tag": np.where(tags < 1 << 31, tags, tags - (1 << 32)),  # a Java int, as wire.messages has it
        }

    def _texts(self, slots: Numbers, memory: Memory) -> Iterator[bytes]:
        places = zip(self._tables.name_at[slots].tolist(), self._tables.name_size[slots].tolist(), strict=True)
        return (memory[at : at + size].tobytes() for at, size in places)

    def states(self, memory: Memory) -> pa.RecordBatch:
        tables, codes = self._tables, self.codes()
        slots = np.flatnonzero(tables.state_hash)
        versions = [codes[index] for index in tables.state_class[slots]]
        keys, values = [], []
        for at, key, value in zip(
            *(column[slots].tolist() for column in (tables.state_at, tables.state_key, tables.state_value)), strict=True
        ):
            keys.append(memory[at : at + key].tobytes())
            values.append(None if value < 0 else memory[at + key : at + key + value].tobytes())
        return self.rows(
            RowKind.STATE,
            len(slots),
            record=[self._records[code.key_version].name for code in versions if code.key_version is not None],
            key_version=[code.key_version for code in versions],
            key_hash=tables.state_hash[slots],
            last_offset=tables.state_offset[slots],
            key=keys,
            value=values,
        )

    def producers(self) -> Iterator[pa.RecordBatch]:
        tables = self._tables
        for part, firsts, lasts in (
            (OPENED, tables.producer_first, tables.producer_last),
            (ENDED, tables.producer_marker, tables.producer_marker),
        ):
            slots = np.flatnonzero(lasts)
            yield self.rows(
                RowKind.PRODUCER,
                len(slots),
                part=[part] * len(slots),
                key_hash=tables.producer_id[slots],
                first_offset=firsts[slots] - 1,
                last_offset=lasts[slots] - 1,
            )

    def bucket(self, bucket: int, entries: Numbers) -> pa.RecordBatch:
        return self.rows(
            RowKind.ENTRIES,
            1,
            bucket=[bucket],
            first_offset=[int(self._tables.control[t.BASE])],
            entries=[entries.tobytes()],
            classes=[self._classes()],
        )

    def _classes(self) -> bytes:
        """Return JSON of the classes: key version, value version, (part, releases) of each layout that fails."""
        codes = self.codes()
        if self._classes_json[0] < len(codes):
            classes = [
                (c.key_version, c.value_version, [(part, self.releases(c, part, bit)) for part, bit in c.broken])
                for c in codes
            ]
            self._classes_json = len(codes), json.dumps(classes).encode()
        return self._classes_json[1]


_BROKEN = ("key_version", "value_version", "part", "releases", "count", "first_offset", "reason")


def _versions(codes: Sequence[ClassCode]) -> dict[str, list[int | None]]:
    return {"key_version": [c.key_version for c in codes], "value_version": [c.value_version for c in codes]}


def _owner_name(owner: str | None, data: bytes) -> str:
    if owner != "share_partition":
        return data.decode("utf-8", "replace")
    uuid_at = len(data) - _UUID_BYTES - _PARTITION_BYTES
    uuid = base64.urlsafe_b64encode(data[uuid_at:-_PARTITION_BYTES]).decode()[:-2]
    partition = int.from_bytes(data[-_PARTITION_BYTES:], "big", signed=True)
    return f"{data[:uuid_at].decode('utf-8', 'replace')}:{uuid}:{partition}"
