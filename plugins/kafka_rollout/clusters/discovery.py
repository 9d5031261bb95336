"""The inventory of a running cluster, from the answers of its brokers: addresses, roles and racks.

Brokers come from DescribeCluster. Controllers come from DescribeQuorum, which lists their listeners from version 2 on
(KIP-853, release 3.9), or from controller.quorum.voters in the configuration of a broker. A value that cannot be
discovered is a commented question.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from kafka.protocol.admin import DescribeClusterRequest

from kafka_rollout.base.errors import RefusedError, RolloutError, TransientError, UserError
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import few_failures
from kafka_rollout.clusters.inventory import HOST_AND_PORT, NAME, list_readable_clusters, load_cluster
from kafka_rollout.kafka.client.admin import describe_quorum
from kafka_rollout.kafka.client.connection import ask_api_versions
from kafka_rollout.kafka.client.contents import read_node_config
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
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Catalogue, VersionRange
from kafka_rollout.releases.reported import identify_by_levels

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
        found = nodes.first_answer(nodes.brokers, DescribeClusterRequest(), _accept)
    brokers = {one.broker_id: _broker(one) for one in found.brokers}
    with closing(_connections(brokers.values(), security)) as nodes:
        silent, supported = _query(nodes, nodes.brokers)
        if len(silent) == len(brokers):
            raise TransientError(
                f"{bootstrap} responds, but no broker responds at its advertised address: "
                f"{few_failures(silent.values(), 'brokers')}",
                remedy="Use the bootstrap server of a listener whose advertised.listeners this machine can reach.",
            )
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
    raise_for_error(response, "DescribeCluster", target)
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
        quorum = nodes.first_answer(brokers, describe_quorum(), lambda response, target: response)
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


_SERVICE = """\
# service:                              # How are the nodes installed on their hosts? These are the defaults.
#   unit: kafka
#   user: kafka
#   installation: /opt/kafka_2.13-{release}
#   symlink: /opt/kafka                   # Or does a package install Kafka? Then use `package` (docs/packages.md).
#   configuration_file: /etc/kafka/server.properties
"""


def discover_inventory(
    bootstrap: str, name: str | None, security: ClientSecurity | None, settings: Settings
) -> tuple[Path, ClusterSpec]:
    """Write the inventory of a running cluster to the folder of the inventories. `bootstrap`: `host:port` of a broker.

    `name`: of the cluster; None: one by its id. Raises UserError if the folder has the cluster or the file already.
    """
    existing, _ = list_readable_clusters(settings)
    _refuse_name(name, existing)
    found = discover_cluster(bootstrap, security or ClientSecurity())
    name = name or default_name(found.cluster_id)
    _refuse_name(name, existing)
    return write_inventory(
        found, name, settings.clusters, get_catalogue(settings), bootstrap=bootstrap, secured=security is not None
    )


def _refuse_name(name: str | None, existing: Collection[str] = ()) -> None:
    if name is not None and not NAME.fullmatch(name):
        raise UserError(f"'{name}' is not a name of a cluster.", remedy="Use lower-case letters, digits, - and _.")
    if name in existing:
        raise UserError(f"The inventory has a cluster {name} already.", remedy="Choose another name with --name.")


def default_name(cluster_id: str) -> str:
    """Return a name of the inventory for a cluster without one."""
    return f"kafka-{re.sub('[^a-z0-9]', '', cluster_id.lower())[:8]}"


def write_inventory(
    found: DiscoveredCluster, name: str, folder: Path, catalogue: Catalogue, *, bootstrap: str, secured: bool
) -> tuple[Path, ClusterSpec]:
    """Write the file of the cluster into the folder of the inventories; returns it as the reader reads it.

    Raises UserError if the file exists, and for an invalid name.
    """
    _refuse_name(name)
    path = folder / f"{name}.yaml"
    draft = folder / f".{name}.yaml.draft"
    text = "".join(_lines(found, name, catalogue, bootstrap, secured))
    try:
        draft.write_text(text, encoding="utf-8")
        spec = load_cluster(draft)
        os.link(draft, path)  # fails if the file exists, which a rename would replace
    except FileExistsError:
        raise UserError(
            f"The inventory {path} exists and was not changed.", remedy="Choose another name with --name."
        ) from None
    except OSError as error:
        raise UserError(
            f"The inventory {path} cannot be written: {error.strerror}.",
            remedy="Make its folder writable, or set KAFKA_ROLLOUT_CLUSTERS to another folder.",
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    return path, spec


def _lines(found: DiscoveredCluster, name: str, catalogue: Catalogue, bootstrap: str, secured: bool) -> Iterator[str]:
    origin = _one_line(f"From broker {bootstrap}, cluster id {found.cluster_id}, by `kafka-rollout inventory init`.")
    yield f"# {origin}\n"
    yield "# A line with a question has a value that cannot be discovered: answer it and remove the first '# '.\n"
    yield f"name: {name}\n"
    yield "runtime: none                           # Can SSH reach the hosts? Then use ssh_service (docs/hosts.md).\n"
    yield _SERVICE
    yield "# ssh_connection_id: kafka-hosts        # Which Airflow Connection reaches the hosts?\n"
    marker = "" if not secured else "          # The listeners are secured."
    yield f"# connection_id: {name}                # Which Airflow Connection has their settings?{marker}\n"
    yield "# owner: kafka-platform                 # Who owns the DAGs?\n"
    yield "# approvers: [anna, ben]                # Which users of Airflow can approve changes?\n"
    line = identify_by_levels(found.supported, catalogue, {})
    if line.release is not None:
        mapping = f'{{"{line.text}": "{line.neighbours[-1]}"}}'
        yield f"# apache_releases: {mapping}   # Which patch release of {line.apache} runs?\n"
    yield "nodes:\n"
    for node in found.nodes:
        yield from _node(node, found)
    for node_id, why in found.hidden.items():
        yield f"# Controller {node_id} is a voter: {_comment(why)} Can this machine reach its listener?\n"
        if all(node.node_id != node_id for node in found.nodes):
            yield f"# - id: {node_id}\n#   name: controller-{node_id}\n#   roles: [controller]\n"
            yield "#   controller_address: HOST:PORT\n"


def _node(node: NodeSpec, found: DiscoveredCluster) -> Iterator[str]:
    known = {
        "id": node.node_id,
        "name": node.name,
        "roles": [role.value for role in Role if role in node.roles],
        "broker_address": node.broker_address,
        "controller_address": node.controller_address,
        "rack": node.rack,
    }
    known = {key: value for key, value in known.items() if value is not None}
    if why := found.silent.get(node.node_id):
        yield f"# {_comment(why)} Is its address correct?\n"
    text: str = yaml.safe_dump([known], sort_keys=False, default_flow_style=None, width=1000)
    yield text
    host = _one_line((node.broker_address or node.controller_address or "").rpartition(":")[0])
    yield f"  # host: {host.strip('[]')}   # Is this its host for SSH?\n"
    yield f"  # prometheus_url: http://{host}:7071/metrics   # Which port has the Prometheus exporter?\n"
    yield f"  # jolokia_url: http://{host}:8778/jolokia   # Which port has the Jolokia agent?\n"


def _one_line(text: str) -> str:
    """Text of the cluster for a comment: a line break in it would begin a line of the inventory."""
    return escape_invisible(" ".join(text.split()))


def _comment(text: str) -> str:
    """One sentence on one line."""
    return f"{_one_line(text).rstrip('.')}."
