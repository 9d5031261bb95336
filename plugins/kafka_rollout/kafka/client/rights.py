"""Rights of the user of a connection, as the brokers themselves evaluate them.

Kafka reports the allowed operations of the cluster and of topics (KIP-430). Other rights are tested by a request for a
name that does not exist: a broker checks the right first, so the request changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
)
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import EndTxnRequest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.kafka.client.connection import NotOfferedError
from kafka_rollout.kafka.client.requests import (
    AUTHORIZATION_ERRORS,
    CONTROLLER_ENDPOINTS,
    ClusterConnections,
    ResourceType,
    describe_configs,
    error_name,
)
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.model.rights import (
    CLUSTER,
    GROUP,
    IMPLY_DESCRIBE,
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
    return tuple(right for right in wanted if right in denied)


def controllers_deny_listing(nodes: ClusterConnections) -> bool:
    """Whether the first controller that responds denies the list of registered controllers (KIP-919)."""
    for target in nodes.controllers:
        try:
            response = nodes.ask(target, DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS, min_version=1))
        except (TransientError, NotOfferedError):
            continue
        return error_name(response.error_code) in AUTHORIZATION_ERRORS
    return False


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
    (GROUP, "DESCRIBE_CONFIGS"): (lambda name: describe_configs([(ResourceType.GROUP, name)]), _of("results")),
    (TRANSACTIONAL_ID, "DESCRIBE"): (
        lambda name: DescribeTransactionsRequest(transactional_ids=[name]),
        _of("transaction_states"),
    ),
    (TRANSACTIONAL_ID, "WRITE"): (_abort, lambda response: [response.error_code]),
}
