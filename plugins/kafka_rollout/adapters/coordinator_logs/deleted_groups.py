"""Groups that are deleted while transactions are open, looked for in what lies in a log (wire.pending_commits)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka_rollout.adapters.codecs import CODECS
from kafka_rollout.adapters.kafka.fetch import FetchSource
from kafka_rollout.domain.coordinator_logs.scan import OFFSETS_TOPIC, DeletedWhilePending, LogRange
from kafka_rollout.domain.model.releases import Catalogue, Release
from kafka_rollout.wire.log_types import Bytes
from kafka_rollout.wire.pending_commits import PendingCommits

Bounded = tuple[Bytes, int, int]  # whole batches; records with start <= offset < end count


def is_asked(catalogue: Catalogue, releases: Iterable[Release]) -> bool:
    """Whether a release of these fails at such groups."""
    logs = (catalogue.get(release).coordinator_logs.get(OFFSETS_TOPIC) for release in releases)
    return any(log is not None and bool(log.deleted_while_pending) for log in logs)


def deleted_while_pending(
    partition: int, groups: Iterable[bytes], held: Iterable[Bounded]
) -> tuple[DeletedWhilePending, ...]:
    """`held`: the partition of __consumer_offsets from its beginning."""
    commits = PendingCommits(groups=frozenset(groups))
    for data, start, end in held:
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


def pieces(source: FetchSource, log: LogRange) -> Iterator[Bounded]:
    for one in source.read(log):
        yield one.data, max(log.start, one.fetch_offset), log.end
