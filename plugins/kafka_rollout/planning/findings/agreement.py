"""Values that must agree between nodes: Kafka validates each file alone, and finds the difference after the restart.

`BETWEEN_NODES` has every such setting with its comparison, `PER_NODE` those that name other nodes and need none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.model.access_settings import EARLY_START
from kafka_rollout.model.acls import AUTHORIZER, AUTHORIZER_SETTINGS
from kafka_rollout.model.config_values import ValueType, same_value
from kafka_rollout.model.configs import NodeConfigs, is_reference
from kafka_rollout.model.host_state import DirectoryIdentity
from kafka_rollout.model.quorum_addresses import (
    CONTROLLER_LISTENERS,
    QUORUM_BOOTSTRAP,
    QUORUM_VOTERS,
    Address,
    AddressTarget,
    ControllerAddresses,
    controller_listener_names,
    parse_bootstrap,
    parse_listeners,
    parse_voters,
)
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec, Role
from kafka_rollout.releases.facts import REBALANCE_PROTOCOLS, Catalogue, Release, ReleaseFacts

_SUPER_USERS, _ALLOW_EVERYONE = AUTHORIZER_SETTINGS
# Who a client is, by its certificate or ticket → what Kafka reads without a line.
_PRINCIPALS = {
    "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    "sasl.kerberos.principal.to.local.rules": "DEFAULT",
    "ssl.principal.mapping.rules": "DEFAULT",
}
_TOKEN_KEYS = ("delegation.token.secret.key", "delegation.token.master.key")  # the first one counts
QUORUM_VOTERS_MISSING = FindingCode(
    "QUORUM-VOTERS-MISSING",
    BLOCKER,
    "The quorum is static, and a node would start without controller.quorum.voters.",
    f"Add {QUORUM_VOTERS} to the configuration of the node, or to release_overrides in the inventory.",
)
VOTERS_DIFFER = FindingCode(
    "VOTERS-DIFFER",
    BLOCKER,
    "controller.quorum.voters of a node names other voters than the running quorum, or than the other files.",
    f"Write the same {QUORUM_VOTERS} into the files of all nodes: the voters of the quorum. Do not restart the node.",
)
CONTROLLER_ADDRESS_DIFFERS = FindingCode(
    "CONTROLLER-ADDRESS-DIFFERS",
    (BLOCKER, WARNING),
    "A node's file has an address for a controller that is not known to be its own. A blocker if another controller "
    "listens there, or for new bootstrap servers at which no controller is known.",
    "Write the address at which this controller listens into the file of the node.",
)
VOTER_ADDRESS_UNCONFIRMED = FindingCode(
    "VOTER-ADDRESS-UNCONFIRMED",
    (BLOCKER, WARNING),
    "The address of a voter in a dynamic quorum is not one at which this controller is known to listen. A blocker if "
    "two voters have one address.",
    "Check from the host of each node that this address leads to the controller. If it does, write it into the "
    "inventory (controller_address). If not, write the right one into advertised.listeners of the controller and "
    "restart it while the quorum has a leader: it sends the new address.",
)
CONTROLLER_LISTENERS_DIFFER = FindingCode(
    "CONTROLLER-LISTENERS-DIFFER",
    BLOCKER,
    "A node connects to a listener of the controllers that a controller's file does not have.",
    f"Write the same first name into {CONTROLLER_LISTENERS} of all nodes.",
)
INTER_BROKER_LISTENERS_DIFFER = FindingCode(
    "INTER-BROKER-LISTENERS-DIFFER",
    BLOCKER,
    "A broker connects to a listener of the other brokers that one of them does not have.",
    "Add this listener to every broker, and restart them, before a broker uses it as inter.broker.listener.name.",
)
AUTHORIZERS_DIFFER = FindingCode(
    "AUTHORIZERS-DIFFER",
    (BLOCKER, WARNING),
    "What the authorizer decides by differs between the files of nodes. A blocker for a node without the authorizer "
    "that other nodes of its roles have.",
    f"Write the same {AUTHORIZER}, {' and '.join(AUTHORIZER_SETTINGS)} into the files of all nodes, and the same "
    f"{EARLY_START}, {' and '.join(_PRINCIPALS)} into those of nodes with the same roles.",
)
TOKEN_KEYS_DIFFER = FindingCode(
    "TOKEN-KEYS-DIFFER",
    (BLOCKER, WARNING),
    "The secret key of delegation tokens differs between the files of nodes. A warning if nodes have none.",
    f"Write the same {_TOKEN_KEYS[0]} into the files of all brokers and controllers.",
)
GROUP_PROTOCOLS_DIFFER = FindingCode(
    "GROUP-PROTOCOLS-DIFFER",
    WARNING,
    "The protocols of groups that coordinators serve differ between the files of brokers.",
    f"Write the same {REBALANCE_PROTOCOLS} into the files of all brokers.",
)
NODE_DIFFERS = FindingCode(
    "NODE-DIFFERS",
    BLOCKER,
    "node.id or process.roles of a node's file differ from the inventory.",
    "Correct the file of the node, or the inventory.",
)
CLUSTER_ID_DIFFERS = FindingCode(
    "CLUSTER-ID-DIFFERS",
    BLOCKER,
    "A directory of a node belongs to another cluster.",
    "Correct log.dirs of the node, or remove the directory of the other cluster from it.",
)
DIRECTORY_ID_TWICE = FindingCode(
    "DIRECTORY-ID-TWICE",
    BLOCKER,
    "Two directories of the cluster have one directory.id. The controllers refuse the second broker with it.",
    "Find the directory that is a copy. Move its files away, and format it again with kafka-storage.sh (the replicas "
    "are copied from the other brokers).",
)
VOTER_DIRECTORY_DIFFERS = FindingCode(
    "VOTER-DIRECTORY-DIFFERS",
    BLOCKER,
    "The metadata directory of a controller is not the one that has its vote (KIP-853). It would start as an observer.",
    "Restore the directory that has the vote. If it is lost: remove-controller, then add-controller.",
)
BETWEEN_NODES_CHECK = Check(
    "between-nodes",
    "Values that must agree between nodes",
    "upgrade.md#values-that-must-agree-between-nodes",
    (
        QUORUM_VOTERS_MISSING,
        VOTERS_DIFFER,
        CONTROLLER_ADDRESS_DIFFERS,
        VOTER_ADDRESS_UNCONFIRMED,
        CONTROLLER_LISTENERS_DIFFER,
        INTER_BROKER_LISTENERS_DIFFER,
        AUTHORIZERS_DIFFER,
        TOKEN_KEYS_DIFFER,
        GROUP_PROTOCOLS_DIFFER,
        NODE_DIFFERS,
        CLUSTER_ID_DIFFERS,
        DIRECTORY_ID_TWICE,
        VOTER_DIRECTORY_DIFFERS,
    ),
    needs=(Need.QUORUM, Need.CONFIGS),
    examines=Examined.CONFIGS,
)
Directories = Mapping[int, tuple[DirectoryIdentity, ...]]
"""Node id → its directories, as far as they could be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStart:
    """What the nodes will read at their next start."""

    cluster: ClusterSpec
    state: ClusterState
    """Of the running cluster."""
    configs: NodeConfigs
    directories: Directories = field(default_factory=dict)
    facts: ReleaseFacts | None = None
    """Of the release that the nodes start on; None if they are unknown."""

    def has(self, setting: str) -> bool:
        """Return whether the release reads a setting, also if that is unknown."""
        return self.facts is None or setting in self.facts.config_names


