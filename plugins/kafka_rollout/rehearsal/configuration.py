"""The configuration of a node's copy: other addresses and directories, no credentials, no plugins that reach out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.loopback import is_loopback
from kafka_rollout.base.wording import few
from kafka_rollout.model.configs import DynamicConfigs, literal_settings, with_inventory_values
from kafka_rollout.model.log_directories import DIRECTORY_KEYS, named_directories, obeyed_keys
from kafka_rollout.model.quorum_addresses import (
    QUORUM_BOOTSTRAP,
    QUORUM_VOTERS,
    ControllerAddresses,
    parse_voters,
)
from kafka_rollout.model.starts import AUTHORIZER, STANDARD_AUTHORIZER
from kafka_rollout.model.topology import ClusterSpec, NodeSpec

REPLACEMENT = "rehearsal"
_NOBODY = "127.0.0.1:1"  # a loopback address at which no node listens

_ADDRESS_KEYS = ("listeners", "advertised.listeners", QUORUM_VOTERS, QUORUM_BOOTSTRAP)
_LISTENER_KEYS = (
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "controller.listener.names",
    "early.start.listeners",
    "control.plane.listener.name",
)
_REPLACED = frozenset({*_ADDRESS_KEYS, *_LISTENER_KEYS})
_SECURITY = re.compile(
    r"(ssl|sasl|listener\.name|security|oauth|delegation\.token|password\.encoder)\.|principal\.builder\.class$"
)
# They connect to other systems, or load code that can.
_OUTWARD = re.compile(
    r"(zookeeper|confluent|config\.providers)\b|(metric|kafka\.metrics)\.reporters$|client\.quota\.callback\.class$"
)
# Settings that name a class, or a path from which Kafka loads one. A copy runs the classes of Kafka only.
_LOADS_CLASS = re.compile(r"\.(class|classes|class\.name|class\.names|class\.path|impl\.class)$")
_KAFKA_CLASS = re.compile(r"org\.apache\.kafka(\.[A-Za-z0-9_$]+)+")
_SECRET = re.compile(r"(password|passwd|secret|credential|jaas|token)", re.IGNORECASE)
_REMOTE_STORAGE = "remote.log.storage.system.enable"
# In the metadata, these override the rewritten lines of the file.
_ESCAPING = frozenset({"listeners", "advertised.listeners", "listener.security.protocol.map", "metric.reporters"})
_THREADS = {"num.network.threads": 2, "num.io.threads": 4, "background.threads": 2, "num.replica.fetchers": 1}
_FIXED = {
    "metadata.log.max.snapshot.interval.ms": "5000",  # the gate after finalizing waits for a snapshot
    "log.cleaner.dedupe.buffer.size": str(16 << 20),  # 128 MB of the heap by default
    "log.preallocate": "false",  # empty partitions would fill the disk
    # Nothing expires during a rehearsal, so that the comparison sees the releases only.
    "offsets.retention.check.interval.ms": str(24 * 3600 * 1000),
    # A stopping broker waits for the disk four times for each log. In parallel, the waits share their time.
    "num.recovery.threads.per.data.dir": "8",
}
_FETCH_WAIT_MS = 2000
# Kafka requires these to be at least as long as the wait of a fetch (KafkaConfig.validateValues).
_AT_LEAST_FETCH_WAIT = ("replica.lag.time.max.ms", "replica.socket.timeout.ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenConfig:
    lines: Mapping[str, str]
    """The whole configuration of the copy."""
    not_covered: tuple[str, ...] = ()
    """Sentences about what was taken out."""


def rewrite_config(
    config: Mapping[str, str],
    node: NodeSpec,
    cluster: ClusterSpec,
    directories: Mapping[str, str],
    controllers: ControllerAddresses,
) -> RewrittenConfig:
    """Return the configuration of a node's copy.

    `node`, `cluster`: with the addresses of the sandbox. `directories`: each directory of the node → its copy.
    `controllers`: the addresses of the real controllers. Raises RefusedError for a configuration that would reach other
    systems.
    """
    config = with_inventory_values(node, config)
    if config.get(_REMOTE_STORAGE, "").strip().lower() == "true":
        raise RefusedError(
            f"{node.name} uses tiered storage ({_REMOTE_STORAGE}), and its copy would change the remote storage.",
            remedy="Upgrade without a rehearsal (--no-rehearse), or rehearse on a test cluster.",
        )
    kept, taken_out = _without_surroundings(config)
    kept = {key: value for key, value in kept.items() if key not in {*_REPLACED, *DIRECTORY_KEYS}}
    numbers = {key: int(value) for key, value in config.items() if value.strip().isdecimal()}
    fewer = {key: str(most) for key, most in _THREADS.items() if numbers.get(key, 0) > most}
    # Each fetch of a follower costs its leader time for all empty partitions (500 ms).
    wait_ms = min((_FETCH_WAIT_MS, *(numbers[key] for key in _AT_LEAST_FETCH_WAIT if key in numbers)))
    own = {**_FIXED, **fewer, "replica.fetch.wait.max.ms": str(wait_ms)}
    lines = {**kept, **own, **_addresses(config, node, cluster, controllers), **_directories(config, node, directories)}
    differing = ", ".join(f"{key}={value}" for key, value in sorted(own.items()) if config.get(key) != value)
    sentence = f"The copy has values of its own for memory, disk and speed: {differing}."
    return RewrittenConfig(lines=lines, not_covered=(*taken_out, sentence))


def rewrite_overrides(overrides: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return the inventory's release_overrides for the copy: without addresses, directories and credentials."""
    own = {*_REPLACED, *DIRECTORY_KEYS}
    return {
        release: {key: value for key, value in _without_surroundings(lines)[0].items() if key not in own}
        for release, lines in overrides.items()
    }


