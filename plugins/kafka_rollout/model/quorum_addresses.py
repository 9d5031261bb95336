"""The controllers that a node's configuration names, and where they listen by the inventory and by their own files.

The sources are RaftConfig.parseVoterConnections, KafkaConfig.effectiveAdvertisedControllerListeners and KIP-853. A
setting that a config provider has, or that Kafka would reject, is unknown here: Kafka's classes report it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from ipaddress import ip_address
from typing import NamedTuple

from kafka_rollout.model.configs import NodeConfigs, is_reference
from kafka_rollout.model.topology import ClusterSpec

QUORUM_VOTERS = "controller.quorum.voters"
QUORUM_BOOTSTRAP = "controller.quorum.bootstrap.servers"
CONTROLLER_LISTENERS = "controller.listener.names"
_ANY_HOST = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - an address to compare, not to bind
_OWN_HOSTS = _ANY_HOST | {"localhost", "127.0.0.1", "::1"}
_LISTS = ("listeners", "advertised.listeners")
_ADDRESS = re.compile(r"(.*):(\d{1,5})")
_VOTER = re.compile(r"(\d+)@(.+)")
_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(.*)")


class Address(NamedTuple):
    host: str
    """In lower case, without the brackets of IPv6; empty for all interfaces."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_DEFAULT_LISTENERS: dict[str, Address | None] = {"PLAINTEXT": Address("", 9092)}


def parse_address(text: str) -> Address | None:
    """Read `host:port`; None for another text."""
    match = _ADDRESS.fullmatch(text.strip())
    return Address(match[1].strip("[]").rstrip(".").lower(), int(match[2])) if match else None


def parse_voters(config: Mapping[str, str]) -> dict[int, Address] | None:
    """Return node id → address of controller.quorum.voters; None if it is not set, or unknown."""
    return None if (entries := _entries(config, QUORUM_VOTERS)) is None else _voters(entries)


def _voters(entries: list[str]) -> dict[int, Address] | None:
    found: dict[int, Address] = {}
    for entry in entries:
        match = _VOTER.fullmatch(entry)
        address = parse_address(match[2]) if match else None
        if match is None or address is None:
            return None
        found[int(match[1])] = address
    return found


def parse_bootstrap(config: Mapping[str, str]) -> tuple[Address, ...] | None:
    """Return the addresses of controller.quorum.bootstrap.servers; None if it is not set, or unknown."""
    entries = _entries(config, QUORUM_BOOTSTRAP)
    found = [parse_address(entry) for entry in entries or ()]
    return None if entries is None or None in found else tuple(one for one in found if one is not None)


def parse_listeners(config: Mapping[str, str], name: str) -> dict[str, Address | None] | None:
    """Return listener name → address (None: not one) of `listeners` or another list; None if not set, or unknown."""
    entries = _entries(config, name)
    if entries is None:
        return None
    matches = [match for entry in entries if (match := _LISTENER.fullmatch(entry))]
    return {match[1].upper(): parse_address(match[2]) for match in matches}


