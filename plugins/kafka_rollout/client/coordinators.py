"""Groups, their members and their lag, and transactional ids: every broker is queried for those that it coordinates."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kafka.protocol.admin import (
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from kafka_rollout.base.internal_topics import GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from kafka_rollout.client.connection import NotOfferedError
from kafka_rollout.client.messages import (
    ConsumerGroupDescribeRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from kafka_rollout.client.requests import (
    AUTHORIZATION_ERRORS,
    NO_ERROR,
    ClusterConnections,
    ResourceType,
    Target,
    describe_configs,
    error_name,
    raise_for_error,
)
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.gates.coordinators import LOADING, CoordinatorAnswers, ids_for, led_partitions
from kafka_rollout.model.groups import (
    CLASSIC,
    CONSUMER,
    MIGRATION_POLICY,
    SHARE,
    STREAMS,
    DescribedGroup,
    GroupMember,
    PartitionId,
)
from kafka_rollout.model.state import GroupState, PartitionState, TransactionState

_DESCRIBED_BY: dict[str, tuple[Any, str]] = {
    CLASSIC: (DescribeGroupsRequest, "groups"),
    CONSUMER: (ConsumerGroupDescribeRequest, "group_ids"),
    SHARE: (ShareGroupDescribeRequest, "group_ids"),
    STREAMS: (StreamsGroupDescribeRequest, "group_ids"),
}

_PATIENCE_S = 30.0  # for groups that rebalance; most finish in a second or two
_GONE = "GROUP_ID_NOT_FOUND"
_PAUSE_S = 0.3
# ConsumerGroupDescribe v1 (KIP-1099): a member of the classic protocol has the type 0.
_CLASSIC_MEMBER = 0
_COMMITTING = frozenset({CLASSIC, CONSUMER, STREAMS})  # a share group has no committed offsets
_LAG_TIMEOUT_S = 20.0
# Another broker becomes the coordinator of a listed group.
_MOVES = frozenset({LOADING, "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"})


def list_groups_of(nodes: ClusterConnections, broker: Target) -> tuple[DescribedGroup, ...]:
    """The groups that a broker coordinates, not described; raises TransientError when it does not respond or loads."""
    response = nodes.ask(broker, _all_groups())
    raise_for_error(response, "ListGroups", broker)
    return tuple(
        DescribedGroup(
            group_id=group.group_id,
            type=(group.group_type or CLASSIC).lower(),  # before ListGroups v5 (KIP-848) there were no others
            state=group.group_state or "",
            protocol_type=group.protocol_type or "",
        )
        for group in response.groups
    )


def describe_listed(
    nodes: ClusterConnections, broker: Target, listed: Sequence[DescribedGroup]
) -> Iterator[tuple[DescribedGroup, Any]]:
    """Yield each group with its description, which can have an error code. One request per group type.

    A group has no description, and is not yielded, if the broker does not offer the request for its type: it loads and
    lists groups of newer releases (4.1 those of streams), and groups of a preview.
    """
    for kind, (request, field) in _DESCRIBED_BY.items():
        of_kind = {group.group_id: group for group in listed if group.type == kind}
        if of_kind:
            described = request(**{field: list(of_kind)}, include_authorized_operations=False)
            with suppress(NotOfferedError):
                for answer in nodes.ask(broker, described).groups:
                    yield of_kind[answer.group_id], answer


def subscribed_topics(group: DescribedGroup, answer: Any) -> list[str] | None:
    """Return the topics that the members of a described group subscribe to; None if that is unknown.

    Unknown: a classic group in a rebalance, or whose members have a format of their own; a group that was not
    described; a group of Streams without its topology; a share group.
    """
    found: set[str] = set()
    if answer.error_code:
        return None
    if group.type == STREAMS and answer.members:
        return sorted({topic for topics in _topics_of_tasks(answer).values() for topic in topics}) or None
    for member in answer.members:
        if group.type == CONSUMER:
            found |= {*member.subscribed_topic_names, *(topic for topic, _ in _assignment(member, {}))}
            continue
        subscription = _read(ConsumerProtocolSubscription, member.member_metadata) if group.type == CLASSIC else None
        if group.protocol_type != "consumer" or subscription is None:
            return None
        found |= {*subscription.topics}
    return sorted(found) if answer.members else None


def list_groups(nodes: ClusterConnections, brokers: Sequence[Target]) -> tuple[GroupState, ...]:
    """Groups of all `brokers`, by id; raises TransientError when one of them does not respond, loads or moves a group.

    Number of members None: the group was deleted after it was listed, this user cannot describe it, or the release of
    its coordinator does not.
    """
    groups: dict[str, GroupState] = {}
    for of_broker in nodes.from_each(brokers, lambda broker: _groups_of(nodes, broker)):
        groups |= of_broker
    return tuple(groups[group_id] for group_id in sorted(groups))


def _groups_of(nodes: ClusterConnections, broker: Target) -> dict[str, GroupState]:
    listed = list_groups_of(nodes, broker)
    members: dict[str, int] = {}
    for group, answer in describe_listed(nodes, broker, listed):
        if error_name(answer.error_code) in _MOVES:
            raise_for_error(answer, f"the members of group {group.group_id}", broker, "DESCRIBE on GROUP")
        if answer.error_code == 0:
            members[group.group_id] = len(answer.members)
    return {
        group.group_id: GroupState(
            group_id=group.group_id,
            type=group.type,
            state=group.state,
            protocol_type=group.protocol_type,
            members=members.get(group.group_id),
        )
        for group in listed
    }


def list_transactions(nodes: ClusterConnections, brokers: Sequence[Target]) -> tuple[TransactionState, ...]:
    """Transactional ids of all `brokers`; raises TransientError when one does not respond or still loads."""
    found: dict[str, TransactionState] = {}
    responses = nodes.from_each(brokers, lambda broker: nodes.ask(broker, _all_transactions()))
    for broker, response in zip(brokers, responses, strict=True):
        raise_for_error(response, "ListTransactions", broker, "DESCRIBE on TRANSACTIONAL_ID")
        for transaction in response.transaction_states:
            found[transaction.transactional_id] = TransactionState(
                transactional_id=transaction.transactional_id,
                state=transaction.transaction_state,
                producer_id=transaction.producer_id,
            )
    return tuple(found[transactional_id] for transactional_id in sorted(found))


def ask_coordinators(
    nodes: ClusterConnections, broker: Target, partitions: Sequence[PartitionState]
) -> CoordinatorAnswers:
    """What a broker says of the coordinator partitions that it leads in `partitions`, by ids that do not exist.

    Raises TransientError when it does not respond, RefusedError for a missing right.
    """
    sizes = Counter(p.topic for p in partitions)
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for partition in led_partitions(partitions, broker.node_id):
        if partition.topic != SHARE_TOPIC:
            numbers[partition.topic].add(partition.partition)
    answers: dict[str, str] = {}
    for topic, wanted in numbers.items():
        ids = ids_for(wanted, sizes[topic])
        for name, result in _results(nodes.ask(broker, _describe_ids(topic, list(ids))), topic):
            if error_name(result.error_code) in AUTHORIZATION_ERRORS:
                raise_for_error(result, *_right(topic, broker))
            answers[f"{topic}-{ids[name]}"] = error_name(result.error_code)
    return CoordinatorAnswers(
        by_partition=answers,
        groups=_listed(nodes.ask(broker, _all_groups()), GROUPS_TOPIC, broker),
        transactional_ids=_listed(nodes.ask(broker, _all_transactions()), TRANSACTIONS_TOPIC, broker),
    )


def _all_groups() -> Any:
    return ListGroupsRequest(states_filter=[], types_filter=[])


def _all_transactions() -> Any:
    return ListTransactionsRequest(state_filters=[], producer_id_filters=[])


def _describe_ids(topic: str, names: list[str]) -> Any:
    if topic == GROUPS_TOPIC:
        return DescribeGroupsRequest(groups=names, include_authorized_operations=False)
    return DescribeTransactionsRequest(transactional_ids=names)


def _results(response: Any, topic: str) -> list[tuple[str, Any]]:
    """Ids and results in a response that lists or describes groups or transactional ids."""
    if topic == GROUPS_TOPIC:
        return [(group.group_id, group) for group in response.groups]
    return [(transaction.transactional_id, transaction) for transaction in response.transaction_states]


def _listed(response: Any, topic: str, broker: Target) -> frozenset[str] | None:
    """Ids in a response to ListGroups or ListTransactions; None while the broker loads."""
    if error_name(response.error_code) == LOADING:
        return None
    raise_for_error(response, *_right(topic, broker))
    return frozenset(name for name, _ in _results(response, topic))


def _right(topic: str, broker: Target) -> tuple[str, Target, str]:
    if topic == GROUPS_TOPIC:
        return "queries of groups", broker, "DESCRIBE on all groups (GROUP *)"
    return "queries of transactions", broker, "DESCRIBE on all ids (TRANSACTIONAL_ID *)"


def describe_groups(nodes: ClusterConnections, *, patience_s: float = _PATIENCE_S) -> tuple[DescribedGroup, ...]:
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
    found: dict[int, str | None] = {}
    for broker in nodes.brokers:
        request = describe_configs([(ResourceType.BROKER, str(broker.node_id))], [MIGRATION_POLICY])
        (result,) = nodes.ask(broker, request).results
        raise_for_error(result, "DescribeConfigs", broker, "DESCRIBE_CONFIGS on CLUSTER")
        found[broker.node_id] = next((one.value for one in result.configs if one.name == MIGRATION_POLICY), None)
    return found


def groups_of_broker(nodes: ClusterConnections, broker: Target) -> Iterator[DescribedGroup]:
    """The groups that a broker coordinates, as they are at this moment."""
    listed = list_groups_of(nodes, broker)
    undescribed = {group.group_id: group for group in listed}
    for group, answer in describe_listed(nodes, broker, listed):
        undescribed.pop(group.group_id, None)
        problem = error_name(answer.error_code)
        # A deleted classic group is "Dead", without an error before DescribeGroups v6.
        if problem == _GONE or (problem == NO_ERROR and answer.group_state == "Dead"):
            continue
        if problem == NO_ERROR:
            yield _describe(group, answer)
        else:
            yield replace(group, problem=f"its coordinator answers {problem}")
    for group in undescribed.values():
        no_request = f"its coordinator, {broker.who}, does not describe groups of type {group.type}"
        yield group if group.is_empty else replace(group, problem=no_request)


def _describe(group: DescribedGroup, answer: Any) -> DescribedGroup:
    assignor = str(getattr(answer, "protocol_data", None) or getattr(answer, "assignor_name", None) or "")
    of_consumers = group.type == CLASSIC and group.protocol_type == "consumer"
    of_tasks = _topics_of_tasks(answer)
    return replace(
        group,
        state=answer.group_state or group.state,
        assignor=assignor,
        members=tuple(
            _member(member, group.type, assignor if of_consumers else "", of_tasks) for member in answer.members
        ),
        epoch=getattr(answer, "group_epoch", None),
    )


def _member(member: Any, kind: str, assignor: str, of_tasks: Mapping[str, Sequence[str]]) -> GroupMember:
    """`assignor`: the selected one of a classic group of consumers, whose bytes have Kafka's format; else empty.
    `of_tasks`: as `_topics_of_tasks`."""
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
        assigned=_classic_assignment(member.member_assignment) if assignor else _assignment(member, of_tasks),
    )


def _has_kept_partitions(metadata: bytes) -> bool:
    subscription = _read(ConsumerProtocolSubscription, metadata)
    return subscription is not None and bool(subscription.owned_partitions)


def _classic_assignment(data: bytes) -> tuple[PartitionId, ...]:
    assignment = _read(ConsumerProtocolAssignment, data)
    return () if assignment is None else tuple(sorted((each.topic, each.partition) for each in assignment.partitions()))


def _read(kind: Any, data: bytes) -> Any:
    """None for no bytes and for another format: assignors can have data of their own."""
    try:
        return kind.decode(data) if data else None
    except Exception:
        return None


def _topics_of_tasks(answer: Any) -> dict[str, tuple[str, ...]]:
    """Return subtopology → the topics that its tasks read, of a Streams group (KIP-1071); empty for another one."""
    topology = getattr(answer, "topology", None)
    return {
        one.subtopology_id: (*one.source_topics, *(topic.name for topic in one.repartition_source_topics))
        for one in (None if topology is None else topology.subtopologies) or ()
    }


def _assignment(member: Any, of_tasks: Mapping[str, Sequence[str]]) -> tuple[PartitionId, ...]:
    """Of a member of the newer types. An active task of a Streams member reads the partition with its number of each
    topic of its subtopology; of a topic with fewer partitions, one that does not exist can be among them."""
    assignment = getattr(member, "assignment", None)
    topics = getattr(assignment, "topic_partitions", None) or ()
    found = {(topic.topic_name, number) for topic in topics for number in topic.partitions}
    for task in getattr(assignment, "active_tasks", None) or ():
        found |= {(topic, number) for topic in of_tasks.get(task.subtopology_id, ()) for number in task.partitions}
    return tuple(sorted(found))


def with_lag(
    servers: str, security: ClientSecurity | None, groups: Iterable[DescribedGroup]
) -> tuple[DescribedGroup, ...]:
    """The groups with their lag in records; None where a query failed, 0 where a group committed nothing.

    The end offsets are those of read_uncommitted: an open transaction counts as lag.
    """
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    groups = tuple(groups)
    admin = AdminClient({"bootstrap.servers": servers, **(security.confluent() if security else {}), "log_level": 2})

    def read_committed(group: DescribedGroup) -> dict[PartitionId, int] | None:
        asked = [ConsumerGroupTopicPartitions(group.group_id)]
        try:
            (future,) = admin.list_consumer_group_offsets(asked, request_timeout=_LAG_TIMEOUT_S).values()
            offsets = future.result().topic_partitions or []
        except KafkaException:
            return None
        return {(each.topic, each.partition): each.offset for each in offsets if each.offset >= 0}

    committed = {group.group_id: read_committed(group) for group in groups if group.type in _COMMITTING}
    places = {place for offsets in committed.values() if offsets for place in offsets}
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, number): latest for topic, number in places}
    ends: dict[PartitionId, int] = {}  # without deleted partitions and those that this user cannot describe
    for place, future in admin.list_offsets(asked, request_timeout=_LAG_TIMEOUT_S).items() if asked else ():
        with suppress(KafkaException):
            ends[place.topic, place.partition] = future.result().offset

    def lag_of(offsets: dict[PartitionId, int] | None) -> int | None:
        if offsets is None or not offsets.keys() <= ends.keys():
            return None
        return sum(max(0, ends[place] - offset) for place, offset in offsets.items())

    return tuple(replace(group, lag=lag_of(committed.get(group.group_id))) for group in groups)
