"""Groups with their members, by a query to the broker that coordinates each, and their lag."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from kafka_rollout.kafka.client.coordinators import ListedGroup, describe_listed, list_groups_of
from kafka_rollout.kafka.client.requests import (
    NO_ERROR,
    ClusterConnections,
    ResourceType,
    Target,
    describe_configs,
    error_name,
    raise_for_error,
)
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.model.groups import (
    CLASSIC,
    CONSUMER,
    MIGRATION_POLICY,
    STREAMS,
    DescribedGroup,
    GroupMember,
    Partition,
)

PATIENCE_S = 30.0  # for groups that rebalance; most finish in a second or two

_GONE = "GROUP_ID_NOT_FOUND"
_PAUSE_S = 0.3
# ConsumerGroupDescribe v1 (KIP-1099): a member of the classic protocol has the type 0.
_CLASSIC_MEMBER = 0


def describe_groups(nodes: ClusterConnections, *, patience_s: float = PATIENCE_S) -> tuple[DescribedGroup, ...]:
    """All groups by id. Raises TransientError when a broker does not respond or still loads.

    A rebalancing group reports neither its assignor nor its assignment: it is described again until it is stable, for
    at most `patience_s` seconds; then it is returned as it is.
    """
    deadline = time.monotonic() + patience_s
    while True:
        described: dict[str, DescribedGroup] = {}
        for broker in nodes.brokers:
            described |= {group.group_id: group for group in groups_of_broker(nodes, broker)}
        settled = not any(group.is_rebalancing or group.problem for group in described.values())
        if settled or time.monotonic() >= deadline:
            return tuple(described[group_id] for group_id in sorted(described))
        time.sleep(_PAUSE_S)


def migration_policies(nodes: ClusterConnections) -> dict[int, str | None]:
    """Each broker's group.consumer.migration.policy; None where it has no such configuration."""
    return {broker.node_id: _policy(nodes, broker) for broker in nodes.brokers}


def groups_of_broker(nodes: ClusterConnections, broker: Target) -> Iterator[DescribedGroup]:
    """The groups that a broker coordinates, as they are at this moment."""
    for group, answer in describe_listed(nodes, broker, list_groups_of(nodes, broker)):
        problem = error_name(answer.error_code)
        # A deleted classic group is "Dead", without an error before DescribeGroups v6.
        if problem == _GONE or (problem == NO_ERROR and answer.group_state == "Dead"):
            continue
        if problem == NO_ERROR:
            yield _describe(group, answer)
        else:
            yield DescribedGroup(**asdict(group), problem=f"its coordinator answers {problem}")


def _describe(group: ListedGroup, answer: Any) -> DescribedGroup:
    assignor = str(getattr(answer, "protocol_data", None) or getattr(answer, "assignor_name", None) or "")
    of_consumers = group.type == CLASSIC and group.protocol_type == "consumer"
    return DescribedGroup(
        **{**asdict(group), "state": answer.group_state or group.state},
        assignor=assignor,
        members=tuple(_member(member, group.type, assignor if of_consumers else "") for member in answer.members),
        epoch=getattr(answer, "group_epoch", None),
    )


def _member(member: Any, kind: str, assignor: str) -> GroupMember:
    """`assignor`: the selected one of a classic group of consumers, whose bytes have Kafka's format; else empty."""
    if kind == CLASSIC:
        uses_classic = True
    elif kind == STREAMS:
        uses_classic = bool(member.is_classic)
    else:
        uses_classic = kind == CONSUMER and getattr(member, "member_type", _CLASSIC_MEMBER) == _CLASSIC_MEMBER
    return GroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        instance_id=getattr(member, "group_instance_id", None) or getattr(member, "instance_id", None),
        uses_classic=uses_classic,
        assignors=(assignor,) if assignor else (),
        kept_partitions=bool(assignor) and _has_kept_partitions(member.member_metadata),
        assigned=_classic_assignment(member.member_assignment) if assignor else _assignment(member),
    )


def _has_kept_partitions(metadata: bytes) -> bool:
    subscription = _read(ConsumerProtocolSubscription, metadata)
    return subscription is not None and bool(subscription.owned_partitions)


def _classic_assignment(data: bytes) -> tuple[Partition, ...]:
    assignment = _read(ConsumerProtocolAssignment, data)
    return () if assignment is None else tuple(sorted((each.topic, each.partition) for each in assignment.partitions()))


def _read(kind: Any, data: bytes) -> Any:
    """None for no bytes and for another format: assignors can have data of their own."""
    try:
        return kind.decode(data) if data else None
    except Exception:
        return None


def _assignment(member: Any) -> tuple[Partition, ...]:
    """Of a member of the newer types; none of a Streams member, which has tasks without topic names."""
    topics = getattr(getattr(member, "assignment", None), "topic_partitions", None) or ()
    return tuple(sorted((topic.topic_name, number) for topic in topics for number in topic.partitions))


def _policy(nodes: ClusterConnections, broker: Target) -> str | None:
    request = describe_configs([(ResourceType.BROKER, str(broker.node_id))], [MIGRATION_POLICY])
    (result,) = nodes.ask(broker, request).results
    raise_for_error(result.error_code, what="DescribeConfigs", who=broker.who, right="DESCRIBE_CONFIGS on CLUSTER")
    return next((entry.value for entry in result.configs if entry.name == MIGRATION_POLICY), None)


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
