"""DataFrame → DataFrame. Each ends with a `select`, which is its schema contract."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]
from pyspark.util import PythonEvalType

from kafka_rollout_spark.merge.newest import reduce_entries
from kafka_rollout_spark.rows import MAXIMA, MERGE_BY, MINIMA, OF_FIRST, OF_LAST, SUMS


def bring_live(rows: DataFrame, buckets: int) -> DataFrame:
    """The rows of kind `entries` become rows that bring `live`; no task holds the keys of more than one bucket."""
    # Rows of other kinds are only handed through: by all tasks alike.
    elsewhere = F.pmod(F.hash(*MERGE_BY), F.lit(buckets))
    dealt_out = rows.repartitionById(buckets, F.coalesce("bucket", elsewhere))
    # DataFrame.mapInArrow does the same, but refuses to without Pandas, which it does not use; and where Pandas is
    # installed, PyArrow imports it in every worker.
    reduce = vectorized_udf(reduce_entries, rows.schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = reduce(*(dealt_out[name] for name in dealt_out.columns))
    reduced = DataFrame(dealt_out._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)
    return reduced.select(*rows.columns)


def merge_few(rows: pa.Table) -> list[dict[str, Any]]:
    """What `merge` does, on the driver, of rows that are never many and have no column of OF_FIRST or OF_LAST: a
    shuffle takes longer than these take.
    """
    by = ["kind", *MERGE_BY]
    how = {**dict.fromkeys(SUMS, "sum"), **dict.fromkeys(MINIMA, "min"), **dict.fromkeys(MAXIMA, "max")}
    columns = [*by, *(f"{name}_{word}" for name, word in how.items())]
    merged = rows.group_by(by).aggregate(list(how.items())).select(columns).rename_columns([*by, *how])
    found: list[dict[str, Any]] = merged.to_pylist()
    return found


def merge(rows: DataFrame) -> DataFrame:
    """One row for what the tasks told of the same thing (see rows.py). All kinds stay in one frame."""
    return (
        rows.groupBy("kind", *MERGE_BY)
        .agg(
            *(F.sum(name).alias(name) for name in SUMS),
            *(F.min(name).alias(name) for name in MINIMA),
            *(F.max(name).alias(name) for name in MAXIMA),
            *(F.min_by(name, "first_offset").alias(name) for name in OF_FIRST),
            *(F.max_by(name, "last_offset").alias(name) for name in OF_LAST),
        )
        .select("kind", *MERGE_BY, *SUMS, *MINIMA, *MAXIMA, *OF_FIRST, *OF_LAST)
    )