def refuse_escaping(dynamic: DynamicConfigs) -> None:
    """Raise RefusedError for dynamic configuration that makes a copy listen on, or report to, other addresses."""
    configured = {key for values in (dynamic.all_brokers, *dynamic.brokers.values()) for key in values}
    if found := sorted(_ESCAPING & configured):
        raise RefusedError(
            f"The dynamic configuration of brokers contains {few(found)}, which a copy of the cluster would use too.",
            remedy="Move these settings to server.properties, or continue without a rehearsal (--no-rehearse).",
        )


def find_escapes(config: Mapping[str, str], real_addresses: Collection[str]) -> tuple[str, ...]:
    """Return sentences about addresses that are not on loopback, or that belong to the real cluster.

    `real_addresses`: `host:port` of the real cluster's listeners and agents.
    """
    ports = {address.rpartition(":")[2] for address in real_addresses if is_loopback(_host(address))}
    found = []
    for key in _ADDRESS_KEYS:
        for address in _addresses_in(config.get(key, "")):
            port = address.rpartition(":")[2]
            if not is_loopback(_host(address)):
                found.append(f"{key} contains {address}, which is not a loopback address.")
            elif address in real_addresses or port in ports:
                found.append(f"{key} contains {address}, which the real cluster uses.")
    return tuple(found)


def _without_surroundings(config: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    kept: dict[str, str] = {}
    security, outward, secret = [], [], []
    for key, value in config.items():
        if _SECURITY.match(key):
            security.append(key)
        elif _OUTWARD.match(key) or "${" in value or _loads_foreign_class(key, value):
            outward.append(key)
        elif _SECRET.search(key):
            secret.append(key)
            kept[key] = REPLACEMENT
        else:
            kept[key] = value
    if AUTHORIZER in kept:
        kept["super.users"] = "User:ANONYMOUS"
    sentences = []
    if security:
        sentences.append(
            f"The copy has no TLS and no authentication: {_keys(security)}. So the rehearsal did not prove that a node "
            "starts with its keystores, truststores and login modules, and that nodes and clients can log in."
        )
    if outward:
        sentences.append(
            f"These settings are removed, because they can reach other systems or load other code: {_keys(outward)}."
        )
    if secret:
        sentences.append(f"The values of these settings are replaced: {_keys(secret)}.")
    return kept, tuple(sentences)


def _loads_foreign_class(key: str, value: str) -> bool:
    """Return whether the setting makes a node load code that is not part of the release's own jars."""
    if key == AUTHORIZER:
        return value not in ("", STANDARD_AUTHORIZER)
    names = [name.strip() for name in value.split(",") if name.strip()]
    return _LOADS_CLASS.search(key) is not None and not all(_KAFKA_CLASS.fullmatch(name) for name in names)


def _keys(keys: Iterable[str]) -> str:
    return few(sorted(keys))


def _addresses(
    config: Mapping[str, str], node: NodeSpec, cluster: ClusterSpec, real: ControllerAddresses
) -> dict[str, str]:
    """Return one listener for brokers and clients, one for controllers, both without TLS."""
    known = literal_settings(config)
    controllers = known.get("controller.listener.names", "CONTROLLER").split(",")[0].strip()
    brokers = known.get("inter.broker.listener.name") or known.get("security.inter.broker.protocol") or "PLAINTEXT"
    listeners = []
    if node.broker_address:
        listeners.append(f"{brokers}://{node.broker_address}")
    if node.controller_address:
        listeners.append(f"{controllers}://{node.controller_address}")
    lines = {
        "listeners": ",".join(listeners),
        "controller.listener.names": controllers,
        "listener.security.protocol.map": f"{controllers}:PLAINTEXT,{brokers}:PLAINTEXT",
    }
    if node.is_broker or "inter.broker.listener.name" in config:
        lines["inter.broker.listener.name"] = brokers
    copies = {one.node_id: one.controller_address or _NOBODY for one in cluster.controllers}
    if QUORUM_VOTERS in config:
        lines[QUORUM_VOTERS] = _voters(config, node, copies, real)
    if QUORUM_BOOTSTRAP in config:
        lines[QUORUM_BOOTSTRAP] = ",".join(copies.values())
    return lines


def _voters(config: Mapping[str, str], node: NodeSpec, copies: Mapping[int, str], real: ControllerAddresses) -> str:
    """Return the voters of the file with the addresses of the copies, so that a wrong line does in a copy what it does
    on the cluster. A value of a config provider is replaced by the controllers of the inventory."""
    voters = parse_voters(config)
    if voters is None:
        return ",".join(f"{node_id}@{address}" for node_id, address in copies.items())
    leads_to = {voter: real.place_of(voter, address, of_node=node.node_id)[1] for voter, address in voters.items()}
    return ",".join(f"{voter}@{copies.get(to, _NOBODY)}" for voter, to in leads_to.items())


def _directories(config: Mapping[str, str], node: NodeSpec, directories: Mapping[str, str]) -> dict[str, str]:
    lines = {}
    for key in obeyed_keys(config):
        if not config.get(key):
            continue
        paths = named_directories(config, key) or (config[key],)
        if missing := [path for path in paths if path not in directories]:
            raise RefusedError(
                f"{key} of {node.name} contains {missing[0]}, which was not copied.",
                remedy="Check that the directory exists and can be read.",
            )
        lines[key] = ",".join(directories[path] for path in paths)
    return lines


def _addresses_in(value: str) -> list[str]:
    """Return `host:port` of each entry of a list of listeners, voters or bootstrap servers."""
    entries = (entry.strip() for entry in value.split(",") if entry.strip())
    return [entry.rpartition("//")[2].rpartition("@")[2] for entry in entries]


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