def agreement_findings(found: NextStart) -> tuple[Finding, ...]:
    """Return the findings about every value that must agree between nodes. An unknown value has its own finding."""
    compared = dict.fromkeys(BETWEEN_NODES.values())
    return tuple(finding for compare in compared for finding in compare(found))


def planned_agreement_findings(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    state: ClusterState,
    planned: Mapping[Release, NodeConfigs],
    directories: Directories,
) -> tuple[Finding, ...]:
    """Return the findings for each of `planned`: the configuration of each node on each release ahead."""
    found = (
        finding
        for release, configs in planned.items()
        for finding in agreement_findings(
            NextStart(
                cluster=cluster,
                state=state,
                configs=configs,
                directories=directories,
                facts=catalogue.get(release) if release in catalogue else None,
            )
        )
    )
    return tuple({finding.identity: finding for finding in found}.values())


def _voters(found: NextStart) -> Iterator[Finding]:
    """Compare controller.quorum.voters of controllers and brokers: with kraft.version 0 it is the only list of voters.

    A controller counts votes by its own file, so with fewer voters it can elect itself, and the followers end when it
    requests a truncation below the high watermark.
    """
    if found.state.has_dynamic_quorum:
        return
    yield from _without_voters(found)
    by_voters: defaultdict[frozenset[int], list[int]] = defaultdict(list)
    for node_id, config in sorted(found.configs.items()):
        if (voters := parse_voters(config)) is not None:
            by_voters[frozenset(voters)].append(node_id)
    quorum = found.state.quorum
    if quorum is None or not quorum.voters:
        if len(by_voters) > 1:
            listed = "; ".join(f"{nodes(ids)}: {_ids(one)}" for one, ids in by_voters.items())
            yield VOTERS_DIFFER.found(
                QUORUM_VOTERS, f"{QUORUM_VOTERS} differs between nodes ({listed}), and the quorum cannot be read."
            )
        return
    for written, node_ids in by_voters.items():
        if written != quorum.voter_ids:
            yield VOTERS_DIFFER.found(
                f"{QUORUM_VOTERS} of {nodes(node_ids)}",
                f"{QUORUM_VOTERS} of {nodes(node_ids)} names {_ids(written)}. The voters of the running quorum are "
                f"{_ids(quorum.voter_ids)}, by its leader {quorum.leader_id}. After a restart, a controller counts "
                "votes by this line, so a second leader can be elected, and a broker does not find another leader.",
            )


