"""Groups and transactional ids: every broker is asked for those that it coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest, ListTransactionsRequest

from kafka_rollout.adapters.kafka.messages import (
    ConsumerGroupDescribeRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from kafka_rollout.adapters.kafka.requests import ClusterConnections, Target, error_name, raise_for_error
from kafka_rollout.domain.model.state import GroupState, TransactionState

_CLASSIC = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """What ListGroups says of a group; all are classic where the release does not say."""

    group_id: str
    type: str
    state: str
    protocol_type: str


def listed_groups(nodes: ClusterConnections, broker: Target) -> tuple[ListedGroup, ...]:
    """The groups that a broker coordinates; raises TransientError when it does not answer or still loads."""
    response = nodes.ask(broker, ListGroupsRequest(states_filter=[], types_filter=[]))
    raise_for_error(response.error_code, what="ListGroups", who=broker.who, right="DESCRIBE on CLUSTER")
    return tuple(
        ListedGroup(
            group_id=group.group_id,
            type=(group.group_type or _CLASSIC).lower(),  # before ListGroups v5 (KIP-848) there were no others
            state=group.group_state or "",
            protocol_type=group.protocol_type or "",
        )
        for group in response.groups
    )


def list_groups(nodes: ClusterConnections, brokers: Sequence[Target]) -> tuple[GroupState, ...]:
    """Groups of all `brokers`, by id; raises TransientError when one of them does not answer or still loads."""
    groups: dict[str, GroupState] = {}
    for broker in brokers:
        listed = listed_groups(nodes, broker)
        members = {
            **_members(nodes, broker, _classic_request(_of_type(listed, _CLASSIC))),
            **_members(nodes, broker, _described_by(ConsumerGroupDescribeRequest, _of_type(listed, "consumer"))),
            **_members(nodes, broker, _described_by(ShareGroupDescribeRequest, _of_type(listed, "share"))),
            **_members(nodes, broker, _described_by(StreamsGroupDescribeRequest, _of_type(listed, "streams"))),
        }
        for group in listed:
            groups[group.group_id] = GroupState(
                group_id=group.group_id,
                type=group.type,
                state=group.state,
                protocol_type=group.protocol_type,
                members=members.get(group.group_id),
            )
    return tuple(groups[group_id] for group_id in sorted(groups))


def list_transactions(nodes: ClusterConnections, brokers: Sequence[Target]) -> tuple[TransactionState, ...]:
    """Transactional ids of all `brokers`; raises TransientError when one does not answer or still loads."""
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


def _of_type(listed: Sequence[ListedGroup], wanted: str) -> list[str]:
    return [group.group_id for group in listed if group.type == wanted]


def _classic_request(group_ids: list[str]) -> Any:
    return DescribeGroupsRequest(groups=group_ids, include_authorized_operations=False) if group_ids else None


def _described_by(request: Any, group_ids: list[str]) -> Any:
    return request(group_ids=group_ids, include_authorized_operations=False) if group_ids else None


def _members(nodes: ClusterConnections, broker: Target, request: Any) -> dict[str, int]:
    """Number of members by group; groups that went meanwhile, or may not be described, are left out."""
    if request is None:
        return {}
    groups: Iterable[Any] = nodes.ask(broker, request).groups
    return {group.group_id: len(group.members) for group in groups if error_name(group.error_code) == "NONE"}
