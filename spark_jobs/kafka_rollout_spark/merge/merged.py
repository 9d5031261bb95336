"""Starts the tasks that read, and merges their rows (rows.py). One function merges, on the driver and on executors.

Rows of a small log, or of a scan that only counts, are merged on the driver. Otherwise the rows are distributed over
buckets by the hash in them, and one task per bucket merges them. Arrow tables travel as bytes, so Spark's plans, types
and Pandas are not involved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import and_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD, SparkContext, StorageLevel

from kafka_rollout_spark.kernel.programs import DecodingSpec
from kafka_rollout_spark.rows import MAXIMA, MERGE_BY, MINIMA, OF_FIRST, OF_LAST, SUMS, WORKER_ROWS, RowKind
from kafka_rollout_spark.source import LogSource, Split, read_split

Batches = Iterable[pa.RecordBatch]

_BY = ("kind", *MERGE_BY)
_OWNER_ORDER = ("topic", "partition", "name", "key_version", "value_version")  # after the greatest count
_ROWS_AT_ONCE = 1 << 16  # partial rows that a task keeps before it merges them
_BYTES_AT_ONCE = 1 << 20  # rows that are sent to buckets together; PySpark keeps ten per bucket in memory
_NO_ROWS = WORKER_ROWS.empty_table()


def merge_rows(batches: Batches) -> pa.Table:
    """Return one row for all rows of the same thing. The result can be merged again."""
    merged, pending, count = _NO_ROWS, [], 0
    for batch in batches:
        pending.append(batch)
        count += batch.num_rows
        if count > max(_ROWS_AT_ONCE, merged.num_rows):
            merged, pending, count = _aggregate(merged, pending), [], 0
    return _aggregate(merged, pending)


def _aggregate(merged: pa.Table, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    rows = pa.concat_tables([merged, pa.Table.from_batches(batches, WORKER_ROWS)])
    # States, which alone have columns of OF_LAST, have no first offset.
    rows = rows.append_column("order", pc.coalesce(rows["first_offset"], pc.negate(rows["last_offset"])))
    functions = {**dict.fromkeys(SUMS, "sum"), **dict.fromkeys(MINIMA, "min"), **dict.fromkeys(MAXIMA, "max")}
    first = pc.ScalarAggregateOptions(skip_nulls=False, min_count=0)
    steps: list[Any] = [*functions.items(), *((name, "first", first) for name in (*OF_FIRST, *OF_LAST))]
    found = rows.sort_by("order").group_by(list(_BY), use_threads=False).aggregate(steps)
    names = [*(f"{name}_{word}" for name, word in functions.items()), *(f"{n}_first" for n in (*OF_FIRST, *OF_LAST))]
    found = found.select([*_BY, *names]).rename_columns([*_BY, *functions, *OF_FIRST, *OF_LAST])
    return pa.concat_tables([_NO_ROWS, found], promote_options="default")


def read_merged(
    spark: SparkContext, source: LogSource, spec: DecodingSpec, splits: Sequence[Split], *, is_small: bool
) -> MergedRows:
    """Read all splits. `is_small`: the driver can hold the rows of all tasks."""
    rows = spark.parallelize(splits, len(splits)).flatMap(partial(read_split, source, spec))
    counts_only = not spec.logs
    if is_small or (counts_only and not spec.live):
        return MergedRows(local=_merge(spec.live, _unpack(rows.map(_pack).collect())))
    if spec.live:
        rows = _merge_by_bucket(rows, spec.buckets, entries=True)
    if counts_only:  # a row of each record kind in each bucket
        return MergedRows(local=merge_rows(_unpack(rows.map(_pack).collect())))
    packed = _merge_by_bucket(rows, spec.buckets, entries=False).map(_pack)
    return MergedRows(packed=packed.persist(StorageLevel.MEMORY_AND_DISK))


def read_here(source: LogSource, spec: DecodingSpec, split: Split) -> MergedRows:
    """Read everything in this process, without Spark. It can hold all rows."""
    return MergedRows(local=_merge(spec.live, read_split(source, spec, split)))


def _merge_by_bucket(rows: RDD[pa.RecordBatch], buckets: int, *, entries: bool) -> RDD[pa.RecordBatch]:
    """Merge all rows of the same thing in one task. No task holds the rows or keys of more than one bucket.

    `entries`: rows of kind `entries` become rows that add to `live`; these can be in several buckets afterwards.
    """
    shares = rows.mapPartitions(partial(_distribute, buckets)).partitionBy(buckets, int).values()
    return shares.mapPartitions(lambda streams: _merge(entries, _unpack(streams)).to_batches(_ROWS_AT_ONCE))


def _merge(entries: bool, batches: Batches) -> pa.Table:
    if not entries:
        return merge_rows(batches)
    from kafka_rollout_spark.merge.newest import reduce_entries  # loads numba

    rows = merge_rows(reduce_entries(iter(batches)))
    place = rows.schema.get_field_index("live")
    return rows.set_column(place, rows.field(place), rows["live"].fill_null(0))  # nothing of these records is current


def _distribute(buckets: int, batches: Batches) -> Iterator[tuple[int, bytes]]:
    """Yield (bucket, packed rows). Rows of the same thing have the same bucket."""
    for table in _chunks(batches):
        hashes = pc.coalesce(table["bucket"].cast(pa.int64()), table["name_hash"], table["key_hash"], pa.scalar(0))
        places = np.asarray(hashes) % buckets
        for bucket in np.unique(places).tolist():
            yield bucket, _pack(table.filter(pa.array(places == bucket)))


def _chunks(batches: Batches) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= _BYTES_AT_ONCE:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _pack(rows: pa.RecordBatch | pa.Table) -> bytes:
    """Return the rows as an Arrow stream. A pickled part of a table would contain the whole table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    return bytes(sink.getvalue())


