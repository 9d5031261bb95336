"""The inventory of a running cluster, from the answers of its brokers: addresses, roles and racks.

Brokers come from DescribeCluster, which lists fenced ones from 4.0 on (KIP-1073), and from the replicas of partitions.
Controllers come from DescribeQuorum, which lists their listeners from version 2 on (KIP-853, release 3.9), from their
registrations, or from controller.quorum.voters in the configuration of a broker. A node that one source names exists,
whether or not it responds. A value that cannot be discovered is a commented question.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_rollout.base.errors import RefusedError, RolloutError, TransientError, UserError
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.time_limits import RESPONSE_S
from kafka_rollout.base.wording import few_failures
from kafka_rollout.client.admin import describe_quorum, read_quorum
from kafka_rollout.client.connection import ask_api_versions
from kafka_rollout.client.contents import read_node_config
from kafka_rollout.client.features import node_features
from kafka_rollout.client.requests import (
    CONTROLLER_ENDPOINTS,
    ClusterConnections,
    SilentNodes,
    Target,
    host_and_port,
    raise_for_error,
)
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.clusters.inventory import HOST_AND_PORT, NAME, find_problem, list_readable_clusters, load_cluster
from kafka_rollout.model.state import NodeFeatures, QuorumState
from kafka_rollout.model.topology import NO_RUNTIME, ClusterSpec, NodeSpec, Role
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release, VersionRange
from kafka_rollout.releases.reported import identify_by_levels, levels_text

_VOTER = re.compile(r"(\d+)@(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the sources of a cluster name, before they are merged."""

    brokers: Mapping[int, NodeSpec]
    """Registered ones, by DescribeCluster of every broker that responds."""
    replicas: Collection[int] = ()
    """Brokers in the replica lists of partitions."""
    quorum: QuorumState | None = None
    voters: Mapping[int, str | None] = field(default_factory=dict)
    """Address as a controller, or None."""
    controllers: Mapping[int, str] = field(default_factory=dict)
    """Registered ones, with their address."""
    silent_brokers: Mapping[int, str] = field(default_factory=dict)
    """Id → the reason why it does not respond at its address."""
    silent_controllers: Mapping[int, str] = field(default_factory=dict)
    """Id → the reason why it does not respond at its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredCluster:
    """A running cluster: the union of the nodes that any source names.

    A node of `nodes` has no address if no source reports one.
    """

    cluster_id: str
    nodes: tuple[NodeSpec, ...]
    silent: Mapping[int, str]
    """Id of a node → the reason why it did not respond."""
    hidden: Mapping[int, str]
    """Id → the reason why a controller that runs is not in `nodes`, or is there without its address as a controller."""
    supported: Mapping[str, VersionRange]
    """Range by feature, from ApiVersions of a broker."""
    unread: tuple[str, ...] = ()
    """Sources that could not be read, as sentences with a remedy."""

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each node that exists and was not seen, and for each source that could not be read."""
        names = {node.node_id: node.name for node in self.nodes}
        return (
            *(f"{names[node_id]} (node {node_id}) does not respond: {why}" for node_id, why in self.silent.items()),
            *self.unread,
        )


