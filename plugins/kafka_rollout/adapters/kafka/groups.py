"""Groups with their members: every broker is asked for those that it coordinates."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest, DescribeGroupsRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from kafka_rollout.adapters.kafka.coordinators import ListedGroup, listed_groups
from kafka_rollout.adapters.kafka.messages import (
    ConsumerGroupDescribeRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from kafka_rollout.adapters.kafka.requests import NO_ERROR, ClusterConnections, Target, error_name, raise_for_error
from kafka_rollout.domain.groups.described import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
    DescribedGroup,
    GroupMember,
    Partition,
)
from kafka_rollout.domain.groups.migration import MIGRATION_POLICY

PATIENCE_S = 30.0  # for groups that rebalance; most are through in a second or two

_BROKER = 4  # DescribeConfigs' resource type
_GONE = frozenset({"GROUP_ID_NOT_FOUND"})
_PAUSE_S = 0.3
# ConsumerGroupDescribe v1 (KIP-1099): a member of the classic protocol has the type 0.
_CLASSIC_MEMBER = 0
_ASKED_BY: dict[str, tuple[Any, str]] = {
    CLASSIC: (DescribeGroupsRequest, "groups"),
    CONSUMER: (ConsumerGroupDescribeRequest, "group_ids"),
    SHARE: (ShareGroupDescribeRequest, "group_ids"),
    STREAMS: (StreamsGroupDescribeRequest, "group_ids"),
}


def describe_groups(nodes: ClusterConnections, *, patience_s: float = PATIENCE_S) -> tuple[DescribedGroup, ...]:
    """All groups by id. Raises TransientError when a broker does not answer or still loads.

    A group that rebalances tells neither its assignor nor what its members have: it is asked again until it is through,
    or `patience_s` is over; then it is returned as it is.
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


def groups_of_broker(nodes: ClusterConnections, broker: Target) -> Iterable[DescribedGroup]:
    """Those that a broker coordinates, as they are at this moment."""
    listed = listed_groups(nodes, broker)
    for kind, (request, field) in _ASKED_BY.items():
        of_kind = {group.group_id: group for group in listed if group.type == kind}
        if not of_kind:
            continue
        asked = request(**{field: list(of_kind)}, include_authorized_operations=False)
        for answer in nodes.ask(broker, asked).groups:
            group = of_kind[answer.group_id]
            problem = error_name(answer.error_code)
            # A classic group that is no more is "dead", without an error before DescribeGroups v6.
            if problem not in _GONE and not (problem == NO_ERROR and answer.group_state == "Dead"):
                yield _unknown(group, problem) if problem != NO_ERROR else _described(group, answer)


def _unknown(group: ListedGroup, problem: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        type=group.type,
        state=group.state,
        protocol_type=group.protocol_type,
        problem=f"its coordinator answers {problem}",
    )


def _described(group: ListedGroup, answer: Any) -> DescribedGroup:
    assignor = str(getattr(answer, "protocol_data", None) or getattr(answer, "assignor_name", None) or "")
    of_consumers = group.type == CLASSIC and group.protocol_type == "consumer"
    return DescribedGroup(
        group_id=group.group_id,
        type=group.type,
        state=answer.group_state or group.state,
        protocol_type=group.protocol_type,
        assignor=assignor,
        members=tuple(_member(member, group.type, assignor if of_consumers else "") for member in answer.members),
        epoch=getattr(answer, "group_epoch", None),
    )


def _member(member: Any, kind: str, assignor: str) -> GroupMember:
    """`assignor`: the selected one of a classic group of consumers, whose bytes are theirs to read; else empty."""
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
        kept_partitions=bool(assignor) and _kept_partitions(member.member_metadata),
        assigned=_classic_assignment(member.member_assignment) if assignor else _assignment(member),
    )


def _kept_partitions(metadata: bytes) -> bool:
    subscription = _read(ConsumerProtocolSubscription, metadata)
    return subscription is not None and bool(subscription.owned_partitions)


def _classic_assignment(data: bytes) -> tuple[Partition, ...]:
    assignment = _read(ConsumerProtocolAssignment, data)
    return () if assignment is None else tuple(sorted((each.topic, each.partition) for each in assignment.partitions()))


def _read(kind: Any, data: bytes) -> Any:
    """None for no bytes, and for what is not of this kind: members may have assignors with data of their own."""
    try:
        return kind.decode(data) if data else None
    except Exception:
        return None


def _assignment(member: Any) -> tuple[Partition, ...]:
    """Of a member of the newer types; a Streams member has tasks, whose topics the answer does not name."""
    topics = getattr(getattr(member, "assignment", None), "topic_partitions", None) or ()
    return tuple(sorted((topic.topic_name, number) for topic in topics for number in topic.partitions))


def _policy(nodes: ClusterConnections, broker: Target) -> str | None:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[
            resource(resource_type=_BROKER, resource_name=str(broker.node_id), configuration_keys=[MIGRATION_POLICY])
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    (result,) = nodes.ask(broker, request).results
    raise_for_error(result.error_code, what="DescribeConfigs", who=broker.who, right="DESCRIBE_CONFIGS on CLUSTER")
    return next((entry.value for entry in result.configs if entry.name == MIGRATION_POLICY), None)