def _unpack(streams: Iterable[bytes]) -> Batches:
    for stream in streams:
        yield from pa.ipc.open_stream(stream)


class MergedRows:
    """The merged rows: a table on the driver, or packed batches that Spark keeps in memory and on disk."""

    def __init__(
        self, *, local: pa.Table = _NO_ROWS, packed: RDD[bytes] | None = None, copy: int | None = None
    ) -> None:
        self._local, self._packed, self._copy = local, packed, copy

    def of(self, copy: int) -> MergedRows:
        """Return the rows of this replica of each partition (ReplicaRange.copy)."""
        return MergedRows(local=self._local, packed=self._packed, copy=copy)

    def table(
        self,
        *kinds: RowKind,
        columns: Sequence[str] = (),
        limit: int | None = None,
        is_valid: str = "",
        is_null: str = "",
        **among: Collection[Any],
    ) -> pa.Table:
        """The rows of these kinds whose columns have one of the values in `among`. `columns` empty: all. `is_valid`,
        `is_null`: a column that has, or does not have, a value.
        """
        values: dict[str, Collection[Any]] = {"kind": [str(kind) for kind in kinds], **among}
        if self._copy is not None:
            values["copy"] = [self._copy]
        conditions = [pc.field(name).isin(list(found)) for name, found in values.items()]
        conditions += [pc.field(name).is_null() for name in (is_null,) if name]
        conditions += [pc.field(name).is_valid() for name in (is_valid,) if name]
        select = partial(_select, reduce(and_, conditions), tuple(columns) or tuple(WORKER_ROWS.names), limit)
        found, count = [select(_NO_ROWS)], 0
        for part in self._parts(select, stream=limit is not None):
            found.append(part)
            count += part.num_rows
            if limit is not None and count >= limit:
                break
        return pa.concat_tables(found).slice(length=limit)

    def owners(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of named owners: those with the most records first, or without `limit` all, streamed unsorted."""
        select = partial(_select_owners, limit, self._copy)
        parts = self._parts(select, stream=limit is None)
        for part in parts if limit is None else [select(pa.concat_tables([_NO_ROWS, *parts]))]:
            yield from part.to_batches(_ROWS_AT_ONCE)

    def close(self) -> None:
        """Free the memory in Spark."""
        if self._packed is not None:
            self._packed.unpersist()

    def _parts(self, select: Callable[[pa.Table], pa.Table], *, stream: bool) -> Iterator[pa.Table]:
        """Yield selected rows. `stream`: one partition after the other, because all of them can be too large."""
        if self._packed is None:
            yield select(self._local)
            return
        found = self._packed.map(lambda data: _pack(select(pa.ipc.open_stream(data).read_all())))
        for data in found.toLocalIterator(prefetchPartitions=True) if stream else found.collect():
            yield pa.ipc.open_stream(data).read_all()


def _select(condition: pc.Expression, columns: Sequence[str], limit: int | None, rows: pa.Table) -> pa.Table:
    return rows.filter(condition).slice(length=limit).select(columns)


def _select_owners(limit: int | None, copy: int | None, rows: pa.Table) -> pa.Table:
    found = rows.filter((pc.field("kind") == str(RowKind.OWNER)) & pc.field("name").is_valid())
    found = found if copy is None else found.filter(pc.field("copy") == copy)
    order = [("count", "descending", "at_start"), *((name, "ascending", "at_start") for name in _OWNER_ORDER)]
    return found if limit is None else found.take(pc.sort_indices(found, order)[:limit])