def discover_cluster(
    bootstrap: str, security: ClientSecurity, silent_nodes: SilentNodes | None = None
) -> DiscoveredCluster:
    """Query the cluster of a broker. `bootstrap`: `host:port` of one or more brokers, with commas. Only reads.

    `silent_nodes`: shared with later connections to the cluster.

    A node that does not respond is in the result. Raises UserError for text that is no address and for the address of a
    controller, TransientError if no broker responds at its advertised address, RefusedError if they refuse the user.
    """
    connect = partial(_connections, security=security, silent=silent_nodes or SilentNodes())
    with closing(connect(_bootstrap(bootstrap))) as nodes:
        registered = nodes.first_answer(nodes.brokers, _registered_brokers(), partial(_accept, nodes))
    brokers = {broker.broker_id: _broker(broker) for broker in registered.brokers}
    if not brokers:
        raise UserError(
            f"{bootstrap} responds and names no broker: its listener is in advertised.listeners of no broker.",
            remedy="Use the bootstrap server of a listener that is in advertised.listeners.",
        )
    unread: list[str] = []
    with closing(connect(brokers.values())) as nodes:
        silent, answers = _query(nodes, nodes.brokers)
        if len(silent) == len(brokers):
            raise TransientError(
                f"{bootstrap} responds, but no broker responds at its advertised address: "
                f"{few_failures(silent.values(), 'brokers')}",
                remedy="Use the bootstrap server of a listener whose advertised.listeners this machine can reach.",
            )
        answering = [target for target in nodes.brokers if target.node_id not in silent]
        for listed in nodes.from_each(answering, partial(_ask_brokers, nodes)):
            brokers = {**listed, **brokers}
        quorum, voters = _quorum(nodes, answering, unread)
        replicas = _replica_ids(nodes, answering, unread)
    if any(answer.in_zookeeper_mode for answer in answers):
        unread = ["The brokers run in ZooKeeper mode. Migrate the cluster to KRaft first."]
    elif not voters:
        unread.append(
            "No source names the controllers, which every cluster in KRaft mode has. To list them, grant DESCRIBE on "
            "CLUSTER to this user."
        )
    controllers_of_config = [_controller(node_id, None, address) for node_id, address in voters.items() if address]
    with closing(connect(controllers_of_config)) as nodes:
        silent_controllers, _ = _query(nodes, nodes.controllers)
        controllers = _registered_controllers(nodes, silent_controllers)
    others = [_controller(node_id, None, controllers[node_id]) for node_id in controllers.keys() - voters.keys()]
    with closing(connect(others)) as nodes:
        silent_controllers |= _query(nodes, nodes.controllers)[0]
    merged = merge(
        Sources(
            brokers=brokers,
            replicas=replicas,
            quorum=quorum,
            voters=voters,
            controllers=controllers,
            silent_brokers=silent,
            silent_controllers={
                **{node_id: "Its address is unknown." for node_id, address in voters.items() if address is None},
                **silent_controllers,
            },
        )
    )
    supported = dict(next(iter(answers)).supported)
    return replace(merged, cluster_id=str(registered.cluster_id), supported=supported, unread=tuple(unread))


_NO_ADDRESS = "No broker reports its address: it is fenced, or it is not registered."


def merge(sources: Sources) -> DiscoveredCluster:
    """Return the nodes that any source names. `cluster_id`, `supported` and `unread` are empty."""
    quorum, observers = sources.quorum, sources.quorum.observers if sources.quorum else ()
    reported = {*sources.brokers, *sources.replicas, *sources.voters, *sources.controllers}
    # The leader lists an observer for five minutes after its last fetch: a broker, or a controller without a vote.
    gone = {observer.replica_id for observer in observers if not _fetches(quorum, observer.replica_id)} - reported
    nodes: list[NodeSpec] = []
    silent: dict[int, str] = {}
    hidden = {
        observer.replica_id: "It observes the quorum, and no source reports its address."
        for observer in observers
        if observer.replica_id not in reported | gone
    }
    for node_id in sorted(reported | gone):
        is_controller = node_id in sources.voters or node_id in sources.controllers
        is_broker = node_id in sources.brokers or node_id in sources.replicas or not is_controller
        address = sources.voters.get(node_id) or sources.controllers.get(node_id)
        broker = sources.brokers.get(node_id) or (_unseen_broker(node_id) if is_broker else None)
        why_not = sources.silent_controllers.get(node_id) if is_controller else None
        if is_broker and (
            why := sources.silent_brokers.get(node_id, "" if node_id in sources.brokers else _NO_ADDRESS)
        ):
            silent[node_id] = why
        elif why_not and (is_broker or quorum is None or _fetches(quorum, node_id)):
            hidden[node_id] = why_not
            if not is_broker:
                continue
        elif why_not:
            silent[node_id] = why_not
        if is_controller:
            nodes.append(_controller(node_id, broker, None if is_broker and why_not else address))
        elif broker is not None:
            nodes.append(broker)
    return DiscoveredCluster(
        cluster_id="",
        nodes=tuple(nodes),
        silent=silent,
        hidden=dict(sorted(hidden.items())),
        supported={},
    )


def _fetches(quorum: QuorumState | None, node_id: int) -> bool:
    """Return whether the quorum shows that a controller or observer runs."""
    return quorum is not None and quorum.is_fetching(node_id)


