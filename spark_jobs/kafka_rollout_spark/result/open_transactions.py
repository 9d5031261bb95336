"""After the logs were read: which groups are deleted though transactions that are open commit offsets for them.

Of every producer id the workers told where its transactions' data and its markers lie. A partition with one whose data
is not behind a marker is read again, here: from where that transaction begins, and from the log's beginning where it
commits for a deleted group. Both are rare, and partitions are small.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from kafka_rollout.adapters.codecs import CODECS
from kafka_rollout.adapters.coordinator_logs.deleted_groups import deleted_while_pending
from kafka_rollout.domain.coordinator_logs.scan import OFFSETS_TOPIC, DeletedWhilePending
from kafka_rollout.domain.coordinator_logs.verdicts import GROUP_METADATA_KEY
from kafka_rollout.wire.log_types import LogFormatError
from kafka_rollout.wire.pending_commits import PendingCommits
from kafka_rollout.wire.record_batch import batches
from kafka_rollout_spark.merge.merged import MergedRows
from kafka_rollout_spark.result.result import Row, of_kind
from kafka_rollout_spark.rows import ENDED, OPENED, RowKind
from kafka_rollout_spark.source.ranges import LogsToRead


def find_deleted_while_pending(
    few: Iterable[Row], contents: MergedRows, logs: LogsToRead
) -> tuple[DeletedWhilePending, ...]:
    """`few`, `contents`: as in Scanned, of a deep scan of these logs."""
    waiting = {place: _waiting(logs, place, producers) for place, producers in _open_transactions(few).items()}
    found: list[DeletedWhilePending] = []
    for partition, groups in _deleted(contents, waiting).items():
        found += deleted_while_pending(partition, groups, logs.read_whole(OFFSETS_TOPIC, partition))
    return tuple(sorted(found))


def _open_transactions(few: Iterable[Row]) -> Mapping[int, Mapping[int, int]]:
    """By partition the producers with data behind their last marker, and an offset before which there is none of it."""
    rows = [row for row in of_kind(few, RowKind.PRODUCER) if row["topic"] == OFFSETS_TOPIC]
    markers = {(row["partition"], row["key_hash"]): row["last_offset"] for row in rows if row["part"] == ENDED}
    found: dict[int, dict[int, int]] = {}
    for row in rows:
        marker = markers.get((row["partition"], row["key_hash"]), -1)
        if row["part"] == OPENED and row["last_offset"] > marker:
            found.setdefault(row["partition"], {})[row["key_hash"]] = max(row["first_offset"], marker + 1)
    return found


def _waiting(logs: LogsToRead, partition: int, producers: Mapping[int, int]) -> frozenset[bytes]:
    """The groups that the open transactions of these producers commit for."""
    since, commits = min(producers.values()), PendingCommits()
    for block in logs.read(OFFSETS_TOPIC, partition, since=since):
        with suppress(LogFormatError):  # told as damage when it was read before
            for batch in batches(block.data):
                if batch.producer_id in producers and batch.last_offset >= since:
                    commits.add(batch.data, CODECS, start=block.start, end=block.end)
    return frozenset(commits.waiting())


def _deleted(contents: MergedRows, waiting: Mapping[int, Collection[bytes]]) -> Mapping[int, set[bytes]]:
    """By partition those of the groups whose newest GroupMetadata is a tombstone; all asked for at once."""
    groups = {
        (partition, b"".join((GROUP_METADATA_KEY.to_bytes(2), len(group).to_bytes(2), group))): group
        for partition, held in waiting.items()
        for group in held
    }
    if not groups:
        return {}
    tombstones = contents.table(
        RowKind.STATE,
        columns=["partition", "key"],
        is_null="value",
        topic=[OFFSETS_TOPIC],
        partition={partition for partition, _ in groups},
        key_version=[GROUP_METADATA_KEY],
    )
    found: dict[int, set[bytes]] = {}
    for row in tombstones.to_pylist():
        place = row["partition"], row["key"]
        if place in groups:
            found.setdefault(row["partition"], set()).add(groups[place])
    return found
