"""The lag of groups: the end offsets of their partitions minus the committed offsets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafka_rollout.adapters.kafka.security import ClientSecurity
from kafka_rollout.domain.groups.described import CLASSIC, CONSUMER, STREAMS, DescribedGroup

_COMMITTING = frozenset({CLASSIC, CONSUMER, STREAMS})  # a share group has no committed offsets
_TIMEOUT_S = 20.0


def with_lag(
    servers: str, security: ClientSecurity | None, groups: Iterable[DescribedGroup]
) -> tuple[DescribedGroup, ...]:
    """The groups with their lag in records; None where a query failed, 0 where a group committed nothing.

    The end offsets are those of read_uncommitted: an open transaction counts as lag.
    """
    groups = tuple(groups)
    admin = AdminClient({"bootstrap.servers": servers, **(security.confluent() if security else {}), "log_level": 2})
    committed = {group.group_id: _committed(admin, group) for group in groups if group.type in _COMMITTING}
    places = {(topic, number) for offsets in committed.values() if offsets for topic, number in offsets}
    ends = _ends(admin, places)
    return tuple(replace(group, lag=_lag(committed.get(group.group_id), ends)) for group in groups)


def _committed(admin: AdminClient, group: DescribedGroup) -> dict[tuple[str, int], int] | None:
    asked = [ConsumerGroupTopicPartitions(group.group_id)]
    try:
        (future,) = admin.list_consumer_group_offsets(asked, request_timeout=_TIMEOUT_S).values()
        offsets = future.result().topic_partitions or []
    except KafkaException:
        return None
    return {(each.topic, each.partition): each.offset for each in offsets if each.offset >= 0}


def _ends(admin: AdminClient, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Without deleted partitions and those that this user cannot describe."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, number): latest for topic, number in places}
    if not asked:
        return {}
    ends = {}
    for place, future in admin.list_offsets(asked, request_timeout=_TIMEOUT_S).items():
        try:
            ends[place.topic, place.partition] = future.result().offset
        except KafkaException:
            continue
    return ends


def _lag(committed: dict[tuple[str, int], int] | None, ends: dict[tuple[str, int], int]) -> int | None:
    if committed is None or not committed.keys() <= ends.keys():
        return None
    return sum(max(0, ends[place] - offset) for place, offset in committed.items())
