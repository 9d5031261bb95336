"""The contents of a cluster (ClusterInventory), read from leaders, coordinators and any broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
)
from kafka.protocol.consumer import OffsetFetchRequest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.kafka.client.configs import (
    list_configured,
    read_configs,
    read_effective,
    read_group_configs,
    read_quotas,
)
from kafka_rollout.kafka.client.connection import NotOfferedError
from kafka_rollout.kafka.client.coordinators import list_groups_of
from kafka_rollout.kafka.client.requests import (
    LATEST,
    ClusterConnections,
    ResourceType,
    Target,
    error_name,
    list_offsets,
    raise_for_error,
)
from kafka_rollout.model.configs import ConfigSource, ConfigTable, EffectiveConfigs, Setting, entity_name
from kafka_rollout.model.contents import ClusterInventory

_ANY = 1
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_RESOURCES = {2: "topic", 3: "group", 4: "cluster", 5: "transactional id", 6: "delegation token", 7: "user"}
_PATTERNS = {3: "", 4: "prefixed "}
_PERMISSIONS = {2: "deny", 3: "allow"}
# A group that was deleted after it was listed, or one of a type that the finalized levels do not support.
_NO_OFFSETS = frozenset({"GROUP_ID_NOT_FOUND", "INVALID_GROUP_ID", "UNSUPPORTED_VERSION"})
_UNSUPPORTED = frozenset({"UNSUPPORTED_VERSION", "INVALID_REQUEST"})


def read_inventory(
    nodes: ClusterConnections,
    live: Sequence[Target],
    configured_groups: Collection[str] = (),
    *,
    leaderless: bool = False,
) -> ClusterInventory:
    """Raises TransientError where a broker does not respond, RefusedError with a missing right."""
    topics, leaders, source = _topics(nodes, leaderless=leaderless)
    groups = _groups(nodes, live)
    unasked: dict[str, str] = {}
    subscriptions, listed = list_configured(nodes, live[0], unasked)
    configs, effective = _all_configs(nodes, live, source, sorted(topics))
    of_groups = {*configured_groups, *(groups if listed is None else listed)}
    return ClusterInventory(
        topics=topics,
        ends=_ends(nodes, live, leaders, leaderless=leaderless),
        groups=groups,
        configs=configs,
        group_configs=read_group_configs(nodes, live[0], sorted(of_groups), unasked),
        subscriptions=read_configs(nodes, live[0], ResourceType.CLIENT_METRICS, subscriptions),
        acls=_acls(nodes, unasked),
        scram=_scram(nodes, unasked),
        quotas=_quotas(nodes),
        unasked=unasked,
        effective=effective,
    )


def _topics(
    nodes: ClusterConnections, *, leaderless: bool
) -> tuple[dict[str, dict[str, Any]], dict[int, dict[str, list[int]]], Target]:
    """Topics by name, the partitions that each broker leads, and the broker that reported them."""
    found, source = nodes.topics()
    topics: dict[str, dict[str, Any]] = {}
    leaders: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic in found.values():
        topics[topic.name] = {
            "id": str(topic.topic_id),
            "replicas": [sorted(replicas) for _, _, replicas, _ in topic.partitions],
        }
        for number, leader, _, _ in topic.partitions:
            if leader < 0 and leaderless:
                continue
            if leader < 0:
                raise TransientError(f"{topic.name}-{number} has no leader, so its end offset is unknown.")
            leaders[leader][topic.name].append(number)
    return topics, leaders, source


def _ends(
    nodes: ClusterConnections,
    live: Sequence[Target],
    leaders: Mapping[int, Mapping[str, Sequence[int]]],
    *,
    leaderless: bool,
) -> dict[str, int]:
    by_id = {target.node_id: target for target in live}
    ends: dict[str, int] = {}
    for leader, topics in leaders.items():
        if leader not in by_id:
            raise TransientError(f"Broker {leader}, which leads partitions, is not among the brokers that respond.")
        target = by_id[leader]
        for topic in nodes.ask(target, list_offsets(topics, LATEST)).topics:
            for partition in topic.partitions:
                # The high watermark has not advanced since the election: too few replicas are in sync (KIP-966).
                if leaderless and error_name(partition.error_code) == "OFFSET_NOT_AVAILABLE":
                    continue
                what = f"the end offset of {topic.name}-{partition.partition_index}"
                raise_for_error(partition.error_code, what=what, who=target.who, right="DESCRIBE on TOPIC")
                ends[f"{topic.name}-{partition.partition_index}"] = partition.offset
    return dict(sorted(ends.items()))


def _groups(nodes: ClusterConnections, live: Sequence[Target]) -> dict[str, dict[str, Any]]:
    """Type and committed offsets by group; share groups have no committed offsets."""
    found: dict[str, dict[str, Any]] = {}
    for broker in live:
        listed = list_groups_of(nodes, broker)
        for group in listed:
            found[group.group_id] = {"type": group.type, "offsets": {}}
        committing = [group.group_id for group in listed if group.type != "share" and group.state != "Dead"]
        if not committing:
            continue
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in committing],
            require_stable=False,
            min_version=8,
            max_version=9,  # from 10 on topics have no names
        )
        for group in nodes.ask(broker, request).groups:
            if error_name(group.error_code) in _NO_OFFSETS:
                continue
            what = f"the offsets of group {group.group_id}"
            raise_for_error(group.error_code, what=what, who=broker.who, right="DESCRIBE on GROUP")
            found[group.group_id]["offsets"] = {
                f"{topic.name}-{partition.partition_index}": partition.committed_offset
                for topic in group.topics
                for partition in topic.partitions
                if partition.committed_offset >= 0
            }
    return dict(sorted(found.items()))


def _all_configs(
    nodes: ClusterConnections, live: Sequence[Target], source: Target, topics: Sequence[str]
) -> tuple[dict[str, dict[str, str]], EffectiveConfigs]:
    """What is set of topics, of each broker, and of all brokers together; and all effective values.

    Topics: of the broker that listed them. Another one may not know a new topic yet, and its settings would be missing.
    """
    of_topics = read_effective(nodes, source, ResourceType.TOPIC, topics)
    of_brokers = {
        name: settings
        for broker in live
        for name, settings in read_effective(nodes, broker, ResourceType.BROKER, [str(broker.node_id)]).items()
    }
    all_brokers = read_configs(nodes, live[0], ResourceType.BROKER, [""]).get("", {})
    configs = {
        **{f"topic {name}": _set_as(ConfigSource.TOPIC, settings) for name, settings in of_topics.items()},
        "brokers": all_brokers,
        **{f"broker {name}": _set_as(ConfigSource.NODE, settings) for name, settings in of_brokers.items()},
    }
    effective = EffectiveConfigs(
        brokers=ConfigTable.of_resources(of_brokers), topics=ConfigTable.of_resources(of_topics)
    )
    return {resource: values for resource, values in configs.items() if values}, effective


def _set_as(source: ConfigSource, settings: Mapping[str, Setting]) -> dict[str, str]:
    return {name: str(setting.value) for name, setting in settings.items() if setting.source is source}


def _acls(nodes: ClusterConnections, unasked: dict[str, str]) -> tuple[str, ...]:
    response, target = nodes.any_broker(
        lambda: DescribeAclsRequest(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        ),
    )
    if error_name(response.error_code) == "SECURITY_DISABLED":
        unasked["acls"] = "The cluster has no authorizer."
        return ()
    raise_for_error(response.error_code, what="ACLs", who=target.who, right="DESCRIBE on CLUSTER")
    return tuple(
        sorted(
            f"{_PERMISSIONS.get(acl.permission_type, acl.permission_type)} {acl.principal} operation {acl.operation} "
            f"from {acl.host} on {_PATTERNS.get(found.pattern_type, found.pattern_type)}"
            f"{_RESOURCES.get(found.resource_type, found.resource_type)} {found.resource_name}"
            for found in response.resources
            for acl in found.acls
        )
    )


def _scram(nodes: ClusterConnections, unasked: dict[str, str]) -> dict[str, dict[str, Any]]:
    try:
        response, target = nodes.any_broker(lambda: DescribeUserScramCredentialsRequest(users=None))
    except NotOfferedError as error:  # before 3.5 a cluster in KRaft mode has no SCRAM users
        unasked["scram"] = error.sentence
        return {}
    if error_name(response.error_code) in _UNSUPPORTED:
        unasked["scram"] = "This metadata.version has no SCRAM users."
        return {}
    raise_for_error(response.error_code, what="SCRAM users", who=target.who, right="DESCRIBE on CLUSTER")
    return {
        one.user: {
            _MECHANISMS.get(info.mechanism, str(info.mechanism)): info.iterations for info in one.credential_infos
        }
        for one in sorted(response.results, key=lambda one: str(one.user))
    }


def _quotas(nodes: ClusterConnections) -> dict[str, dict[str, float]]:
    return {entity_name(entity): dict(values) for entity, values in read_quotas(nodes).items()}
