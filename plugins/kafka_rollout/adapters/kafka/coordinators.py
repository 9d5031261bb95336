"""Groups and transactional ids: every broker is queried for those that it coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest, ListTransactionsRequest

from kafka_rollout.adapters.kafka.messages import (
    ConsumerGroupDescribeRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from kafka_rollout.adapters.kafka.requests import ClusterConnections, Target, raise_for_error
from kafka_rollout.domain.groups.described import CLASSIC, CONSUMER, SHARE, STREAMS
from kafka_rollout.domain.model.state import GroupState, TransactionState

_DESCRIBED_BY: dict[str, tuple[Any, str]] = {
    CLASSIC: (DescribeGroupsRequest, "groups"),
    CONSUMER: (ConsumerGroupDescribeRequest, "group_ids"),
    SHARE: (ShareGroupDescribeRequest, "group_ids"),
    STREAMS: (StreamsGroupDescribeRequest, "group_ids"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group in a response to ListGroups. `type`: classic where the release reports none."""

    group_id: str
    type: str
    state: str
    protocol_type: str


def list_groups_of(nodes: ClusterConnections, broker: Target) -> tuple[ListedGroup, ...]:
    """The groups that a broker coordinates; raises TransientError when it does not respond or still loads."""
    response = nodes.ask(broker, ListGroupsRequest(states_filter=[], types_filter=[]))
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
    """Groups of all `brokers`, by id; raises TransientError when one of them does not respond or still loads.

    Number of members None: the group was deleted after it was listed, or this user cannot describe it.
    """
    groups: dict[str, GroupState] = {}
    for broker in brokers:
        listed = list_groups_of(nodes, broker)
        members = {
            group.group_id: len(answer.members)
            for group, answer in describe_listed(nodes, broker, listed)
            if answer.error_code == 0
        }
        for group in listed:
            groups[group.group_id] = GroupState(**asdict(group), members=members.get(group.group_id))
    return tuple(groups[group_id] for group_id in sorted(groups))


def list_transactions(nodes: ClusterConnections, brokers: Sequence[Target]) -> tuple[TransactionState, ...]:
    """Transactional ids of all `brokers`; raises TransientError when one does not respond or still loads."""
    found: dict[str, TransactionState] = {}
    for broker in brokers:
        response = nodes.ask(broker, ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
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
