"""After the logs were read: which groups have a record that does not fit what lies before it.

The workers told where the first record of each class lies for each group of the newer types. A partition is read again,
here, if by that a release may stop at one of its groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_rollout.adapters.coordinator_logs.order import Facts, ordered_types, out_of_order
from kafka_rollout.domain.coordinator_logs.scan import OFFSETS_TOPIC, OutOfOrder
from kafka_rollout.domain.coordinator_logs.verdicts import GROUP_METADATA_KEY
from kafka_rollout.wire.coordinator_records import VERSION_BYTES
from kafka_rollout.wire.group_replay import FirstRecords, may_be_refused
from kafka_rollout.wire.pending_commits import text_at
from kafka_rollout_spark.kernel.tables import MOST_GROUPS
from kafka_rollout_spark.result.result import Row, of_kind
from kafka_rollout_spark.rows import RowKind
from kafka_rollout_spark.source.ranges import LogsToRead

_ROWS = 10_000


def find_out_of_order(few: Iterable[Row], frame: DataFrame, logs: LogsToRead, facts: Facts) -> tuple[OutOfOrder, ...]:
    """`few`, `frame`: as in Scanned, of a deep scan of these logs."""
    types = ordered_types(facts)
    partitions = {
        row["partition"]
        for row in of_kind(few, RowKind.CLASS)
        if row["topic"] == OFFSETS_TOPIC and row["key_version"] in types
    }
    found: list[OutOfOrder] = []
    if partitions:
        told = frame.filter((F.col("topic") == OFFSETS_TOPIC) & F.col("partition").isin(sorted(partitions)))
        roles = [log.group_roles for log in facts.values()]
        for partition, groups in sorted(_first_records(told, types).items()):
            suspects = {group for group, firsts in groups.items() if any(may_be_refused(one, firsts) for one in roles)}
            if suspects:
                found += out_of_order(partition, suspects, logs.whole(OFFSETS_TOPIC, partition), facts)
    return tuple(sorted(found))


def _first_records(told: DataFrame, types: Iterable[int]) -> Mapping[int, Mapping[bytes, FirstRecords]]:
    """By partition and group, of those with records of these types."""
    found: dict[int, dict[bytes, FirstRecords]] = {}
    columns = "partition", "name", "key_version", "value_version", "first_offset"
    owners = told.filter((F.col("kind") == RowKind.OWNER) & F.col("key_version").isin(sorted(types)))
    for row in _rows(owners.filter(F.col("name").isNotNull()).select(*columns)):
        firsts = found.setdefault(row["partition"], {}).setdefault(row["name"].encode(), FirstRecords())
        firsts.note(row["key_version"], row["first_offset"], is_tombstone=row["value_version"] is None)
    commits = told.filter((F.col("kind") == RowKind.GROUP) & F.col("value_version").isNotNull())
    committing: dict[int, set[bytes]] = {}
    for row in _rows(commits.select("partition", "name", "first_offset")):
        name = row["name"].encode()
        committing.setdefault(row["partition"], set()).add(name)
        if (known := found.get(row["partition"], {}).get(name)) is not None:
            first = row["first_offset"]
            known.committed = first if known.committed is None else min(first, known.committed)
    for partition, names in committing.items():
        # A worker that knew so many told of no more: others may commit from the beginning of the log on.
        for name, firsts in found.get(partition, {}).items() if len(names) >= MOST_GROUPS else ():
            firsts.committed = firsts.committed if name in names else -1
    classic = (F.col("kind") == RowKind.STATE) & (F.col("key_version") == GROUP_METADATA_KEY)
    for row in _rows(told.filter(classic & F.col("value").isNotNull()).select("partition", "key")):
        group, _ = text_at(row["key"], VERSION_BYTES)
        if group is not None and (known := found.get(row["partition"], {}).get(group)) is not None:
            known.is_classic = True
    return found


def _rows(frame: DataFrame) -> Iterator[Row]:
    """Made a few at a time: there are several of each group."""
    for batch in frame.toArrow().to_batches(max_chunksize=_ROWS):
        yield from batch.to_pylist()
