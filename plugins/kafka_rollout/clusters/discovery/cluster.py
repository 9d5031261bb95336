"""Nodes of a running cluster, from the answers of its brokers: addresses, roles and racks.

Brokers come from DescribeCluster. Controllers come from DescribeQuorum, which lists their listeners from version 2 on
(KIP-853, release 3.9), or from controller.quorum.voters in the configuration of a broker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from kafka.protocol.admin import DescribeClusterRequest

from kafka_rollout.base.errors import RefusedError, RolloutError, TransientError, UserError
from kafka_rollout.base.wording import few_failures
from kafka_rollout.clusters.inventory import HOST_AND_PORT
from kafka_rollout.kafka.client.admin import describe_quorum
from kafka_rollout.kafka.client.configs import read_node_config
from kafka_rollout.kafka.client.connection import ask_api_versions
from kafka_rollout.kafka.client.features import node_features
from kafka_rollout.kafka.client.requests import (
    ClusterConnections,
    Target,
    host_and_port,
    raise_for_error,
)
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.model.state import NodeFeatures
from kafka_rollout.model.topology import NO_RUNTIME, ClusterSpec, NodeSpec, Role
from kafka_rollout.releases.facts import VersionRange

_TIMEOUT_S = 10.0
_VOTER = re.compile(r"(\d+)@(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredCluster:
    """A running cluster.

    `nodes`: all brokers, and the controllers that respond. `silent`: node id → the reason why it did not respond at its
    address. `hidden`: the same for voters that are not in `nodes`, or there without their address as controllers.
    `supported`: range by feature, from ApiVersions of a broker.
    """

    cluster_id: str
    nodes: tuple[NodeSpec, ...]
    silent: Mapping[int, str]
    hidden: Mapping[int, str]
    supported: Mapping[str, VersionRange]


def discover_cluster(bootstrap: str, security: ClientSecurity) -> DiscoveredCluster:
    """Query the cluster of a broker. `bootstrap`: `host:port` of one or more brokers, with commas. Only reads.

    Raises UserError for text that is no address, TransientError if no broker responds at its advertised address,
    RefusedError if they refuse the user.
    """
    with closing(_connections(_bootstrap(bootstrap), security)) as nodes:
        found = nodes.first_answer(nodes.brokers, DescribeClusterRequest, _accept)
    brokers = {one.broker_id: _broker(one) for one in found.brokers}
    with closing(_connections(brokers.values(), security)) as nodes:
        silent, supported = _query(nodes, nodes.brokers)
        if len(silent) == len(brokers):
            _refuse_advertised(bootstrap, silent)
        voters = _voters(nodes, [target for target in nodes.brokers if target.node_id not in silent])
    listed = {node_id: _controller(node_id, brokers.get(node_id), address) for node_id, address in voters.items()}
    with closing(_connections(listed.values(), security)) as nodes:
        hidden, _ = _query(nodes, nodes.controllers)
    hidden |= {node_id: "its address is unknown" for node_id, address in voters.items() if address is None}
    nodes_ = {**brokers, **listed}
    for node_id in hidden:
        if node_id in brokers:
            nodes_[node_id] = replace(nodes_[node_id], controller_address=None)
        else:
            del nodes_[node_id]
    return DiscoveredCluster(
        cluster_id=str(found.cluster_id),
        nodes=tuple(nodes_[node_id] for node_id in sorted(nodes_)),
        silent=silent,
        hidden=hidden,
        supported=supported,
    )


def _refuse_advertised(bootstrap: str, silent: Mapping[int, str]) -> NoReturn:
    raise TransientError(
        f"{bootstrap} responds, but no broker responds at its advertised address: "
        f"{few_failures(silent.values(), 'brokers')}",
        remedy="Use the bootstrap server of a listener whose advertised.listeners this machine can reach.",
    )


def _bootstrap(text: str) -> Iterator[NodeSpec]:
    for number, address in enumerate(text.split(","), 1):
        if not HOST_AND_PORT.fullmatch(address.strip()):
            raise UserError(f"'{address}' is not host:port of a broker.", remedy="Use, for example, kafka-1:9092.")
        roles = frozenset({Role.BROKER})
        yield NodeSpec(node_id=-number, name="bootstrap", roles=roles, broker_address=address.strip())


def _connections(nodes: Iterable[NodeSpec], security: ClientSecurity) -> ClusterConnections:
    spec = ClusterSpec(name="discovery", runtime=NO_RUNTIME, nodes=tuple(nodes))
    return ClusterConnections(spec, security, timeout_s=_TIMEOUT_S)


def _accept(response: Any, target: Target) -> Any:
    raise_for_error(response.error_code, what="DescribeCluster", who=target.who, right="DESCRIBE on CLUSTER")
    return response


def _broker(found: Any) -> NodeSpec:
    return NodeSpec(
        node_id=found.broker_id,
        name=f"broker-{found.broker_id}",
        roles=frozenset({Role.BROKER}),
        broker_address=host_and_port(found.host, found.port),
        rack=found.rack or None,
    )


def _controller(node_id: int, broker: NodeSpec | None, address: str | None) -> NodeSpec:
    if broker is None:
        roles = frozenset({Role.CONTROLLER})
        return NodeSpec(node_id=node_id, name=f"controller-{node_id}", roles=roles, controller_address=address)
    return replace(broker, name=f"node-{node_id}", roles=frozenset(Role), controller_address=address)


def _query(nodes: ClusterConnections, targets: Iterable[Target]) -> tuple[dict[int, str], dict[str, VersionRange]]:
    """Return the nodes that do not respond to ApiVersions, with the reason, and the ranges of the first that does."""
    silent: dict[int, str] = {}
    supported: dict[str, VersionRange] = {}

    def ask(target: Target) -> NodeFeatures | str:
        try:
            return node_features(ask_api_versions(lambda request: nodes.ask(target, request)))
        except RolloutError as error:
            return error.sentence

    asked = list(targets)
    for target, answer in zip(asked, nodes.from_each(asked, ask), strict=True):
        if isinstance(answer, str):
            silent[target.node_id] = answer
        else:
            supported = supported or dict(answer.supported)
    return silent, supported


def _voters(nodes: ClusterConnections, brokers: list[Target]) -> dict[int, str | None]:
    """Return the address of each voter, None if unknown; empty if the cluster does not list its voters."""
    found: dict[int, str | None] = {}
    try:
        quorum = nodes.first_answer(brokers, describe_quorum, lambda response, target: response)
        (topic,) = quorum.topics
        found = {voter.replica_id: None for voter in topic.partitions[0].current_voters}
        for node in quorum.nodes or ():
            if node.node_id in found and node.listeners:
                found[node.node_id] = host_and_port(node.listeners[0].host, node.listeners[0].port)
    except (RefusedError, TransientError, ValueError):
        pass  # the configuration can have them
    for broker in brokers if not found or None in found.values() else ():
        try:
            config = read_node_config(nodes, broker)
        except RolloutError:
            continue
        for voter in config.get("controller.quorum.voters", "").split(","):
            if match := _VOTER.fullmatch(voter.strip()):
                found[int(match[1])] = found.get(int(match[1])) or match[2]
        break
    return found
