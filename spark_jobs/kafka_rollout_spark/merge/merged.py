"""The workers' rows after the merge (see rows.py), as a Spark frame or as a table on the driver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_rollout_spark.rows import MAXIMA, MERGE_BY, MINIMA, OF_FIRST, OF_LAST, SUMS, RowKind

_BY = ("kind", *MERGE_BY)
_OWNER_ORDER = ("topic", "partition", "name", "key_version", "value_version")  # after the greatest count


class MergedRows(Protocol):
    def table(
        self,
        *kinds: RowKind,
        columns: Collection[str] = (),
        limit: int | None = None,
        is_valid: Collection[str] = (),
        is_null: Collection[str] = (),
        **among: Collection[Any],
    ) -> pa.Table:
        """The rows of these kinds whose columns have one of the values in `among`. `columns` empty: all."""

    def owners(self, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """The rows of named owners, those with the most records first."""

    def close(self) -> None:
        """Free the memory in Spark."""


@dataclass(frozen=True, slots=True)
class LocalRows:
    rows: pa.Table

    def table(
        self,
        *kinds: RowKind,
        columns: Collection[str] = (),
        limit: int | None = None,
        is_valid: Collection[str] = (),
        is_null: Collection[str] = (),
        **among: Collection[Any],
    ) -> pa.Table:
        conditions = [
            *_among(pc.field, kinds, among),
            *(pc.field(name).is_valid() for name in is_valid),
            *(pc.field(name).is_null() for name in is_null),
        ]
        found = self.rows.filter(reduce(and_, conditions)).slice(length=limit)
        return found.select(list(columns)) if columns else found

    def owners(self, limit: int | None = None) -> Iterator[dict[str, Any]]:
        found = self.table(RowKind.OWNER, is_valid=["name"])
        order = [("count", "descending"), *((name, "ascending") for name in _OWNER_ORDER)]
        yield from found.take(pc.sort_indices(found, order, null_placement="at_start")[:limit]).to_pylist()

    def close(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class SparkRows:
    rows: DataFrame

    def table(
        self,
        *kinds: RowKind,
        columns: Collection[str] = (),
        limit: int | None = None,
        is_valid: Collection[str] = (),
        is_null: Collection[str] = (),
        **among: Collection[Any],
    ) -> pa.Table:
        conditions = [
            *_among(F.col, kinds, among),
            *(F.col(name).isNotNull() for name in is_valid),
            *(F.col(name).isNull() for name in is_null),
        ]
        found = self.rows.filter(reduce(and_, conditions)).select(*(columns or self.rows.columns))
        return (found if limit is None else found.limit(limit)).toArrow()

    def owners(self, limit: int | None = None) -> Iterator[dict[str, Any]]:
        named = self.rows.filter((F.col("kind") == RowKind.OWNER) & F.col("name").isNotNull())
        ordered = named.orderBy(F.desc("count"), *_OWNER_ORDER)
        ordered = ordered if limit is None else ordered.limit(limit)
        for row in ordered.toLocalIterator(prefetchPartitions=True):
            yield row.asDict()

    def close(self) -> None:
        self.rows.unpersist()


def _among(column: Callable[[str], Any], kinds: Collection[str], among: dict[str, Collection[Any]]) -> Iterator[Any]:
    yield column("kind").isin(list(map(str, kinds)))
    for name, values in among.items():
        yield column(name).isin(list(values))


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
