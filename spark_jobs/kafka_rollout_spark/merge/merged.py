"""Starts the tasks that read, and merges their rows (see rows.py): a Spark frame, or a table on the driver if few."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial, reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.util import PythonEvalType

from kafka_rollout_spark.kernel.spec import DecodingSpec
from kafka_rollout_spark.rows import MAXIMA, MERGE_BY, MINIMA, OF_FIRST, OF_LAST, SUMS, WORKER_ROWS, RowKind
from kafka_rollout_spark.source.splits import LogSource, Split, read_split

_BY = ("kind", *MERGE_BY)
_OWNER_ORDER = ("topic", "partition", "name", "key_version", "value_version")  # after the greatest count


class MergedRows(ABC):
    """pyarrow's expressions and Spark's columns have the same operators."""

    _column: Callable[[str], Any]

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
        conditions = [self._column(name).isin(list(found)) for name, found in values.items()]
        conditions += [self._is_null(name) for name in (is_null,) if name]
        conditions += [~self._is_null(name) for name in (is_valid,) if name]
        return self._select(reduce(and_, conditions), columns, limit)

    @abstractmethod
    def owners(self, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """The rows of named owners, those with the most records first."""

    @abstractmethod
    def close(self) -> None:
        """Free the memory in Spark."""

    @abstractmethod
    def _is_null(self, name: str) -> Any: ...

    @abstractmethod
    def _select(self, condition: Any, columns: Sequence[str], limit: int | None) -> pa.Table: ...


class LocalRows(MergedRows):
    _column = staticmethod(pc.field)

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def owners(self, limit: int | None = None) -> Iterator[dict[str, Any]]:
        found = self.table(RowKind.OWNER, is_valid="name")
        order = [("count", "descending", "at_start"), *((name, "ascending", "at_start") for name in _OWNER_ORDER)]
        yield from found.take(pc.sort_indices(found, order)[:limit]).to_pylist()

    def close(self) -> None:
        return

    def _is_null(self, name: str) -> Any:
        return pc.field(name).is_null()

    def _select(self, condition: Any, columns: Sequence[str], limit: int | None) -> pa.Table:
        return self._rows.filter(condition).slice(length=limit).select(columns or self._rows.column_names)


class SparkRows(MergedRows):
    _column = staticmethod(F.col)

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows

    def owners(self, limit: int | None = None) -> Iterator[dict[str, Any]]:
        named = self._rows.filter((F.col("kind") == RowKind.OWNER) & F.col("name").isNotNull())
        ordered = named.orderBy(F.desc("count"), *_OWNER_ORDER)
        found = ordered if limit is None else ordered.limit(limit)
        return (row.asDict() for row in found.toLocalIterator(prefetchPartitions=True))

    def close(self) -> None:
        self._rows.unpersist()

    def _is_null(self, name: str) -> Any:
        return F.col(name).isNull()

    def _select(self, condition: Any, columns: Sequence[str], limit: int | None) -> pa.Table:
        found = self._rows.filter(condition).select(*(columns or self._rows.columns))
        return (found if limit is None else found.limit(limit)).toArrow()


def merge(rows: DataFrame) -> DataFrame:
    """One row for all rows of the same thing; all kinds stay in one frame."""
    return (
        rows.groupBy(*_BY)
        .agg(
            *(F.sum(name).alias(name) for name in SUMS),
            *(F.min(name).alias(name) for name in MINIMA),
            *(F.max(name).alias(name) for name in MAXIMA),
            *(F.min_by(name, "first_offset").alias(name) for name in OF_FIRST),
            *(F.max_by(name, "last_offset").alias(name) for name in OF_LAST),
        )
        .select(*_BY, *SUMS, *MINIMA, *MAXIMA, *OF_FIRST, *OF_LAST)
    )


def merge_table(rows: pa.Table) -> pa.Table:
    """The same on the driver: for few rows, Spark's shuffle takes longer."""
    # States, which alone have columns of OF_LAST, have no first offset.
    rows = rows.append_column("order", pc.coalesce(rows["first_offset"], pc.negate(rows["last_offset"])))
    functions = {**dict.fromkeys(SUMS, "sum"), **dict.fromkeys(MINIMA, "min"), **dict.fromkeys(MAXIMA, "max")}
    first = pc.ScalarAggregateOptions(skip_nulls=False, min_count=0)
    steps: list[Any] = [*functions.items(), *((name, "first", first) for name in (*OF_FIRST, *OF_LAST))]
    merged = rows.sort_by("order").group_by(list(_BY), use_threads=False).aggregate(steps)
    names = [*(f"{name}_{word}" for name, word in functions.items()), *(f"{n}_first" for n in (*OF_FIRST, *OF_LAST))]
    return merged.select([*_BY, *names]).rename_columns([*_BY, *functions, *OF_FIRST, *OF_LAST])


Batches = Iterator[pa.RecordBatch]


def read_on_driver(spark: SparkContext, source: LogSource, spec: DecodingSpec, splits: Sequence[Split]) -> MergedRows:
    """Without Spark SQL, whose first query takes several seconds of planning and code generation."""
    tables = spark.parallelize(splits, len(splits)).map(partial(_read_table, source, spec)).collect()
    rows = pa.concat_tables(tables)
    if spec.live:
        from kafka_rollout_spark.merge.newest import reduce_entries  # loads numba

        rows = pa.Table.from_batches(reduce_entries(iter(rows.to_batches())))
    return LocalRows(merge_table(rows))


def read_with_spark(
    spark: SparkContext, source: LogSource, spec: DecodingSpec, splits: Sequence[Split], *, few: bool
) -> MergedRows:
    """`few`: the merged rows fit the driver."""
    numbers = SparkSession(spark).range(0, len(splits), 1, len(splits))
    rows = map_in_arrow(numbers, partial(_read_numbered, source, spec, tuple(splits)))
    if spec.live:
        rows = count_newest(rows, spec.buckets)
    return LocalRows(merge_table(rows.toArrow())) if few else SparkRows(merge(rows).persist())


def _read_table(source: LogSource, spec: DecodingSpec, split: Split) -> pa.Table:
    return pa.Table.from_batches(read_split(source, spec, split), WORKER_ROWS).combine_chunks()


def _read_numbered(source: LogSource, spec: DecodingSpec, splits: Sequence[Split], numbers: Batches) -> Batches:
    for batch in numbers:
        for number in batch["id"].to_pylist():
            yield from read_split(source, spec, splits[number])


def count_newest(rows: DataFrame, buckets: int) -> DataFrame:
    """Replace rows of kind `entries` by rows that add to `live`. No task holds the keys of more than one bucket."""
    # Rows of other kinds are only passed through, evenly by all tasks.
    elsewhere = F.pmod(F.hash(*MERGE_BY), F.lit(buckets))
    return map_in_arrow(rows.repartitionById(buckets, F.coalesce("bucket", elsewhere)), _reduce_entries)


def _reduce_entries(batches: Batches) -> Batches:
    from kafka_rollout_spark.merge.newest import reduce_entries  # loads numba

    return reduce_entries(batches)


def map_in_arrow(frame: DataFrame, function: Callable[[Batches], Batches]) -> DataFrame:
    """DataFrame.mapInArrow to worker rows. The public method requires Pandas, which it does not use; if Pandas is
    installed, PyArrow imports it in every worker.
    """
    udf: Any = vectorized_udf(function, from_arrow_schema(WORKER_ROWS), PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*(frame[name] for name in frame.columns))
    mapped = DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
    return mapped.select(*WORKER_ROWS.names)
