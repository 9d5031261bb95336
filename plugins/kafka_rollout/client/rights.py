"""Rights of the user of a connection, as the brokers themselves evaluate them.

Kafka reports the allowed operations of the cluster and of topics (KIP-430). Other rights are tested by a request for a
name that does not exist: a broker checks the right first, so the request changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
)
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import EndTxnRequest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.connection import NotOfferedError
from kafka_rollout.client.contents import ask_group_configs
from kafka_rollout.client.requests import (
    AUTHORIZATION_ERRORS,
    CONTROLLER_ENDPOINTS,
    ClusterConnections,
    ResourceType,
    Target,
    decode_topics,
    describe_configs,
    describe_topics,
    error_name,
)
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.model.rights import (
    CLUSTER,
    CONTROLLERS_CONFIGS,
    GROUP,
    IMPLY_DESCRIBE,
    LIST_CONTROLLERS,
    LIST_PARTITIONS,
    TOPIC,
    TRAFFIC,
    TRANSACTIONAL_ID,
    MissingRight,
    Right,
    refuse_missing_rights,
)
from kafka_rollout.model.topology import ClusterSpec

_PROBE = "rights-of-kafka-rollout"
_TIMEOUT_S = 10.0
_AT_ONCE = 2_000  # topics in one request
# Codes of org.apache.kafka.common.acl and .resource: ResourceType, PatternType, AclOperation, AclPermissionType.
_ACL_ANY, _ACL_ALL, _ACL_DENY, _ACL_TOPIC, _ACL_PREFIXED = 1, 2, 2, 2, 4
# AclOperation.code
_CODES = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
}


def find_missing(nodes: ClusterConnections, rights: Iterable[Right]) -> tuple[Right, ...]:
    """Return those of `rights` that a broker denies. Raises TransientError if no broker responds.

    A coordinator log that does not exist needs no right. A release that does not know a resource denies nothing.
    """
    wanted = tuple(rights)
    tested = (right for right in wanted if (right.resource, right.operation) in _PROBES and _denies(nodes, right))
    denied = {*_cluster(nodes, wanted), *_topics(nodes, wanted), *tested}
    # Brokers report no operations to a user without DESCRIBE, so these rights are tested by requests.
    for right in wanted:
        if right.operation == "DESCRIBE_CONFIGS" and right.resource in _CONFIGS and _has_no_describe(right, denied):
            denied |= {right} if _denies_configs(nodes, right) else set()
    for right in wanted:  # which implies DESCRIBE_CONFIGS
        if (right.resource, right.operation) == (CLUSTER, "ALTER_CONFIGS"):
            denied |= {right} if any((one.resource, one.operation) == _NO_CONFIGS for one in denied) else set()
    return tuple(right for right in wanted if right in denied)


_NO_CONFIGS = (CLUSTER, "DESCRIBE_CONFIGS")
_CONFIGS = {CLUSTER: ResourceType.BROKER, TOPIC: ResourceType.TOPIC}


def _has_no_describe(right: Right, denied: Collection[Right]) -> bool:
    return any((one.resource, one.operation) == (right.resource, "DESCRIBE") for one in denied) or any(
        (one.resource, one.operation) == (right.resource, "ALTER") for one in denied
    )


def _denies_configs(nodes: ClusterConnections, right: Right) -> bool:
    """Return whether a broker denies the configuration of all brokers, or of a topic that does not exist."""
    name = "" if right.resource == CLUSTER else _probe_name(right)
    response, _ = nodes.any_broker(describe_configs([(_CONFIGS[right.resource], name)], ["log.dirs"]))
    return any(error_name(one.error_code) in AUTHORIZATION_ERRORS for one in response.results)


def find_missing_on_controllers(nodes: ClusterConnections, separate: Collection[int]) -> tuple[Right, ...]:
    """Return the rights that the first controller that responds denies; none that its release does not know.

    `separate`: ids of the controllers that are not brokers: only their configuration is read on this listener.
    """
    listing = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS, min_version=1)
    found = []
    if _first_denies(nodes, nodes.controllers, lambda target: listing, lambda response: [response.error_code]):
        found.append(LIST_CONTROLLERS)
    alone = [target for target in nodes.controllers if target.node_id in separate]
    if _first_denies(nodes, alone, _own_config, _of("results")):
        found.append(CONTROLLERS_CONFIGS)
    return tuple(found)


def _own_config(target: Target) -> Any:
    return describe_configs([(ResourceType.BROKER, str(target.node_id))], ["node.id"])


def _first_denies(
    nodes: ClusterConnections,
    targets: Sequence[Target],
    request: Callable[[Target], Any],
    codes: Callable[[Any], list[int]],
) -> bool:
    for target in targets:
        try:
            response = nodes.ask(target, request(target))
        except (TransientError, NotOfferedError):
            continue
        return any(error_name(code) in AUTHORIZATION_ERRORS for code in codes(response))
    return False


def find_denied_topics(nodes: ClusterConnections) -> dict[Right, tuple[str, ...]]:
    """Return the right to list each topic that an ACL denies to this user, with the principals of such ACLs.

    Brokers leave these topics out, without an error. Whether an ACL is about this user, only they know: mapping rules
    change names, and super users have all rights. So each topic, or an unlikely name with a prefix, is asked for.
    Empty without the right to list ACLs.
    """
    response, _ = nodes.any_broker(
        DescribeAclsRequest(
            resource_type_filter=_ACL_TOPIC,
            resource_name_filter=None,
            pattern_type_filter=_ACL_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ACL_ANY,
            permission_type=_ACL_DENY,
        )
    )
    if response.error_code:  # without an authorizer there are none, and a missing right has its own finding
        return {}
    rights: dict[Right, dict[str, None]] = {}
    for found in response.resources:
        if found.resource_name == "*":
            continue  # the test of LIST_PARTITIONS shows it
        name = f"{found.resource_name}*" if found.pattern_type == _ACL_PREFIXED else found.resource_name
        principals = [acl.principal for acl in found.acls if acl.operation in (_ACL_ALL, _CODES["DESCRIBE"])]
        if principals:
            rights.setdefault(replace(LIST_PARTITIONS, name=name), {}).update(dict.fromkeys(principals))
    names = {_probe_name(right): right for right in rights}
    hidden = set()
    for begin in range(0, len(names), _AT_ONCE):
        asked = list(names)[begin : begin + _AT_ONCE]
        answer = nodes.first_answer(nodes.brokers, describe_topics(asked), lambda *both: both[0], decode=decode_topics)
        hidden |= {topic.name for topic in answer if error_name(topic.error_code) in AUTHORIZATION_ERRORS}
    return {right: tuple(rights[right]) for name, right in names.items() if name in hidden}


def refuse_without_traffic_rights(cluster: ClusterSpec, security: ClientSecurity) -> None:
    """Raise RefusedError with every right that the test traffic needs and does not have."""
    nodes = ClusterConnections(cluster, security, timeout_s=_TIMEOUT_S)
    try:
        missing = find_missing(nodes, TRAFFIC)
    finally:
        nodes.close()
    refuse_missing_rights(cluster, [MissingRight(right=right, principal=security.principal) for right in missing])


def _cluster(nodes: ClusterConnections, rights: Sequence[Right]) -> Iterator[Right]:
    wanted = [right for right in rights if right.resource == CLUSTER]
    if wanted:
        response, _ = nodes.any_broker(DescribeClusterRequest(include_cluster_authorized_operations=True))
        yield from _without(wanted, response.authorized_operations or ())


def _topics(nodes: ClusterConnections, rights: Sequence[Right]) -> Iterator[Right]:
    wanted: dict[str, list[Right]] = {}
    for right in rights:
        if right.resource == TOPIC and (TOPIC, right.operation) not in _PROBES:
            wanted.setdefault(_probe_name(right), []).append(right)
    if not wanted:
        return
    response, _ = nodes.any_broker(
        MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in wanted],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            min_version=8,
        )
    )
    for topic in response.topics:
        error = error_name(topic.error_code)
        of_topic = wanted[topic.name]
        if error in AUTHORIZATION_ERRORS:
            yield from _without(of_topic, ())
        elif error == "NONE" or of_topic[0].name != topic.name:
            yield from _without(of_topic, topic.authorized_operations or ())


def _without(rights: Sequence[Right], operations: Collection[int]) -> Iterator[Right]:
    """The rights that are not among the reported operations; none are reported to a user without DESCRIBE."""
    for right in rights:
        if _CODES[right.operation] not in operations and (operations or right.operation in IMPLY_DESCRIBE):
            yield right


def _probe_name(right: Right) -> str:
    return right.name.removesuffix("*") + _PROBE if right.name.endswith("*") else right.name


def _denies(nodes: ClusterConnections, right: Right) -> bool:
    request, codes = _PROBES[right.resource, right.operation]
    name = _probe_name(right)
    try:
        if (right.resource, right.operation) == (GROUP, "DESCRIBE_CONFIGS"):
            response = ask_group_configs(nodes, nodes.any_broker(DescribeClusterRequest())[1], [name])
        else:
            response, _ = nodes.any_broker(request(name))
    except NotOfferedError:
        return False
    return any(error_name(code) in AUTHORIZATION_ERRORS for code in codes(response))


def _create_topic(name: str) -> Any:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True)


def _describe_group(name: str) -> Any:
    return DescribeGroupsRequest(groups=[name], include_authorized_operations=False)


def _heartbeat(name: str) -> Any:
    return HeartbeatRequest(group_id=name, generation_id=-1, member_id="", group_instance_id=None)


def _abort(name: str) -> Any:
    return EndTxnRequest(transactional_id=name, producer_id=-1, producer_epoch=-1, committed=False)


def _of(field: str) -> Callable[[Any], list[int]]:
    return lambda response: [one.error_code for one in getattr(response, field)]


# (resource, operation) → request for a name that does not exist, and the error codes of its response.
_PROBES: Mapping[tuple[str, str], tuple[Callable[[str], Any], Callable[[Any], list[int]]]] = {
    (TOPIC, "CREATE"): (_create_topic, _of("topics")),
    (GROUP, "DESCRIBE"): (_describe_group, _of("groups")),
    (GROUP, "READ"): (_heartbeat, lambda response: [response.error_code]),
    (GROUP, "DELETE"): (lambda name: DeleteGroupsRequest(groups_names=[name]), _of("results")),
    (GROUP, "DESCRIBE_CONFIGS"): (lambda name: None, _of("results")),
    (TRANSACTIONAL_ID, "DESCRIBE"): (
        lambda name: DescribeTransactionsRequest(transactional_ids=[name]),
        _of("transaction_states"),
    ),
    (TRANSACTIONAL_ID, "WRITE"): (_abort, lambda response: [response.error_code]),
}