def _without_voters(found: NextStart) -> Iterator[Finding]:
    """A node of 3.9.1 or 4.3.1 that has only controller.quorum.bootstrap.servers starts without an error and never
    finds a leader of a static quorum (KIP-853). KafkaConfig of older releases rejects such a file."""
    for node_id, config in sorted(found.configs.items()):
        if config.get(QUORUM_BOOTSTRAP, "").strip() and not config.get(QUORUM_VOTERS, "").strip():
            yield QUORUM_VOTERS_MISSING.found(
                f"node {node_id}",
                f"Node {node_id} would start with {QUORUM_BOOTSTRAP} and without {QUORUM_VOTERS}. The quorum is static "
                "(kraft.version 0), so only this setting contains its voters: the node would not find a leader.",
            )


def _addresses(found: NextStart) -> Iterator[Finding]:
    """Compare the address of each voter with that at which this controller listens."""
    if found.state.has_dynamic_quorum:
        yield from _voter_addresses(found)
        return
    addresses = ControllerAddresses(found.cluster, found.configs)
    wrong: defaultdict[tuple[int, Address, AddressTarget, int], list[int]] = defaultdict(list)
    for node_id, config in sorted(found.configs.items()):
        for voter, address in (parse_voters(config) or {}).items():
            place, other = addresses.place_of(voter, address, of_node=node_id)
            if place is not AddressTarget.RIGHT:
                wrong[voter, address, place, other].append(node_id)
    for (voter, address, place, other), node_ids in wrong.items():
        right = sorted({*addresses.known.get(voter, ()), *addresses.named[voter]} - {address})
        known = f"its address is {few(map(str, right))}" if right else f"its port is {_ids(addresses.ports(voter))}"
        is_wrong = place is AddressTarget.OTHER
        instead = f" Controller {other} listens there." if is_wrong else ""
        yield CONTROLLER_ADDRESS_DIFFERS.found(
            f"controller {voter} in the file of {nodes(node_ids)}",
            f"{QUORUM_VOTERS} of {nodes(node_ids)} has {address} for controller {voter}.{instead} By the inventory and "
            f"the other files, {known}. After a restart, "
            f"{nodes(node_ids)} cannot reach the quorum while controller {voter} leads it"
            f"{'' if is_wrong else ', unless this address leads to it'}.",
            CONTROLLER_ADDRESS_DIFFERS.remedy
            if is_wrong
            else f"Compare {address} with the listener of controller {voter} from the host of {nodes(node_ids)}: the "
            "name, and a mapping of ports.",
            severity=BLOCKER if is_wrong else WARNING,
        )