def _bootstrap(text: str) -> Iterator[NodeSpec]:
    for number, address in enumerate(text.split(","), 1):
        if not HOST_AND_PORT.fullmatch(address.strip()):
            raise UserError(f"'{address}' is not host:port of a broker.", remedy="Use, for example, kafka-1:9092.")
        roles = frozenset({Role.BROKER})
        yield NodeSpec(node_id=-number, name="bootstrap", roles=roles, broker_address=address.strip())


def _connections(nodes: Iterable[NodeSpec], *, security: ClientSecurity, silent: SilentNodes) -> ClusterConnections:
    spec = ClusterSpec(name="discovery", runtime=NO_RUNTIME, nodes=tuple(nodes))
    return ClusterConnections(spec, security, timeout_s=RESPONSE_S, silent=silent)


def _registered_brokers() -> Any:
    """DescribeCluster, with fenced brokers from 4.0 on (KIP-1073)."""
    return DescribeClusterRequest(include_fenced_brokers=True)


def _accept(nodes: ClusterConnections, response: Any, target: Target) -> Any:
    """A controller refuses the request, for a missing right first."""
    if response.error_code and _is_controller(nodes, target):
        raise UserError(f"{target.address} is the listener of a controller.", remedy="Use the address of a broker.")
    raise_for_error(response, "DescribeCluster", target)
    return response


def _is_controller(nodes: ClusterConnections, target: Target) -> bool:
    """Return whether this is a controller's listener, which does not serve Metadata."""
    offered = ask_api_versions(lambda request: nodes.ask(target, request)).api_keys
    return all(api.api_key != MetadataRequest.API_KEY for api in offered)


def _ask_brokers(nodes: ClusterConnections, target: Target) -> dict[int, NodeSpec]:
    """Return the brokers that this one lists: one that is cut off lists others than the rest."""
    try:
        answer = nodes.ask(target, _registered_brokers())
    except RolloutError:  # it has just responded: the checks ask it again
        return {}
    return {broker.broker_id: _broker(broker) for broker in answer.brokers}


def _broker(broker: Any) -> NodeSpec:
    return replace(
        _unseen_broker(broker.broker_id),
        broker_address=host_and_port(broker.host, broker.port),
        rack=broker.rack or None,
    )


def _unseen_broker(node_id: int) -> NodeSpec:
    return NodeSpec(node_id=node_id, name=f"broker-{node_id}", roles=frozenset({Role.BROKER}))


def _controller(node_id: int, broker: NodeSpec | None, address: str | None) -> NodeSpec:
    if broker is None:
        roles = frozenset({Role.CONTROLLER})
        return NodeSpec(node_id=node_id, name=f"controller-{node_id}", roles=roles, controller_address=address)
    return replace(broker, name=f"node-{node_id}", roles=frozenset(Role), controller_address=address)


def _query(nodes: ClusterConnections, targets: Iterable[Target]) -> tuple[dict[int, str], list[NodeFeatures]]:
    """Return the nodes that do not respond to ApiVersions, with the reason, and the answers of those that do."""
    silent: dict[int, str] = {}
    answers: list[NodeFeatures] = []

    def ask(target: Target) -> NodeFeatures | str:
        try:
            return node_features(ask_api_versions(lambda request: nodes.ask(target, request)))
        except RolloutError as error:
            return error.sentence

    queried = list(targets)
    for target, answer in zip(queried, nodes.from_each(queried, ask), strict=True):
        if isinstance(answer, str):
            silent[target.node_id] = answer
        else:
            answers.append(answer)
    return silent, answers


def _quorum(
    nodes: ClusterConnections, brokers: list[Target], unread: list[str]
) -> tuple[QuorumState | None, dict[int, str | None]]:
    """Return the quorum, and the address of each voter, None if unknown."""
    quorum: QuorumState | None = None
    voters: dict[int, str | None] = {}
    try:
        answer, target = nodes.first_answer(brokers, describe_quorum(), lambda *both: both)
        quorum = read_quorum(answer, target)
        voters = {voter.replica_id: None for voter in quorum.voters}
        for node in answer.nodes or ():
            if node.node_id in voters and node.listeners:
                voters[node.node_id] = host_and_port(node.listeners[0].host, node.listeners[0].port)
    except RolloutError as error:  # the configuration can have the voters
        unread.append(f"{error.sentence} {error.remedy}".strip())
    for broker in brokers if not voters or None in voters.values() else ():
        try:
            config = read_node_config(nodes, broker)
        except RolloutError:
            continue
        for voter in config.get("controller.quorum.voters", "").split(","):
            if match := _VOTER.fullmatch(voter.strip()):
                voters[int(match[1])] = voters.get(int(match[1])) or match[2]
        break
    return quorum, voters


