"""Groups and transactional ids: every broker is queried for those that it coordinates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kafka.protocol.admin import (
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
)

from kafka_rollout.base.internal_topics import GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from kafka_rollout.gates.coordinators import LOADING, CoordinatorAnswers, ids_for, led_partitions
from kafka_rollout.kafka.client.messages import (
    ConsumerGroupDescribeRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from kafka_rollout.kafka.client.requests import (
    AUTHORIZATION_ERRORS,
    ClusterConnections,
    Target,
    error_name,
    raise_for_error,
)
from kafka_rollout.model.groups import CLASSIC, CONSUMER, SHARE, STREAMS
from kafka_rollout.model.state import GroupState, PartitionState, TransactionState

_DESCRIBED_BY: dict[str, tuple[Any, str]] = {
    CLASSIC: (DescribeGroupsRequest, "groups"),
    CONSUMER: (ConsumerGroupDescribeRequest, "group_ids"),
    SHARE: (ShareGroupDescribeRequest, "group_ids"),
    STREAMS: (StreamsGroupDescribeRequest, "group_ids"),
}

# Another broker becomes the coordinator of a listed group.
_MOVES = frozenset({LOADING, "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group in a response to ListGroups. `type`: classic where the release reports none."""

    group_id: str
    type: str
    state: str
    protocol_type: str


def list_groups_of(nodes: ClusterConnections, broker: Target) -> tuple[ListedGroup, ...]:
    """The groups that a broker coordinates; raises TransientError when it does not respond or still loads."""
    response = nodes.ask(broker, _all_groups())
    raise_for_error(response.error_code, what="ListGroups", who=broker.who, right="DESCRIBE on CLUSTER")
    return tuple(
        ListedGroup(
            group_id=group.group_id,
            type=(group.group_type or CLASSIC).lower(),  # before ListGroups v5 (KIP-848) there were no others
            state=group.group_state or "",
            protocol_type=group.protocol_type or "",
        )
        for group in response.groups
    )


def describe_listed(
    nodes: ClusterConnections, broker: Target, listed: Sequence[ListedGroup]
) -> Iterator[tuple[ListedGroup, Any]]:
    """Yield each group with its description, which can have an error code. One request per group type."""
    for kind, (request, field) in _DESCRIBED_BY.items():
        of_kind = {group.group_id: group for group in listed if group.type == kind}
        if of_kind:
            described = request(**{field: list(of_kind)}, include_authorized_operations=False)
            for answer in nodes.ask(broker, described).groups:
                yield of_kind[answer.group_id], answer


def list_groups(nodes: ClusterConnections, brokers: Sequence[Target]) -> tuple[GroupState, ...]:
    """Groups of all `brokers`, by id; raises TransientError when one of them does not respond, loads or moves a group.

    Number of members None: the group was deleted after it was listed, or this user cannot describe it.
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
            what = f"the members of group {group.group_id}"
            raise_for_error(answer.error_code, what=what, who=broker.who, right="DESCRIBE on GROUP")
        if answer.error_code == 0:
            members[group.group_id] = len(answer.members)
    return {group.group_id: GroupState(**asdict(group), members=members.get(group.group_id)) for group in listed}


def list_transactions(nodes: ClusterConnections, brokers: Sequence[Target]) -> tuple[TransactionState, ...]:
    """Transactional ids of all `brokers`; raises TransientError when one does not respond or still loads."""
    found: dict[str, TransactionState] = {}
    responses = nodes.from_each(brokers, lambda broker: nodes.ask(broker, _all_transactions()))
    for broker, response in zip(brokers, responses, strict=True):
        raise_for_error(
            response.error_code, what="ListTransactions", who=broker.who, right="DESCRIBE on TRANSACTIONAL_ID"
        )
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
        for name, code in _describe_ids(nodes, broker, topic, list(ids)):
            if error_name(code) in AUTHORIZATION_ERRORS:
                _raise_for_right(code, topic, broker)
            answers[f"{topic}-{ids[name]}"] = error_name(code)
    return CoordinatorAnswers(
        by_partition=answers,
        groups=_listed(nodes.ask(broker, _all_groups()), GROUPS_TOPIC, broker),
        transactional_ids=_listed(nodes.ask(broker, _all_transactions()), TRANSACTIONS_TOPIC, broker),
    )


def _all_groups() -> Any:
    return ListGroupsRequest(states_filter=[], types_filter=[])


def _all_transactions() -> Any:
    return ListTransactionsRequest(state_filters=[], producer_id_filters=[])


def _describe_ids(nodes: ClusterConnections, broker: Target, topic: str, names: list[str]) -> Iterator[tuple[str, int]]:
    if topic == GROUPS_TOPIC:
        groups = DescribeGroupsRequest(groups=names, include_authorized_operations=False)
        return ((answer.group_id, answer.error_code) for answer in nodes.ask(broker, groups).groups)
    answers = nodes.ask(broker, DescribeTransactionsRequest(transactional_ids=names)).transaction_states
    return ((answer.transactional_id, answer.error_code) for answer in answers)


def _listed(response: Any, topic: str, broker: Target) -> frozenset[str] | None:
    """Ids in a response to ListGroups or ListTransactions; None while the broker loads."""
    if error_name(response.error_code) == LOADING:
        return None
    _raise_for_right(response.error_code, topic, broker)
    if topic == GROUPS_TOPIC:
        return frozenset(group.group_id for group in response.groups)
    return frozenset(transaction.transactional_id for transaction in response.transaction_states)


def _raise_for_right(code: int, topic: str, broker: Target) -> None:
    if topic == GROUPS_TOPIC:
        raise_for_error(code, what="queries of groups", who=broker.who, right="DESCRIBE on all groups (GROUP *)")
    raise_for_error(
        code, what="queries of transactions", who=broker.who, right="DESCRIBE on all ids (TRANSACTIONAL_ID *)"
    )
