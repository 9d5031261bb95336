"""Groups that were deleted while a transaction committed offsets for them, found in a log (wire.pending_commits)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kafka_rollout.adapters.codecs import CODECS
from kafka_rollout.domain.coordinator_logs.scan import OFFSETS_TOPIC, DeletedWhilePending, LogRange
from kafka_rollout.domain.model.releases import Catalogue, Release
from kafka_rollout.wire.log_types import Bytes
from kafka_rollout.wire.pending_commits import PendingCommits

if TYPE_CHECKING:
    from kafka_rollout.adapters.kafka.fetch import FetchSource

Bounded = tuple[Bytes, int, int]  # (whole batches, start, end): records with start <= offset < end count


def has_affected_release(catalogue: Catalogue, releases: Iterable[Release]) -> bool:
    """Return whether one of these releases fails at such groups."""
    logs = (catalogue.get(release).coordinator_logs.get(OFFSETS_TOPIC) for release in releases)
    return any(log is not None and bool(log.deleted_while_pending) for log in logs)


def deleted_while_pending(
    partition: int, groups: Iterable[bytes], log: Iterable[Bounded]
) -> tuple[DeletedWhilePending, ...]:
    """Return which of the groups were deleted while a transaction committed offsets for them.

    `log`: the partition of __consumer_offsets from its start.
    """
    commits = PendingCommits(groups=frozenset(groups))
    for data, start, end in log:
        commits.add(data, CODECS, start=start, end=end)
    return tuple(
        sorted(
            DeletedWhilePending(
                topic=OFFSETS_TOPIC,
                partition=partition,
                offset=offset,
                group=group.decode("utf-8", "replace"),
                producers=producers,
            )
            for group, (offset, producers) in commits.refused().items()
        )
    )


def read_log(source: FetchSource, log: LogRange) -> Iterator[Bounded]:
    for fetched in source.read(log):
        yield fetched.data, max(log.start, fetched.fetch_offset), log.end
