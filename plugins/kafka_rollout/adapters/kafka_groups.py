"""Groups with their members: every broker is asked for those that it coordinates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest, DescribeGroupsRequest

from kafka_rollout.adapters.kafka_coordinators import list_groups
from kafka_rollout.adapters.kafka_messages import ConsumerGroupDescribeRequest
from kafka_rollout.adapters.kafka_requests import ClusterConnections, Target, error_name, raise_for_error
from kafka_rollout.domain.group_migration import MIGRATION_POLICY, DescribedGroup, GroupMember

_BROKER = 4  # DescribeConfigs' resource type
_CLASSIC_MEMBER = 0  # ConsumerGroupDescribe v1 (KIP-1099)


def describe_groups(nodes: ClusterConnections) -> tuple[DescribedGroup, ...]:
    """All groups by id. Raises TransientError when a broker does not answer or still loads."""
    described: dict[str, DescribedGroup] = {}
    for broker in nodes.brokers:
        listed = list_groups(nodes, [broker])
        of_type = {kind: [group.group_id for group in listed if group.type == kind] for kind in ("classic", "consumer")}
        found = {
            **_answers(nodes, broker, DescribeGroupsRequest, "groups", of_type["classic"]),
            **_answers(nodes, broker, ConsumerGroupDescribeRequest, "group_ids", of_type["consumer"]),
        }
        for group in listed:
            answer = found.get(group.group_id)
            described[group.group_id] = DescribedGroup(
                group_id=group.group_id,
                type=group.type,
                state=group.state,
                protocol_type=group.protocol_type,
                assignor="" if answer is None else _assignor(answer),
                members=() if answer is None else tuple(map(_member, answer.members)),
            )
    return tuple(described[group_id] for group_id in sorted(described))


def migration_policies(nodes: ClusterConnections) -> dict[int, str | None]:
    """Each broker's group.consumer.migration.policy; None where it has no such configuration."""
    return {broker.node_id: _policy(nodes, broker) for broker in nodes.brokers}


def _answers(
    nodes: ClusterConnections, broker: Target, request: Any, field: str, group_ids: list[str]
) -> dict[str, Any]:
    """Groups that went meanwhile, or may not be described, are left out."""
    if not group_ids:
        return {}
    groups: Iterable[Any] = nodes.ask(broker, request(**{field: group_ids}, include_authorized_operations=False)).groups
    return {group.group_id: group for group in groups if error_name(group.error_code) == "NONE"}


def _assignor(answer: Any) -> str:
    return str(getattr(answer, "protocol_data", None) or getattr(answer, "assignor_name", None) or "")


def _member(member: Any) -> GroupMember:
    return GroupMember(
        client_id=member.client_id,
        host=member.client_host,
        instance_id=getattr(member, "group_instance_id", None) or getattr(member, "instance_id", None),
        uses_classic=getattr(member, "member_type", _CLASSIC_MEMBER) == _CLASSIC_MEMBER,
    )


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