def _replica_ids(nodes: ClusterConnections, brokers: list[Target], unread: list[str]) -> frozenset[int]:
    """Return the brokers that partitions name: before 4.0, nothing else names one that is fenced."""
    try:
        topics, _ = nodes.topics(through=[target.node_id for target in brokers])
    except (RefusedError, TransientError) as error:
        unread.append(f"{error.sentence} {error.remedy}".strip())
        return frozenset()
    return frozenset(
        replica_id for topic in topics.values() for _, _, replicas, _ in topic.partitions for replica_id in replicas
    )


def _registered_controllers(nodes: ClusterConnections, silent: Collection[int]) -> dict[int, str]:
    """Return the controllers that one of them lists (KIP-919), with their addresses; empty without the right."""
    request = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS, min_version=1)
    for target in nodes.controllers:
        if target.node_id not in silent:
            with suppress(RolloutError):
                answer = nodes.ask(target, request)
                if not answer.error_code:
                    return {
                        controller.broker_id: host_and_port(controller.host, controller.port)
                        for controller in answer.brokers
                    }
    return {}


_SERVICE = """\
# service:                              # How are the nodes installed on their hosts? These are the defaults.
#   unit: kafka
#   user: kafka
#   installation: /opt/kafka_2.13-{release}
#   symlink: /opt/kafka                   # Or does a package install Kafka? Then use `package` (docs/packages.md).
#   configuration_file: /etc/kafka/server.properties
"""


def discover_spec(
    bootstrap: str,
    security: ClientSecurity,
    settings: Settings,
    *,
    running: Release | None = None,
    silent: SilentNodes | None = None,
    prometheus_url: str | None = None,
    jolokia_url: str | None = None,
) -> ClusterSpec:
    """Return the cluster of a broker as an inventory without hosts would describe it; its name is its id.

    `running`: its patch release, which brokers do not report. `prometheus_url`, `jolokia_url`: of the agents of every
    node, with `{host}` and `{node_id}` in their places. Raises as `discover_cluster`, and UserError if the brokers do
    not run `running`.
    """
    levels = None if running is None else get_catalogue(settings).get(running).features[METADATA_VERSION].supported
    found = discover_cluster(bootstrap, security, silent)
    nodes = tuple(
        replace(node, prometheus_url=_agent_of(node, prometheus_url), jolokia_url=_agent_of(node, jolokia_url))
        for node in found.nodes
    )
    discovered = ClusterSpec(name=found.cluster_id, runtime=NO_RUNTIME, nodes=nodes)
    if levels is None:
        return discovered
    reported = found.supported.get(METADATA_VERSION)
    if reported != levels:
        raise UserError(
            f"The brokers support metadata.version {reported or 'nothing'}, and Kafka {running} supports {levels}.",
            remedy="Correct the running release, or omit it.",
        )
    return replace(discovered, apache_releases={levels_text(levels): str(running)})


def _agent_of(node: NodeSpec, url: str | None) -> str | None:
    """Return the address of an agent of a node; None if it has no address."""
    address = node.broker_address or node.controller_address
    if url is None or address is None:
        return None
    return url.replace("{host}", address.rpartition(":")[0]).replace("{node_id}", str(node.node_id))


def discover_inventory(
    bootstrap: str, name: str | None, security: ClientSecurity | None, settings: Settings
) -> tuple[Path, ClusterSpec, DiscoveredCluster]:
    """Write the inventory of a running cluster to the folder of the inventories. `bootstrap`: `host:port` of a broker.

    Return its path, the cluster as it reads, and what was found. `name`: of the cluster; None: one by its id. Raises
    UserError if the folder has the cluster or the file already.
    """
    existing = list_readable_clusters(settings)
    _refuse_name(name, *existing)
    discovered = discover_cluster(bootstrap, security or ClientSecurity())
    name = name or default_name(discovered.cluster_id)
    _refuse_name(name, *existing)
    secured, catalogue = security is not None, get_catalogue(settings)
    path, spec = write_inventory(discovered, name, settings.clusters, catalogue, bootstrap=bootstrap, secured=secured)
    return path, spec, discovered