def _voter_addresses(found: NextStart) -> Iterator[Finding]:
    """Compare the addresses in the metadata log, the only ones of a dynamic quorum, with those that are proven.

    What the controller itself advertises is no proof. Open connections hide a wrong address until a restart.
    """
    quorum = found.state.quorum
    addresses = ControllerAddresses(found.cluster, found.configs)
    voters = quorum.voter_addresses if quorum else {}
    for voter in sorted(quorum.voter_ids if quorum else ()):
        own = voters.get(voter, ())
        others = [other for other, theirs in voters.items() if other != voter and set(theirs) & set(own)]
        at = f"at {few(map(str, own))}" if own else "at an address that the quorum did not show"
        proven = sorted(addresses.listening(voter))
        if own and not others and (set(own) & set(proven)):
            continue
        shared = f" It is also that of {nodes(others)}." if others else ""
        known = (
            f"By the inventory and its file, it listens at {few(map(str, proven))}"
            if proven
            else "Neither the inventory nor its file shows where it listens"
        )
        yield VOTER_ADDRESS_UNCONFIRMED.found(
            f"controller {voter}",
            f"Every node reaches controller {voter} only {at}, which is in the metadata log.{shared} {known}. If the "
            "address does not lead to it, each restart of a node or an election can cost the quorum.",
            "If one of them no longer exists, remove it (kafka-metadata-quorum.sh remove-controller). Otherwise write "
            "its own address into advertised.listeners of the other one, and restart it while the quorum has a leader: "
            "it sends the new address."
            if others
            else None,
            severity=BLOCKER if others else WARNING,
        )


def _bootstrap(found: NextStart) -> Iterator[Finding]:
    """A node finds the quorum through any of these addresses. They can be those of a load balancer, so they are only
    wrong if the process has found the quorum through others."""
    addresses = ControllerAddresses(found.cluster, found.configs)
    for node_id, config in sorted(found.configs.items()):
        named = parse_bootstrap(config) or ()
        if not addresses.is_lost(named):
            continue
        is_used = set(parse_bootstrap(found.state.quorum_in_use.get(node_id, {})) or ()) == set(named)
        is_doubtful = is_used or any(addresses.is_controllers_port(address.port) for address in named)
        yield CONTROLLER_ADDRESS_DIFFERS.found(
            f"{QUORUM_BOOTSTRAP} of node {node_id}",
            f"{QUORUM_BOOTSTRAP} of node {node_id} is {few(map(str, named))}. No controller of the inventory is known "
            f"to listen there, and the other nodes have other addresses. "
            f"{'But its process uses it now. ' if is_used else ''}After a restart, the node cannot find the quorum"
            f"{', unless these addresses lead to a controller' if is_doubtful else ''}.",
            "Check from the host of the node that these addresses lead to the controllers."
            if is_doubtful
            else "Write the addresses of the controllers into the file of the node, as the other nodes have them.",
            severity=WARNING if is_doubtful else BLOCKER,
        )


def _controller_listeners(found: NextStart) -> Iterator[Finding]:
    """A node connects to the controllers by its first name; they send their addresses by the names of listeners.

    Not to the brokers of a static quorum, which take the addresses from their own voters (KafkaRaftManager.voterNode).
    """
    of_controllers = {
        node.node_id: frozenset(names)
        for node in found.cluster.controllers
        if (names := controller_listener_names(found.configs.get(node.node_id, {}))) is not None
    }
    used = {
        node_id: names[0]
        for node_id, config in found.configs.items()
        if (names := controller_listener_names(config)) is not None
        and (found.state.has_dynamic_quorum or node_id in of_controllers)
    }
    for name, node_ids, without in _lacking(used, of_controllers):
        yield CONTROLLER_LISTENERS_DIFFER.found(
            f"listener {name}",
            f"{CONTROLLER_LISTENERS} of {nodes(node_ids)} begins with {name}, which the files of controllers "
            f"{_ids(without)} do not have. After a restart, {nodes(node_ids)} cannot connect to them.",
        )