def names_of_listeners(config: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """Return the host names in `listeners` → their ports: a start resolves each again, and binds to its address
    (SocketServer)."""
    found: dict[str, tuple[int, ...]] = {}
    for one in (parse_listeners(config, "listeners") or {}).values():
        if one is not None and one.host not in _ANY_HOST and not _is_ip(one.host):
            found[one.host] = (*found.get(one.host, ()), one.port)
    return dict(sorted(found.items()))


def addresses_of_listeners(config: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses in `listeners`, without those of all interfaces."""
    found = (parse_listeners(config, "listeners") or {}).values()
    return tuple(dict.fromkeys(one.host for one in found if one and one.host not in _ANY_HOST and _is_ip(one.host)))


def ports_of_own_name(config: Mapping[str, str]) -> tuple[int, ...]:
    """Return the ports of listeners that a node registers with the name of its own host, because they have none
    (ListenerInfo.withWildcardHostnamesResolved, for controllers since 3.7)."""
    advertised = config.get("advertised.listeners", "").strip()
    given = parse_listeners(config, "advertised.listeners") or {}
    own = parse_listeners(config, "listeners")
    if own is None:
        own = {} if config.get("listeners", "").strip() else _DEFAULT_LISTENERS
    controllers = controller_listener_names(config) or ()
    used = [given.get(name, one) for name, one in own.items() if not advertised or name in {*given, *controllers}]
    return tuple(sorted(one.port for one in used if one is not None and not one.host))


def names_of_controllers(config: Mapping[str, str]) -> dict[str, bool]:
    """Return the host names in the addresses of controllers → whether all of these are names. A start resolves them."""
    addresses = [*(parse_voters(config) or {}).values(), *(parse_bootstrap(config) or ())]
    hosts = dict.fromkeys(one.host for one in addresses if one.host)
    return {host: not any(map(_is_ip, hosts)) for host in hosts if not _is_ip(host)}


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def controller_listener_names(config: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return controller.listener.names; the node connects to the first one. None if it is not set, or unknown."""
    entries = _entries(config, CONTROLLER_LISTENERS)
    return None if entries is None else tuple(entry.upper() for entry in entries)


def _entries(config: Mapping[str, str], name: str) -> list[str] | None:
    value = config.get(name, "")
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    return None if is_reference(value) or not entries else entries


class AddressTarget(StrEnum):
    """Where an address leads. DOUBTFUL: only a resolver or a mapping of ports shows it."""

    RIGHT = "right"
    OTHER = "another controller"
    DOUBTFUL = "unknown"


@dataclass(frozen=True)
class ControllerAddresses:
    """The addresses of the controllers."""

    cluster: ClusterSpec
    configs: NodeConfigs
    """Of all nodes, as far as they are known."""

    @cached_property
    def known(self) -> dict[int, frozenset[Address]]:
        """Node id → its addresses, in the inventory and its own file. A listener of all interfaces has none."""
        return {
            node_id: frozenset(address for address in addresses if address.host not in _ANY_HOST)
            for node_id, addresses in self._all.items()
        }

    @cached_property
    def _all(self) -> dict[int, list[Address]]:
        return {node.node_id: self._addresses(node.node_id, *_LISTS) for node in self.cluster.controllers}

    @cached_property
    def named(self) -> dict[int, Counter[Address]]:
        """Node id → the addresses that the voters of all files have for it, with the number of files."""
        found: dict[int, Counter[Address]] = {}
        for config in self.configs.values():
            for node_id, address in (parse_voters(config) or {}).items():
                found.setdefault(node_id, Counter())[address] += 1
        return found

    def listening(self, node_id: int) -> frozenset[Address]:
        """Return where a controller is known to listen: in the inventory, and in `listeners` of its own file."""
        return frozenset(one for one in self._addresses(node_id, "listeners") if one.host not in _ANY_HOST)

    def _addresses(self, node_id: int, *lists: str) -> list[Address]:
        """Return the addresses of a controller in the inventory, and in these lists of its own file."""
        of_inventory = [node.controller_address or "" for node in self.cluster.controllers if node.node_id == node_id]
        found = (*map(parse_address, of_inventory), *self._listening(node_id, *lists))
        return [one for one in found if one is not None]

    def _listening(self, node_id: int, *lists: str) -> list[Address | None]:
        config = self.configs.get(node_id, {})
        names = controller_listener_names(config) or ()
        listeners = [parse_listeners(config, name) or {} for name in lists]
        return [one.get(name) for one in listeners for name in names]

    def place_of(self, node_id: int, address: Address, *, of_node: int) -> tuple[AddressTarget, int]:
        """Return where the address of controller `node_id` in the file of `of_node` leads, and to which controller.

        The host can have several names, and a port can be mapped, so an address that most files have is right, and
        another one is wrong only if it is that of another controller.
        """
        if address in self.known.get(node_id, ()):
            return AddressTarget.RIGHT, node_id
        is_usual = self._is_usual(node_id, address)
        for other, addresses in self.known.items():
            if other != node_id and (address in addresses or (not is_usual and self._is_at(other, address, node_id))):
                return AddressTarget.OTHER, other
        if not self.ports(node_id) or address.port in self.ports(node_id):
            is_own = node_id == of_node and address.host in _OWN_HOSTS
            return (AddressTarget.RIGHT if is_usual or is_own else AddressTarget.DOUBTFUL), node_id
        # Its own file does not show where it listens.
        is_right = is_usual and not any(self._listening(node_id, *_LISTS))
        return (AddressTarget.RIGHT if is_right else AddressTarget.DOUBTFUL), node_id

    def ports(self, node_id: int) -> frozenset[int]:
        """Return the ports of a controller, in the inventory and its own file."""
        return frozenset(one.port for one in self._all.get(node_id, ()))

    def _is_usual(self, node_id: int, address: Address) -> bool:
        named = self.named.get(node_id, Counter())
        return named[address] * 2 > named.total()

    def _is_at(self, other: int, address: Address, node_id: int) -> bool:
        """Return whether `other` is at an address, and not `node_id`: most files say so, or only `other` has this port
        on that host."""
        hosts = {one.host for one in (*self.known.get(other, ()), *self.named.get(other, ()))}
        has_port = address.port in self.ports(other) - self.ports(node_id)
        return self._is_usual(other, address) or (has_port and address.host in hosts)

    def owner(self, address: Address) -> int | None:
        """Return the controller at an address of controller.quorum.bootstrap.servers; None if none is known there."""
        for node_id, known in self.known.items():
            if address in known or self.named.get(node_id, Counter())[address] > 1:
                return node_id
        return None

    def is_lost(self, named: tuple[Address, ...]) -> bool:
        """Return whether no controller is known at these bootstrap servers, and most files have others: a name that
        most of them have can be that of a load balancer."""
        if not named or any(self.owner(address) is not None for address in named):
            return False
        lists = [found for config in self.configs.values() if (found := parse_bootstrap(config)) is not None]
        return 2 * sum(set(one) == set(named) for one in lists) <= len(lists)

    def is_controllers_port(self, port: int) -> bool:
        return any(port in self.ports(node_id) for node_id in self._all)