def _refuse_form(name: str | None) -> None:
    if name is not None and not NAME.fullmatch(name):
        raise UserError(f"'{name}' is not a name of a cluster.", remedy="Use lower-case letters, digits, - and _.")


def _refuse_name(name: str | None, existing: Collection[str], problems: Mapping[Path, UserError]) -> None:
    _refuse_form(name)
    if name is not None and (name in existing or find_problem(name, problems)):
        raise UserError(f"The inventory has a cluster {name} already.", remedy="Choose another name with --name.")


def default_name(cluster_id: str) -> str:
    """Return a name of the inventory for a cluster without one."""
    return f"kafka-{re.sub('[^a-z0-9]', '', cluster_id.lower())[:8]}"


def write_inventory(
    discovered: DiscoveredCluster, name: str, folder: Path, catalogue: Catalogue, *, bootstrap: str, secured: bool
) -> tuple[Path, ClusterSpec]:
    """Write the file of the cluster into the folder of the inventories; returns it as the reader reads it.

    Raises UserError if the file exists, and for an invalid name.
    """
    _refuse_form(name)
    path = folder / f"{name}.yaml"
    draft = folder / f".{name}.yaml.draft"
    text = "".join(_lines(discovered, name, catalogue, bootstrap, secured))
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


def _lines(
    discovered: DiscoveredCluster, name: str, catalogue: Catalogue, bootstrap: str, secured: bool
) -> Iterator[str]:
    origin = _one_line(
        f"From broker {bootstrap}, cluster id {discovered.cluster_id}, by `kafka-rollout inventory init`."
    )
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
    line = identify_by_levels(discovered.supported, catalogue, {})
    if line.release is not None:
        mapping = f'{{"{line.text}": "{line.neighbours[-1]}"}}'
        yield f"# apache_releases: {mapping}   # Which patch release of {line.apache} runs?\n"
    yield "nodes:\n"
    complete, incomplete = _by_addresses(discovered)
    for node in complete:
        yield from _node(node, discovered)
    for node in incomplete:
        why = _comment(discovered.silent[node.node_id])
        yield f"# Node {node.node_id} does not respond: {why} Which address does it have, or was it removed?\n"
        yield from _unanswered_node(node)
    for node_id, why in discovered.hidden.items():
        yield f"# Controller {node_id} is in the quorum: {_comment(why)} Can this machine reach its listener?\n"
        if all(node.node_id != node_id for node in discovered.nodes):
            yield from _unanswered_node(_controller(node_id, None, None))
    for sentence in discovered.unread:
        yield f"# {_comment(sentence)} Which nodes are missing here?\n"


def _by_addresses(discovered: DiscoveredCluster) -> tuple[list[NodeSpec], list[NodeSpec]]:
    """Return the nodes that the reader of inventories accepts, and the silent ones that lack an address."""
    lacking = [
        node
        for node in discovered.nodes
        if (node.is_broker and node.broker_address is None) or (not node.is_broker and node.controller_address is None)
    ]
    return [node for node in discovered.nodes if node not in lacking], lacking


def _unanswered_node(node: NodeSpec) -> Iterator[str]:
    """A node as a comment, with the addresses as questions."""
    roles = ", ".join(role.value for role in Role if role in node.roles)
    yield f"# - id: {node.node_id}\n#   name: {node.name}\n#   roles: [{roles}]\n"
    if node.is_broker:
        yield "#   broker_address: HOST:PORT\n"
    if node.is_controller:
        yield f"#   controller_address: {_one_line(node.controller_address or 'HOST:PORT')}\n"


def _node(node: NodeSpec, discovered: DiscoveredCluster) -> Iterator[str]:
    entry = {
        "id": node.node_id,
        "name": node.name,
        "roles": [role.value for role in Role if role in node.roles],
        "broker_address": node.broker_address,
        "controller_address": node.controller_address,
        "rack": node.rack,
    }
    entry = {key: value for key, value in entry.items() if value is not None}
    if why := discovered.silent.get(node.node_id):
        yield f"# {_comment(why)} Is its address correct?\n"
    text: str = yaml.safe_dump([entry], sort_keys=False, default_flow_style=None, width=1000)
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
