"""Starts the tasks that read, and merges their rows: by Spark, or on the driver where the rows are few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.util import PythonEvalType

from kafka_rollout_spark.kernel.spec import DecodingSpec
from kafka_rollout_spark.merge.merged import LocalRows, MergedRows, SparkRows, merge, merge_table
from kafka_rollout_spark.rows import MERGE_BY, WORKER_ROWS
from kafka_rollout_spark.source.splits import LogSource, Split, read_split

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