def _inter_broker_listeners(found: NextStart) -> Iterator[Finding]:
    """A broker connects to the others by the name of its own inter-broker listener (KafkaConfig)."""
    listeners = {
        node.node_id: names
        for node in found.cluster.brokers
        if (names := _broker_listeners(found.configs.get(node.node_id, {}))) is not None
    }
    used = {node_id: name for node_id in listeners if (name := _inter_broker_name(found.configs[node_id])) is not None}
    for name, node_ids, without in _lacking(used, listeners):
        yield INTER_BROKER_LISTENERS_DIFFER.found(
            f"listener {name}",
            f"The inter-broker listener of {nodes(node_ids)} is {name}, which the files of brokers {_ids(without)} do "
            f"not have. After a restart, {nodes(node_ids)} cannot replicate from them.",
        )


def _lacking(
    used: Mapping[int, str], listeners: Mapping[int, frozenset[str]]
) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield each used name that a node lacks, with the nodes that use it and those that lack it."""
    for name in sorted(set(used.values())):
        node_ids = sorted(node_id for node_id, one in used.items() if one == name)
        if without := sorted(other for other, names in listeners.items() if name not in names):
            yield name, node_ids, without


def _broker_listeners(config: Mapping[str, str]) -> frozenset[str] | None:
    for name in ("advertised.listeners", "listeners"):
        if config.get(name, "").strip():
            found = parse_listeners(config, name)
            return None if found is None else frozenset(found)
    return None


def _inter_broker_name(config: Mapping[str, str]) -> str | None:
    name = config.get("inter.broker.listener.name", "").strip() or config.get("security.inter.broker.protocol", "")
    return None if is_reference(name) else (name.strip() or "PLAINTEXT").upper()


def _authorizers(found: NextStart) -> Iterator[Finding]:
    """A node decides about the requests that it receives by its own file alone. Without an authorizer it allows all.

    Where no node of the same roles has one, that can be meant: an authorizer of others for the brokers alone.
    """
    written = {node_id: config.get(AUTHORIZER, "").strip() for node_id, config in sorted(found.configs.items())}
    having = [node_id for node_id, name in written.items() if name]
    roles = {node.node_id: node.roles for node in found.cluster.nodes}
    secured = {roles.get(node_id) for node_id in having}
    for node_id in sorted(written.keys() - having) if having else ():
        yield AUTHORIZERS_DIFFER.found(
            f"{AUTHORIZER} of node {node_id}",
            f"The file of node {node_id} has no {AUTHORIZER}, which that of {nodes(having)} has. After a restart, node "
            f"{node_id} serves every client that reaches it, whatever the ACLs say.",
            severity=BLOCKER if roles.get(node_id) in secured else WARNING,
        )
    yield from _differing(found, having, AUTHORIZER, str.strip)


def _authorizer_settings(found: NextStart) -> Iterator[Finding]:
    """Compare what StandardAuthorizer reads, where there is an authorizer (others read it too)."""
    having = [node_id for node_id, config in sorted(found.configs.items()) if config.get(AUTHORIZER, "").strip()]
    yield from _differing(found, having, _SUPER_USERS, lambda text: _names(text, ";"))
    yield from _differing(found, having, _ALLOW_EVERYONE, lambda text: text.strip().lower() or "false")
    roles = {node.node_id: node.roles for node in found.cluster.nodes}
    for same in dict.fromkeys(roles.values()):  # a node has the listeners of its roles
        alike = [node_id for node_id in having if roles.get(node_id) == same]
        yield from _differing(found, alike, EARLY_START, lambda text: _names(text, ","))
        for name, default in _PRINCIPALS.items():
            yield from _differing(found, alike, name, partial(_or_default, default))


def _differing(
    found: NextStart, node_ids: Iterable[int], name: str, read: Callable[[str], object]
) -> Iterator[Finding]:
    by_value: defaultdict[object, list[int]] = defaultdict(list)
    for node_id in node_ids:
        if not is_reference(line := found.configs[node_id].get(name, "")):
            by_value[read(line)].append(node_id)
    if len(by_value) > 1:
        lines = {ids[0]: found.configs[ids[0]].get(name, "").strip() for ids in by_value.values()}
        listed = "; ".join(f"{nodes(ids)}: {lines[ids[0]] or 'empty'}" for ids in by_value.values())
        yield AUTHORIZERS_DIFFER.found(
            name,
            f"{name} differs between the files of nodes ({listed}). After a restart, the answer to a request depends "
            "on the node that receives it.",
            severity=WARNING,
        )


def _or_default(default: str, text: str) -> str:
    return text.strip() or default


def _token_keys(found: NextStart) -> Iterator[Finding]:
    """A broker accepts a token by a hash with its own key, and the active controller makes tokens with its own
    (DelegationTokenManager, DelegationTokenControlManager). The keys are not shown."""
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for node_id, config in sorted(found.configs.items()):
        lines = [config.get(name, "").strip() for name in _TOKEN_KEYS if found.has(name)]
        key = next(filter(None, lines), "")
        if not is_reference(key):
            by_key[key].append(node_id)
    without = by_key.pop("", [])
    if len(by_key) > 1:
        listed = "; ".join(nodes(ids) for ids in by_key.values())
        yield TOKEN_KEYS_DIFFER.found(
            _TOKEN_KEYS[0],
            f"{_TOKEN_KEYS[0]} of these nodes differs: {listed}. After a restart, a broker refuses the delegation "
            "tokens that a controller with another key has made, so their clients cannot log in there.",
        )
    if by_key and without:
        yield TOKEN_KEYS_DIFFER.found(
            f"{_TOKEN_KEYS[0]} of {nodes(without)}",
            f"{nodes(without).capitalize()} {'has' if len(without) == 1 else 'have'} no {_TOKEN_KEYS[0]}, and other "
            "nodes have one. After a restart, a broker without it refuses each delegation token, and a controller "
            "without it makes none.",
            severity=WARNING,
        )


def _group_protocols(found: NextStart) -> Iterator[Finding]:
    """The coordinator of a group refuses members with another protocol (KafkaApis, GroupCoordinatorConfig)."""
    default = "" if found.facts is None else found.facts.config_defaults.get(REBALANCE_PROTOCOLS, "")
    by_value: defaultdict[frozenset[str], list[int]] = defaultdict(list)
    for node in found.cluster.brokers if found.has(REBALANCE_PROTOCOLS) else ():
        line = found.configs[node.node_id].get(REBALANCE_PROTOCOLS, default) if node.node_id in found.configs else None
        if line is not None and not is_reference(line):
            by_value[_names(line.lower(), ",")].append(node.node_id)
    if len(by_value) > 1:
        listed = "; ".join(f"{nodes(ids)}: {','.join(sorted(one)) or 'empty'}" for one, ids in by_value.items())
        yield GROUP_PROTOCOLS_DIFFER.found(
            REBALANCE_PROTOCOLS,
            f"{REBALANCE_PROTOCOLS} differs between brokers ({listed}). After a restart, a group whose coordinator is "
            "a broker without its protocol gets no assignment there.",
        )


def _names(text: str, separator: str) -> frozenset[str]:
    return frozenset(name for part in text.split(separator) if (name := part.strip()))


def _inventory(found: NextStart) -> Iterator[Finding]:
    """The inventory decides which process a run stops, and the file as which node it starts again."""
    for node in found.cluster.nodes:
        config = found.configs.get(node.node_id, {})
        written = config.get("node.id", config.get("broker.id", "")).strip()
        if written and not is_reference(written) and not same_value(written, str(node.node_id), ValueType.INT):
            yield NODE_DIFFERS.found(
                f"node.id of {node.name}",
                f"The file of {node.name} has node.id {written}, and the inventory has {node.node_id}.",
            )
        roles = config.get("process.roles", "").strip()
        named = {role.strip() for role in roles.split(",") if role.strip()}
        if roles and not is_reference(roles) and named != {role.value for role in node.roles}:
            yield NODE_DIFFERS.found(
                f"process.roles of {node.name}",
                f"The file of {node.name} has process.roles {roles}, and the inventory has "
                f"{','.join(role.value for role in Role if role in node.roles)}.",
            )


def _cluster_ids(found: NextStart) -> Iterator[Finding]:
    expected = found.state.cluster_id
    for node_id, directories in sorted(found.directories.items()):
        for one in directories:
            if expected and one.cluster_id and one.cluster_id != expected:
                yield CLUSTER_ID_DIFFERS.found(
                    f"{one.path} of node {node_id}",
                    f"meta.properties in {one.path} of node {node_id} has cluster.id {one.cluster_id}, and the running "
                    f"cluster is {expected}.",
                )


def _directory_ids(found: NextStart) -> Iterator[Finding]:
    """Kafka identifies a directory by its id (KIP-858, KIP-853): a second one gets INVALID_REGISTRATION."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for node_id, directories in sorted(found.directories.items()):
        for one in directories:
            if one.directory_id:
                places[one.directory_id].append(f"{one.path} of node {node_id}")
    for directory_id, where in sorted(places.items()):
        if len(where) > 1:
            yield DIRECTORY_ID_TWICE.found(
                f"directory.id {directory_id}",
                f"{count(len(where), 'directory', 'directories')} of the cluster have directory.id {directory_id}: "
                f"{few(where)}. After a restart, the controllers refuse the registration of the second broker.",
            )


