"""What only a second reading of a partition finds: records out of order, and deleted groups with pending commits.

Groups with a record that a release refuses after the records before it (wire.group_replay), and groups that were
deleted while a transaction committed offsets for them (wire.pending_commits).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.coordinator_logs.scan import DeletedWhilePending, OutOfOrder
from kafka_rollout.kafka.formats.coordinator_records import VERSION_BYTES
from kafka_rollout.kafka.formats.group_replay import GroupReplay, PendingCommits, group_records
from kafka_rollout.kafka.formats.log_types import Bytes, LogRange, UnreadableOffsetError
from kafka_rollout.releases.facts import Catalogue, CoordinatorLogFacts, Release

if TYPE_CHECKING:
    from kafka_rollout.kafka.client.fetch import FetchSource

Bounded = tuple[Bytes, int, int]  # (whole batches, start, end): records with start <= offset < end count


def has_affected_release(catalogue: Catalogue, releases: Iterable[Release]) -> bool:
    """Return whether one of these releases fails at such groups."""
    logs = (catalogue.get(release).coordinator_logs.get(GROUPS_TOPIC) for release in releases)
    return any(log is not None and bool(log.deleted_while_pending) for log in logs)


def deleted_while_pending(
    partition: int, groups: Iterable[bytes], log: Iterable[Bounded]
) -> tuple[DeletedWhilePending, ...]:
    """Return which of the groups were deleted while a transaction committed offsets for them.

    `log`: the partition of __consumer_offsets from its start.
    """
    commits = PendingCommits(groups=frozenset(groups))
    for data, start, end in log:
        commits.add(data, start=start, end=end)
    return tuple(
        sorted(
            DeletedWhilePending(
                topic=GROUPS_TOPIC,
                partition=partition,
                offset=offset,
                group=group.decode("utf-8", "replace"),
                producers=producers,
            )
            for group, (offset, producers) in commits.refused().items()
        )
    )


def read_log(source: FetchSource, log: LogRange) -> Iterator[Bounded]:
    """Read the range up to an offset that cannot be read. The first reading reports the damage."""
    with suppress(UnreadableOffsetError):
        for fetched in source.read(log):
            yield fetched.data, max(log.start, fetched.fetch_offset), log.end


Facts = Mapping[Release, CoordinatorLogFacts]


def facts_of_order(catalogue: Catalogue, releases: Iterable[Release]) -> Facts:
    """Return the facts of the releases that check the order of groups' records."""
    logs = {release: catalogue.get(release).coordinator_logs.get(GROUPS_TOPIC) for release in releases}
    return {release: log for release, log in logs.items() if log is not None and log.group_families}


def ordered_types(facts: Facts, *, cleaned: bool = False) -> frozenset[int]:
    """Return the key versions of the records that these releases compare with earlier records.

    `cleaned`: only those that can be in an order at which a release stops, because of the log cleaner. For other types
    this cannot happen: no coordinator writes them in such an order.
    """
    roles = (role for log in facts.values() for role in log.group_roles.items())
    return frozenset(version for version, (family, _) in roles if not (cleaned and family.takes_over_offsets))


def out_of_order(
    partition: int, groups: Collection[bytes], log: Iterable[Bounded], facts: Facts
) -> tuple[OutOfOrder, ...]:
    """Return the groups with such a record. `log`: the partition of __consumer_offsets from its start."""
    replays = {release: GroupReplay(rules) for release, rules in facts.items()}
    for data, start, end in log:
        for record in group_records(data, groups=groups, start=start, end=end):
            for replay in replays.values():
                replay.add(record)
    refusing: dict[OutOfOrder, list[Release]] = {}
    for release, replay in replays.items():
        for group, refused in replay.refused.items():
            value = refused.record.value
            found = OutOfOrder(
                topic=GROUPS_TOPIC,
                partition=partition,
                offset=refused.record.offset,
                group=group.decode("utf-8", "replace"),
                key_version=refused.record.key_version,
                value_version=None if value is None else int.from_bytes(value[:VERSION_BYTES], "big", signed=True),
                releases=(),
                complaint=refused.complaint,
            )
            refusing.setdefault(found, []).append(release)
    return tuple(sorted(replace(found, releases=tuple(sorted(releases))) for found, releases in refusing.items()))
