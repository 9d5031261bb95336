"""Which names the host of a node can resolve, as its Java does (getaddrinfo), and whether it has their addresses."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import LIST_S, HostCommands, service_of, unusable

_NOT_FOUND = "2"
_RESOLVE = 'while IFS= read -r name; do timeout 10 getent ahosts "$name" > /dev/null; echo "$?"; done'


def find_unresolved(commands: HostCommands, node: NodeSpec, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that the host cannot resolve. Raises TransientError or RefusedError if that is unknown."""
    host = service_of(node).host
    done = commands.shell.run(host, _RESOLVE, text="".join(f"{name}\n" for name in names), within_s=LIST_S)
    codes = done.out.split()
    if len(codes) != len(names) or {*codes} - {"0", _NOT_FOUND}:
        raise unusable(
            done,
            f"Host {host} does not report whether it can resolve {', '.join(names)}: {done.problem}.",
            remedy="Run `getent ahosts` with this name there as the SSH user, and correct what it reports.",
        )
    return tuple(name for name, code in zip(names, codes, strict=True) if code == _NOT_FOUND)


# Each name with its code and its addresses. Then the addresses and the listening sockets of the network in which the
# process runs: files of /proc that every user can read.
_LOOK_UP = (
    'while IFS= read -r name; do found=$(timeout 10 getent ahosts "$name"); echo "code $? $name"; '
    'printf "%s\\n" "$found" | awk \'NF {{print "is", $1}}\'; done; '
    "net=/proc/{pid}/net; test -r $net/fib_trie || net=/proc/net; "
    'awk \'$1 == "|--" {{at = $2}} / host LOCAL/ {{print "own", at}}\' $net/fib_trie; '
    "awk '{{print \"own6\", $1}}' $net/if_inet6 2>/dev/null; "
    'awk \'$4 == "0A" {{print "listens", $2}}\' $net/tcp $net/tcp6 2>/dev/null; '
    'echo "nonlocal $(cat /proc/sys/net/ipv4/ip_nonlocal_bind)"'
)
# The name of the host, its addresses, the name of each one, and whether this name leads back to the address. Java asks
# the same (InetAddress.getLocalHost, getCanonicalHostName).
_OWN_NAME = (
    'name=$(uname -n); found=$(timeout 10 getent ahosts "$name"); echo "code $? $name"; '
    'for one in $(printf "%s\n" "$found" | awk \'NF {print $1}\' | uniq); do '
    "host=$(timeout 10 getent hosts \"$one\" | awk 'NR == 1 {print $2}'); "
    'test -n "$host" && timeout 10 getent ahosts "$host" | awk \'{print $1}\' | grep -qxF -- "$one" || host=$one; '
    'echo "canonical $one $host"; done'
)
_HEX = re.compile(r"([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOfNode:
    """What the host of a node resolves, and its network."""

    addresses: Mapping[str, tuple[str, ...]]
    """Of each name, in the order of the host; empty: it cannot resolve it."""
    own: frozenset[str]
    """Addresses of the host, apart from those of loopback."""
    listens: frozenset[tuple[str, int]]
    """Address and port of its listening sockets, of all programs."""
    binds_others: bool
    """A program can bind to an address that the host does not have (net.ipv4.ip_nonlocal_bind)."""

    def is_own(self, address: str) -> bool:
        return self.binds_others or address in self.own or ip_address(address).is_loopback

    def elsewhere(self, address: str, ports: Collection[int]) -> tuple[str, ...]:
        """Return where something listens at ports, if that is not at a loopback address that Kafka would bind to."""
        if not ip_address(address).is_loopback:
            return ()
        places = {port: {at for at, one in self.listens if one == port} for port in ports}
        moved = {at for found in places.values() if address not in found for at in found}
        return tuple(sorted(at for at in moved if not ip_address(at).is_loopback))


def read_network(commands: HostCommands, node: NodeSpec, names: Sequence[str], pid: int | None) -> NetworkOfNode:
    """`pid`: of the process; None without one. Raises TransientError or RefusedError if it is unknown."""
    host = service_of(node).host
    line = _LOOK_UP.format(pid="self" if pid is None else pid)
    done = commands.shell.run(host, line, text="".join(f"{name}\n" for name in names), within_s=LIST_S)
    addresses: dict[str, list[str]] = {}
    codes: dict[str, str] = {}
    name = ""
    for kind, _, value in (one.partition(" ") for one in done.out.splitlines()):
        if kind == "code":
            code, _, name = value.partition(" ")
            codes[name], addresses[name] = code, []
        elif kind == "is" and name and (address := _address(value)) is not None:
            addresses[name].append(str(address))
    rows = [one.split(" ", 1) for one in done.out.splitlines() if " " in one]
    own = {value for kind, value in rows if kind == "own"}
    own |= {str(IPv6Address(bytes.fromhex(value))) for kind, value in rows if kind == "own6" and len(value) == 32}
    flags = [value for kind, value in rows if kind == "nonlocal"]
    if {*codes} != {*names} or {*codes.values()} - {"0", _NOT_FOUND} or not own or flags not in (["0"], ["1"]):
        raise unusable(
            done,
            f"Host {host} does not report whether it can resolve {', '.join(names)}, and which addresses it has: "
            f"{done.problem}.",
            remedy="Run `getent ahosts` with this name there as the SSH user, and correct what it reports.",
        )
    sockets = (_HEX.fullmatch(value) for kind, value in rows if kind == "listens")
    return NetworkOfNode(
        addresses={name: tuple(dict.fromkeys(found)) for name, found in addresses.items()},
        own=frozenset(one for one in own if not ip_address(one).is_loopback),
        listens=frozenset((_socket(one[1]), int(one[2], 16)) for one in sockets if one),
        binds_others=flags == ["1"],
    )


def read_own_name(commands: HostCommands, node: NodeSpec, arguments: Iterable[str]) -> tuple[str, str]:
    """Return the name of the host, and the one that Kafka takes for a listener without a host; empty if the host cannot
    resolve its own. `arguments`: of the process.

    Raises TransientError or RefusedError if it is unknown.
    """
    host = service_of(node).host
    done = commands.shell.run(host, _OWN_NAME, within_s=LIST_S)
    rows = [one.split() for one in done.out.splitlines()]
    codes = [row[1:] for row in rows if row[:1] == ["code"] and len(row) == 3]
    names = {row[1]: row[2] for row in rows if row[:1] == ["canonical"] and len(row) == 3 and _address(row[1])}
    if len(codes) != 1 or codes[0][0] not in ("0", _NOT_FOUND) or (codes[0][0] == "0") != bool(names):
        raise unusable(
            done,
            f"Host {host} does not report its own name: {done.problem}.",
            remedy="Run `getent ahosts $(uname -n)` there as the SSH user, and correct what it reports.",
        )
    first = first_address(names, arguments)
    return codes[0][1], next((name for one, name in names.items() if str(_address(one)) == first), "")


def first_address(addresses: Iterable[str], arguments: Iterable[str]) -> str:
    """Return the address to which a JVM binds: the first one of IPv4, or of IPv6 with this preference. `arguments`: of
    the process."""
    found = [ip_address(one) for one in addresses]
    values = dict(one.partition("=")[::2] for one in arguments if one.startswith("-Djava.net.prefer"))
    in_order = values.get("-Djava.net.preferIPv6Addresses") == "system"
    version = 6 if values.get("-Djava.net.preferIPv6Addresses") == "true" else 4
    wanted = [one for one in found if in_order or one.version == version]
    return next((str(one) for one in (*wanted, *found)), "")


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _socket(text: str) -> str:
    """Return the address of a line of /proc/net/tcp: words of 32 bits in the byte order of the host, mostly little."""
    words = [struct.pack("<I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8)]
    address = ip_address(b"".join(words))
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