def _voter_directories(found: NextStart) -> Iterator[Finding]:
    quorum = found.state.quorum
    for voter in quorum.voters if quorum else ():
        of_node = found.directories.get(voter.replica_id, ())
        metadata = [one for one in of_node if one.is_of_metadata and one.directory_id]
        if not voter.directory_id or not metadata or voter.replica_id in (quorum.replaced_voters if quorum else ()):
            continue
        if voter.directory_id not in {one.directory_id for one in metadata}:
            yield VOTER_DIRECTORY_DIFFERS.found(
                f"controller {voter.replica_id}",
                f"{metadata[0].path} of controller {voter.replica_id} has directory.id {metadata[0].directory_id}, and "
                f"the voter is directory {voter.directory_id}. After a restart, the controller has no vote.",
            )


def _ids(found: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(found))) or "none"


BETWEEN_NODES: Mapping[str, Callable[[NextStart], Iterator[Finding]]] = {
    "node.id": _inventory,
    "broker.id": _inventory,
    "process.roles": _inventory,
    QUORUM_VOTERS: _voters,
    f"{QUORUM_VOTERS} (addresses)": _addresses,
    QUORUM_BOOTSTRAP: _bootstrap,
    CONTROLLER_LISTENERS: _controller_listeners,
    "inter.broker.listener.name": _inter_broker_listeners,
    "security.inter.broker.protocol": _inter_broker_listeners,
    "advertised.listeners": _inter_broker_listeners,
    AUTHORIZER: _authorizers,
    _SUPER_USERS: _authorizer_settings,
    _ALLOW_EVERYONE: _authorizer_settings,
    EARLY_START: _authorizer_settings,
    **dict.fromkeys(_PRINCIPALS, _authorizer_settings),
    **dict.fromkeys(_TOKEN_KEYS, _token_keys),
    REBALANCE_PROTOCOLS: _group_protocols,
    "listeners": _addresses,
    "cluster.id (meta.properties)": _cluster_ids,
    "directory.id (meta.properties)": _directory_ids,
    "directory.id (meta.properties, of a voter)": _voter_directories,
}
"""Setting, or value of meta.properties → the function that compares it between the nodes, or with the inventory."""
PER_NODE: Mapping[str, str] = {
    "delegation.token.expiry.check.interval.ms": "A time of the active controller.",
    "delegation.token.expiry.time.ms": "A time of the active controller.",
    "delegation.token.max.lifetime.ms": "A time of the active controller.",
    "group.coordinator.new.enable": "Chooses the coordinator of one broker. What each one can load, a scan finds.",
    "listener.security.protocol.map": "Each node maps its own names. A wrong protocol fails at the first connection.",
    "sasl.mechanism.controller.protocol": "The client's choice. Whether controllers start with it has its own check.",
    "sasl.mechanism.inter.broker.protocol": "The client's choice among the mechanisms of the brokers.",
    "controller.quorum.auto.join.enable": "Only of the controller that joins.",
    "controller.quorum.append.linger.ms": "A time of the leader.",
    "controller.quorum.election.backoff.max.ms": "A time of each candidate.",
    "controller.quorum.election.timeout.ms": "A time of each candidate.",
    "controller.quorum.fetch.max.bytes": "A limit of each follower.",
    "controller.quorum.fetch.snapshot.max.bytes": "A limit of each follower.",
    "controller.quorum.fetch.timeout.ms": "A time of each follower.",
    "controller.quorum.request.timeout.ms": "A time of each node.",
    "controller.quorum.retry.backoff.ms": "A time of each node.",
}
"""Settings about other nodes that need no comparison → the reason."""
