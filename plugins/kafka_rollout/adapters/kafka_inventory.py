"""What is in a cluster (domain/cluster_inventory), asked of the brokers that know it: leaders, coordinators, any."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeUserScramCredentialsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_rollout.adapters.kafka_connection import NotOfferedError
from kafka_rollout.adapters.kafka_coordinators import list_groups
from kafka_rollout.adapters.kafka_requests import ClusterConnections, Target, error_name, raise_for_error
from kafka_rollout.domain.cluster_inventory import HIDDEN, ClusterInventory
from kafka_rollout.domain.errors import TransientError

_TOPIC, _BROKER = 2, 4  # resource types
# ConfigSource: what was set dynamically and lies in the metadata; other values come from files and defaults.
_DYNAMIC = frozenset({1, 2, 3})
_LATEST = -1
_ANY = 1
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_RESOURCES = {2: "topic", 3: "group", 4: "cluster", 5: "transactional id", 6: "delegation token", 7: "user"}
_PATTERNS = {3: "", 4: "prefixed "}
_PERMISSIONS = {2: "deny", 3: "allow"}
# A group that went meanwhile, or one of a type that the finalized levels do not serve.
_NO_OFFSETS = frozenset({"GROUP_ID_NOT_FOUND", "INVALID_GROUP_ID", "UNSUPPORTED_VERSION"})
_UNSUPPORTED = frozenset({"UNSUPPORTED_VERSION", "INVALID_REQUEST"})


def read_inventory(nodes: ClusterConnections, live: Sequence[Target]) -> ClusterInventory:
    """Raises TransientError where a broker does not answer, RefusedError naming a missing right."""
    topics, leaders = _topics(nodes)
    unasked: dict[str, str] = {}
    return ClusterInventory(
        topics=topics,
        ends=_ends(nodes, live, leaders),
        groups=_groups(nodes, live),
        configs=_configs(nodes, live, sorted(topics)),
        acls=_acls(nodes, unasked),
        scram=_scram(nodes, unasked),
        quotas=_quotas(nodes),
        unasked=unasked,
    )


def _first(nodes: ClusterConnections, request: Callable[[], Any]) -> tuple[Any, Target]:
    def accept(response: Any, target: Target) -> tuple[Any, Target]:
        return response, target

    answer: tuple[Any, Target] = nodes.first_answer(nodes.brokers, request, accept)
    return answer


def _topics(nodes: ClusterConnections) -> tuple[dict[str, dict[str, Any]], dict[int, dict[str, list[int]]]]:
    """Topics by name, and the partitions that each broker leads."""
    response, target = _first(nodes, lambda: MetadataRequest(topics=None, allow_auto_topic_creation=False))
    topics: dict[str, dict[str, Any]] = {}
    leaders: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic in response.topics:
        if error_name(topic.error_code) == "UNKNOWN_TOPIC_OR_PARTITION":  # being deleted
            continue
        raise_for_error(topic.error_code, what=f"topic {topic.name}", who=target.who, right="DESCRIBE on TOPIC")
        partitions = sorted(topic.partitions, key=lambda one: one.partition_index)
        topics[topic.name] = {
            "id": str(topic.topic_id),
            "replicas": [sorted(partition.replica_nodes) for partition in partitions],
        }
        for partition in partitions:
            if partition.leader_id < 0:
                raise TransientError(f"{topic.name}-{partition.partition_index} has no leader to ask for its end.")
            leaders[partition.leader_id][topic.name].append(partition.partition_index)
    return topics, leaders


def _ends(
    nodes: ClusterConnections, live: Sequence[Target], leaders: Mapping[int, Mapping[str, Sequence[int]]]
) -> dict[str, int]:
    by_id = {target.node_id: target for target in live}
    topic_ = ListOffsetsRequest.ListOffsetsTopic
    partition_ = topic_.ListOffsetsPartition
    ends: dict[str, int] = {}
    for leader, topics in leaders.items():
        if leader not in by_id:
            raise TransientError(f"Broker {leader}, which leads partitions, is not among those that answer.")
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                topic_(
                    name=name,
                    partitions=[
                        partition_(partition_index=number, current_leader_epoch=-1, timestamp=_LATEST)
                        for number in numbers
                    ],
                )
                for name, numbers in topics.items()
            ],
        )
        target = by_id[leader]
        for topic in nodes.ask(target, request).topics:
            for partition in topic.partitions:
                what = f"the end of {topic.name}-{partition.partition_index}"
                raise_for_error(partition.error_code, what=what, who=target.who, right="DESCRIBE on TOPIC")
                ends[f"{topic.name}-{partition.partition_index}"] = partition.offset
    return dict(sorted(ends.items()))


def _groups(nodes: ClusterConnections, live: Sequence[Target]) -> dict[str, dict[str, Any]]:
    """Every coordinator is asked for its own; share groups keep their progress elsewhere."""
    found: dict[str, dict[str, Any]] = {}
    for broker in live:
        listed = list_groups(nodes, [broker])
        for group in listed:
            found[group.group_id] = {"type": group.type, "offsets": {}}
        asked = [group.group_id for group in listed if group.type != "share" and group.state != "Dead"]
        if not asked:
            continue
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in asked],
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


def _configs(nodes: ClusterConnections, live: Sequence[Target], topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Of topics, of each broker (asked itself), and of all brokers together."""
    found: dict[str, dict[str, str]] = {}
    resource = DescribeConfigsRequest.DescribeConfigsResource

    def ask(target: Target, resources: Iterable[tuple[int, str, str]]) -> None:
        named = {(kind, name): shown for kind, name, shown in resources}
        if not named:
            return
        request = DescribeConfigsRequest(
            resources=[
                resource(resource_type=kind, resource_name=name, configuration_keys=None) for kind, name in named
            ],
            include_synonyms=False,
            include_documentation=False,
        )
        for result in nodes.ask(target, request).results:
            if error_name(result.error_code) == "UNKNOWN_TOPIC_OR_PARTITION":
                continue
            shown = named[result.resource_type, result.resource_name]
            raise_for_error(
                result.error_code,
                what=f"the configuration of {shown}",
                who=target.who,
                right="DESCRIBE_CONFIGS",
                message=result.error_message,
            )
            # A broker shows what is set for all of them as well.
            own = {1} if result.resource_type == _TOPIC else {2} if result.resource_name else {3}
            values = {
                one.name: HIDDEN if one.is_sensitive else str(one.value)
                for one in result.configs
                if one.config_source in own & _DYNAMIC
            }
            if values:
                found[shown] = values

    ask(live[0], [(_TOPIC, name, f"topic {name}") for name in topics])
    ask(live[0], [(_BROKER, "", "brokers")])
    for broker in live:
        ask(broker, [(_BROKER, str(broker.node_id), f"broker {broker.node_id}")])
    return found


def _acls(nodes: ClusterConnections, unasked: dict[str, str]) -> tuple[str, ...]:
    response, target = _first(
        nodes,
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
        response, target = _first(nodes, lambda: DescribeUserScramCredentialsRequest(users=None))
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
    response, target = _first(nodes, lambda: DescribeClientQuotasRequest(components=[], strict=False))
    raise_for_error(response.error_code, what="quotas", who=target.who, right="DESCRIBE_CONFIGS on CLUSTER")
    return {
        " ".join(f"{one.entity_type} {one.entity_name or '(default)'}" for one in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }
