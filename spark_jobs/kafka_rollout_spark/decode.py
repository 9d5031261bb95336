"""Decodes bytes of logs to rows (rows.py): calls the kernel, and processes in Python the batches that it cannot read.

The rest of the Spark job uses only `whole_batches` and `worker_rows` to decode.

As a program it compiles the kernel, so that no scan must wait for it: python -m kafka_rollout_spark.decode. The result
stays in the cache ($KAFKA_ROLLOUT_CACHE/numba) until a source of the kernel changes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_rollout.formats.codecs import MOST_PAYLOAD_BYTES
from kafka_rollout.formats.coordinator_records import KindCounts, decode_checked
from kafka_rollout.formats.log_types import LogFormatError, RecordBatch, RecordSpan
from kafka_rollout.formats.messages import MessageFormatError, zigzag_varint
from kafka_rollout.formats.record_batch import batches, check_crc, header_at, payload, records
from kafka_rollout_spark.kernel import COMPLETE, keys, noting, scanning
from kafka_rollout_spark.kernel import tables as t
from kafka_rollout_spark.kernel.hashing import hashes_of_name
from kafka_rollout_spark.kernel.libraries import close_libraries, open_libraries
from kafka_rollout_spark.kernel.programs import (
    DecodingSpec,
    LayoutUse,
    LogPrograms,
    Numbers,
    owner_kind,
    write_programs,
)
from kafka_rollout_spark.rows import ENDED, OPENED, LogBytes, ReplicaId, RowKind, damage_row, rows

_FIRST_SCRATCH = 4 << 20
_GROWTH = 4
_ENTRIES_A_ROW = 1 << 17  # 4 MiB; Spark keeps whole rows in memory
_NOT_PARSED = write_programs((), ())


def whole_batches(data: memoryview) -> int:
    """Return the number of bytes at the start of `data` that are whole batches, by length and magic of their headers.

    A source ends its chunk there. The result also ends at a place where no batch can begin. The source then searches
    for the next batch.
    """
    return scanning.batches_end(np.frombuffer(data, dtype=np.uint8).ctypes.data, len(data))


def worker_rows(chunks: Iterator[LogBytes], spec: DecodingSpec) -> Iterator[pa.RecordBatch]:
    """Yield the partial rows (rows.py) of the chunks. Chunks of one partition should be consecutive."""
    with closing(LogReader(spec)) as reader:
        for log, chunks_of_log in groupby(chunks, lambda chunk: (chunk.topic, chunk.partition, chunk.copy)):
            reader.begin(log)
            for chunk in chunks_of_log:
                yield from reader.read(chunk)
            yield from reader.finish()


class LogReader:
    """Rows of one log (of one replica) at a time: `begin`, `read` its chunks, `finish`. At the end `close`."""

    def __init__(self, spec: DecodingSpec) -> None:
        self._spec = spec
        deep = bool(spec.logs)
        self._tables = t.create_tables(deep=deep, live=spec.live, buckets=spec.buckets)
        self._control = self._tables.control
        self._at = self._control.ctypes.data
        self._scratch = self._memory(t.SCRATCH_AT, t.SCRATCH_SIZE, _FIRST_SCRATCH)
        self._names = self._memory(t.NAMES_AT, t.NAMES_SIZE, t.NAME_BYTES if deep else 0)
        self._states = self._memory(t.STATES_AT, t.STATES_SIZE, t.STATE_BYTES if deep else 0)
        self._hash_numbers = spec.hash_numbers.table()
        self._control[t.HASH_NUMBERS] = self._hash_numbers.ctypes.data
        self._addresses = open_libraries()
        for place, address in self._addresses.items():
            self._control[place] = address
        self._reasons: dict[tuple[int, str, int], str] = {}
        self._classes_seen = 0

    def close(self) -> None:
        close_libraries(self._addresses)

    def _memory(self, at: int, size: int, count: int) -> Memory:
        memory = np.empty(count, dtype=np.uint8)
        self._control[at], self._control[size] = memory.ctypes.data, count
        return memory

    def begin(self, place: ReplicaId) -> None:
        log = self._spec.logs.get(place[0], _NOT_PARSED)
        t.set_programs(self._control, log.programs)
        self._rows = TableRows(self._tables, log, place)
        self._reasoned: set[tuple[int | None, int | None, str, int]] = set()
        self._clear_classes()
        control = self._control
        name = np.frombuffer("-".join(map(str, place)).encode(), dtype=np.uint8)
        control[t.FIRST_SEED], control[t.SECOND_SEED] = hashes_of_name(
            name.ctypes.data, len(name), self._hash_numbers.ctypes.data
        )
        control[t.BASE] = control[t.GROUPS] = 0
        control[t.RECORDS : t.FIRST_OFFSET] = 0
        control[t.FIRST_OFFSET] = control[t.FIRST_TIMESTAMP] = t.NONE_YET
        control[t.LAST_OFFSET] = control[t.LAST_TIMESTAMP] = -1

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._drain()
        control = self._control
        columns = {
            name: [None if control[place] in (-1, t.NONE_YET) else int(control[place])]
            for name, place in _LOG_COLUMNS.items()
        }
        yield self._rows.rows(RowKind.LOG, 1, **columns)

    def read(self, chunk: LogBytes) -> Iterator[pa.RecordBatch]:
        control, data = self._control, np.frombuffer(chunk.data, dtype=np.uint8)
        control[t.DATA_AT], control[t.DATA_SIZE] = data.ctypes.data, len(data)
        control[t.POSITION] = control[t.IN_BATCH] = 0
        control[t.START], control[t.STOP] = chunk.start, chunk.end
        while (status := scanning.scan(self._at)) != keys.DONE:
            self._find_reasons(chunk)
            match status:
                case noting.FULL_CLASSES:
                    yield from self._drain()
                case noting.FULL_NAMES:
                    yield from self._drain_names()
                case noting.FULL_STATES:
                    yield from self._drain_states()
                case noting.FULL_PRODUCERS:
                    yield from self._drain_producers()
                case keys.FULL_KEYS:
                    yield from self._make_room_for_keys()
                case noting.FAR:
                    yield from self._drain_keys()
                    control[t.BASE] = control[t.BATCH_OFFSET]
                case _:
                    yield from self._process_batch(status, chunk)
        self._find_reasons(chunk)

    # --- batches that the kernel cannot read ---

    def _process_batch(self, status: int, chunk: LogBytes) -> Iterator[pa.RecordBatch]:
        """Enable the kernel to continue with the same batch, or after a batch that is damaged."""
        control = self._control
        at, size = int(control[t.POSITION]), int(control[t.SIZE])
        data = chunk.data[at : at + size]
        try:
            match status:
                case scanning.MORE_SCRATCH:
                    self._grow_scratch(int(control[t.SCRATCH_SIZE]) + 1)
                    return
                case scanning.OTHER_CODEC:
                    (batch,) = batches(data)
                    self._put_into_scratch(payload(batch))
                    control[t.GIVEN] = control[t.WANTED]
                    return
                case scanning.LEGACY:
                    (batch,) = batches(data)
                    check_crc(batch)
                    self._translate(batch, chunk)
                    return
                case _:
                    raise LogFormatError(_sentence(status, chunk, data))
        except LogFormatError as error:
            yield self._damage(chunk, at, size, error)
        control[t.IN_BATCH] = 0
        control[t.POSITION] = at + size

    def _put_into_scratch(self, data: bytes) -> None:
        if len(data) > len(self._scratch):
            self._grow_scratch(len(data))
        self._scratch[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        self._control[t.WANTED] = len(data)

    def _translate(self, batch: RecordBatch, chunk: LogBytes) -> None:
        """Pass a message set to the kernel as the records of a batch."""
        control, last = self._control, batch.last_offset
        translated, first, count = _translate_messages(batch)
        if last < chunk.start or first >= chunk.end:
            control[t.POSITION] += batch.size
            return
        self._put_into_scratch(translated)
        control[t.IN_BATCH] = 1
        control[t.PAYLOAD] = control[t.PAYLOAD_AT] = control[t.SCRATCH_AT]
        control[t.PAYLOAD_END] = control[t.SCRATCH_AT] + control[t.WANTED]
        control[t.BATCH_OFFSET], control[t.BATCH_LAST], control[t.RECORDS_LEFT] = first, last, count
        scanning.count_batch(self._at, first, last, batch.base_timestamp, batch.max_timestamp, 0)

    def _grow_scratch(self, wanted: int) -> None:
        if wanted > MOST_PAYLOAD_BYTES:
            raise LogFormatError(f"The batch decompresses to more than {MOST_PAYLOAD_BYTES >> 20} MiB.")
        size = min(max(wanted, _GROWTH * len(self._scratch)), MOST_PAYLOAD_BYTES)
        self._scratch = self._memory(t.SCRATCH_AT, t.SCRATCH_SIZE, size)

    def _damage(self, chunk: LogBytes, at: int, size: int, error: LogFormatError) -> pa.RecordBatch:
        """A row with the bytes of a segment, or the offsets of the batch as its header names them, or of the rest."""
        damaged = (chunk.topic, chunk.partition, chunk.copy), error.sentence
        if chunk.file is not None:
            return damage_row(*damaged, chunk.position + at, file=chunk.file, log_bytes=size)
        batch = chunk.data[at : at + size]
        header = header_at(batch, 0, 0)
        first, last = max(chunk.start, int(self._control[t.LAST_OFFSET]) + 1), chunk.end - 1
        if header is not None and header.size == len(batch):
            first, last = max(chunk.start, header.base_offset), min(header.last_offset, last)
        return damage_row(*damaged, first, last=max(first, last))

    def _find_reasons(self, chunk: LogBytes) -> None:
        """Find out why the first records of the new broken classes do not parse. Their batches are in this chunk."""
        codes = self._rows.codes()
        for index, code in enumerate(codes[self._classes_seen :], start=self._classes_seen):
            for part, bit in code.broken:
                known = code.key_version, code.value_version, part, bit
                if known in self._reasoned:
                    continue  # the reason of an earlier record is known
                self._reasoned.add(known)
                try:
                    decode_checked(self._rows.layout(code, part, bit).layout, self._first_record(chunk, index, part), 2)
                except MessageFormatError as error:
                    self._reasons[index, part, bit] = error.sentence
        self._classes_seen = len(codes)

    def _first_record(self, chunk: LogBytes, index: int, part: str) -> bytes:
        """Return the key or the value of the first record of a class."""
        tables = self._tables
        batch = next(batches(chunk.data[int(tables.class_batch[index]) :]))
        data = payload(batch) if batch.magic == 2 else _translate_messages(batch)[0]
        of_part = (tables.class_key, tables.class_key_size, tables.class_value, tables.class_value_size)
        at, size = of_part[:2] if part == Key else of_part[2:]
        return data[at[index] : at[index] + size[index]]

    # --- rows from full tables ---

    def _drain(self) -> Iterator[pa.RecordBatch]:
        """Empty all tables; the classes last, because the other tables refer to them."""
        yield from self._drain_keys()
        yield from self._drain_names()
        yield from self._drain_states()
        yield from self._drain_producers()
        yield self._rows.classes()
        yield self._rows.broken(self._reasons)
        self._clear_classes()

    def _clear_classes(self) -> None:
        self._tables.class_slots[:] = 0
        self._control[t.CLASSES], self._control[t.LAST_CLASS] = 0, -1
        self._rows.clear()
        self._classes_seen = 0
        self._reasons = {}

    def _drain_names(self) -> Iterator[pa.RecordBatch]:
        yield from self._rows.names(self._names)
        self._tables.name_hash[:] = 0
        self._control[t.NAMES] = self._control[t.NAMES_USED] = 0

    def _drain_states(self) -> Iterator[pa.RecordBatch]:
        control = self._control
        if control[t.STATES]:
            yield self._rows.states(self._states)
        self._tables.state_hash[:] = 0
        control[t.STATES] = control[t.STATES_USED] = 0
        if control[t.WANTED] > control[t.STATES_SIZE]:
            self._states = self._memory(t.STATES_AT, t.STATES_SIZE, int(control[t.WANTED]))

    def _drain_producers(self) -> Iterator[pa.RecordBatch]:
        if self._control[t.PRODUCERS]:
            yield from self._rows.producers()
        self._tables.producer_first[:] = self._tables.producer_last[:] = self._tables.producer_marker[:] = 0
        self._control[t.PRODUCERS] = 0

    def _make_room_for_keys(self) -> Iterator[pa.RecordBatch]:
        """Enlarge the key table, or empty it if it has its maximum size."""
        smaller = self._tables.key_table
        self._tables = t.larger_key_table(self._tables)
        if self._tables.key_table is smaller:
            yield from self._empty_key_table()
        else:
            keys.fill_table(
                self._tables.key_table.ctypes.data, len(self._tables.key_table),
                self._tables.key_entries.ctypes.data, int(self._control[t.KEYS_USED]), t.ENTRY,
            )  # fmt: skip

    def _drain_keys(self) -> Iterator[pa.RecordBatch]:
        while keys.insert_queued(self._at) == keys.FULL_KEYS:
            yield from self._make_room_for_keys()
        yield from self._empty_key_table()

    def _empty_key_table(self) -> Iterator[pa.RecordBatch]:
        """Yield all entries, sorted by bucket, and empty the key table."""
        if not (used := int(self._control[t.KEYS_USED])):
            return
        counts = np.zeros(self._spec.buckets, dtype=np.int64)
        keys.count_by_bucket(self._at, counts.ctypes.data)
        ends = np.cumsum(counts)
        starts, entries = ends - counts, np.empty((used, t.ENTRY), dtype=np.int64)
        keys.copy_to_buckets(self._at, entries.ctypes.data, starts.ctypes.data)
        self._tables.key_table[:] = 0
        self._control[t.KEYS_USED] = 0
        for bucket in np.flatnonzero(counts).tolist():
            of_bucket = entries[ends[bucket] - counts[bucket] : ends[bucket]]
            for at in range(0, len(of_bucket), _ENTRIES_A_ROW):
                yield self._rows.bucket(bucket, of_bucket[at : at + _ENTRIES_A_ROW])


_LOG_COLUMNS = {
    "count": t.RECORDS,
    "batches": t.BATCHES,
    "control_batches": t.CONTROL_BATCHES,
    "log_bytes": t.LOG_BYTES,
    "first_offset": t.FIRST_OFFSET,
    "last_offset": t.LAST_OFFSET,
    "first_timestamp": t.FIRST_TIMESTAMP,
    "last_timestamp": t.LAST_TIMESTAMP,
}


def _sentence(status: int, chunk: LogBytes, data: memoryview) -> str:
    if status == scanning.CUT_OFF:
        return f"The last batch is cut off: only {len(data)} of its bytes are in the segment."
    if status == scanning.NO_BATCH:
        return "No record batch begins here. The rest of this split of the segment was not read."
    try:
        KindCounts().add(data, start=chunk.start, end=chunk.end)
    except LogFormatError as error:
        return error.sentence
    return "The batch is corrupt."


def _translate_messages(batch: RecordBatch) -> tuple[bytes, int, int]:
    """Return the messages of a message set (v0 or v1) as records of format v2, its first offset, and their number."""
    data = payload(batch)
    spans = list(records(batch, data))
    first = spans[0].offset
    return b"".join(_as_record(span, data, span.offset - first) for span in spans), first, len(spans)


def _as_record(span: RecordSpan, data: bytes, delta: int) -> bytes:
    """Return a record of the format v2, without timestamp and headers."""
    key, value = (
        data[at : at + max(size, 0)]
        for at, size in ((span.key_at, span.key_length), (span.value_at, span.value_length))
    )
    numbers = [zigzag_varint(number) for number in (delta, span.key_length, span.value_length)]
    body = b"".join((b"\0\0", numbers[0], numbers[1], key, numbers[2], value, b"\0"))
    return zigzag_varint(len(body)) + body


_UUID_BYTES, _PARTITION_BYTES = 16, 4

Key, Value = "key", "value"
_LAYOUTS_MASK = (1 << 2 * t.LAYOUT_BITS) - 1
Memory = npt.NDArray[np.uint8]
_OF_NAMES = {
    noting.OWNER_NAME: RowKind.OWNER,
    noting.COMMITS_NAME: RowKind.COMMITS,
    noting.TAG_NAME: RowKind.TAG,
    noting.GROUP_NAME: RowKind.GROUP,
}


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
    """Rows (rows.py) of one log, most of them from the tables. The caller empties the tables."""

    def __init__(self, tables: t.Tables, log: LogPrograms, place: ReplicaId) -> None:
        self._log = place
        self._tables = tables
        self._records = {record.key_version: record for record in log.records}
        self._paths = log.paths
        self._codes: list[ClassCode] = []
        self._classes_json = (0, b"")

    def rows(self, kind: RowKind, size: int, **columns: Any) -> pa.RecordBatch:
        """Return `size` rows of one kind of this log. Columns that are not given are null."""
        return rows(kind, self._log, size, **columns)

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
        found = [
            (
                *(code.key_version, code.value_version, part, self.releases(code, part, bit)),
                *(count, first, reasons.get((index, part, bit))),
            )
            for index, (code, count, first) in enumerate(zip(self.codes(), *self._counts(), strict=True))
            for part, bit in code.broken
        ]
        columns = dict(zip(_BROKEN, zip(*found, strict=True), strict=bool(found)))
        return self.rows(RowKind.BROKEN, len(found), **columns)

    def _counts(self) -> tuple[list[int], list[int]]:
        used = int(self._tables.control[t.CLASSES])
        return self._tables.class_count[:used].tolist(), self._tables.class_first[:used].tolist()

    def releases(self, code: ClassCode, part: str, bit: int) -> str:
        return ",".join(str(release) for release in self.layout(code, part, bit).releases)

    def names(self, memory: Memory) -> Iterator[pa.RecordBatch]:
        """Yield groups and transactional ids, committed topics, tagged fields, and groups that commit."""
        tables, codes = self._tables, self.codes()
        for kind, row_kind in _OF_NAMES.items():
            slots = np.flatnonzero((tables.name_hash != 0) & (tables.name_what >> 32 == kind))
            if len(slots) == 0:
                continue
            of_names = [codes[index] for index in tables.name_what[slots] & 0xFFFFFFFF]
            columns = self._tags(slots) if kind == noting.TAG_NAME else self._names(kind, slots, of_names, memory)
            yield self.rows(
                row_kind,
                len(slots),
                count=tables.name_count[slots],
                first_offset=tables.name_first[slots],
                **_versions(of_names),
                **columns,
            )

    def _names(self, kind: int, slots: Numbers, codes: Sequence[ClassCode], memory: Memory) -> dict[str, Any]:
        tables = self._tables
        places = zip(tables.name_at[slots].tolist(), tables.name_size[slots].tolist(), strict=True)
        texts = [memory[at : at + size].tobytes() for at, size in places]
        columns: dict[str, Any] = {"name_hash": tables.name_hash[slots]}
        if kind == noting.OWNER_NAME:
            kinds = {version: owner_kind(record.keys[0].layout) for version, record in self._records.items()}
            columns["owner"] = owners = [kinds[code.key_version] for code in codes if code.key_version is not None]
            return {**columns, "name": [_owner_name(owner, text) for owner, text in zip(owners, texts, strict=True)]}
        if kind == noting.GROUP_NAME:
            columns["last_offset"] = tables.name_last[slots]
        return {**columns, "name": [text.decode("utf-8", "replace") for text in texts]}

    def _tags(self, slots: Numbers) -> dict[str, Any]:
        hashed = self._tables.name_hash[slots] - 1
        tags = hashed & 0xFFFFFFFF
        return {
            "path": [self._paths[path] for path in hashed >> 33],
            "tag": np.where(tags < 1 << 31, tags, tags - (1 << 32)),  # a Java int, as formats.messages has it
        }

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


def compile_kernel() -> None:
    """Call every function of the kernel that Python calls, with empty input."""
    with closing(LogReader(DecodingSpec(live=True))) as reader:
        reader.begin(("", 0, 0))
        for _ in (*reader.read(LogBytes(topic="", partition=0, data=memoryview(b""))), *reader.finish()):
            pass
    empty = t.create_tables(deep=False, live=False, buckets=1)
    control = empty.control.ctypes.data
    counts = np.zeros(1, dtype=np.int64).ctypes.data
    keys.count_by_bucket(control, counts)
    keys.copy_to_buckets(control, 0, counts)
    keys.fill_table(0, 1, 0, 0, 0)
    keys.add_entries(0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    scanning.batches_end(0, 0)
    scanning.count_batch(control, 0, 0, 0, 0, 0)
    COMPLETE.touch()


if __name__ == "__main__":
    compile_kernel()
