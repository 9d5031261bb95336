"""The network of a test bed: one namespace with a bridge, and one namespace and address for each host.

Nothing of it exists in the network of the machine, so no address collides and no packet can leave the test bed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.testbed.machine import TestbedError, run

_NETNS = Path("/run/netns")
_OWN = Path("/proc/thread-self/ns/net")
_CLONE_NEWNET = 0x40000000
_PREFIX = "10.77.0."
BRIDGE_ADDRESS = f"{_PREFIX}1"  # of the test itself


def address(number: int) -> str:
    """The address of host `number`, which counts from 1."""
    return f"{_PREFIX}{10 + number}"


def bridge_namespace(bed: str) -> str:
    return f"kr-{bed}"


def host_namespace(bed: str, number: int) -> str:
    return f"kr-{bed}-{number}"


def namespace_path(name: str) -> Path:
    return _NETNS / name


def create_network(bed: str, hosts: int) -> None:
    """Create the namespaces, the bridge and one link for each host."""
    bridge = bridge_namespace(bed)
    run("ip", "netns", "add", bridge)
    outer = ["link set lo up", "link add br0 type bridge", f"addr add {BRIDGE_ADDRESS}/24 dev br0", "link set br0 up"]
    for number in range(1, hosts + 1):
        name = host_namespace(bed, number)
        run("ip", "netns", "add", name)
        outer += [
            f"link add host{number} type veth peer name eth0 netns {name}",
            f"link set host{number} master br0 up",
        ]
    _batch(bridge, outer)
    for number in range(1, hosts + 1):
        inner = ["link set lo up", f"addr add {address(number)}/24 dev eth0", "link set eth0 up"]
        _batch(host_namespace(bed, number), inner)


def add_namespace(bed: str, name: str, number: int) -> str:
    """Create one more host's namespace and link, with `address(number)`; returns the name of the namespace."""
    namespace = f"{bridge_namespace(bed)}-{name}"
    run("ip", "netns", "add", namespace)
    _batch(
        bridge_namespace(bed),
        [f"link add {name} type veth peer name eth0 netns {namespace}", f"link set {name} master br0 up"],
    )
    _batch(namespace, ["link set lo up", f"addr add {address(number)}/24 dev eth0", "link set eth0 up"])
    return namespace


def cut_link(bed: str, name: str) -> None:
    """Remove the link of `add_namespace` at once: the other hosts get no packet from this host any more."""
    run("ip", "-n", bridge_namespace(bed), "link", "delete", name)


def remove_network(bed: str) -> None:
    """Remove the namespaces, and with them every link; namespaces that do not exist are no error."""
    names = [path.name for path in _NETNS.glob(f"{bridge_namespace(bed)}*")]
    for name in names:
        run("ip", "netns", "delete", name)


@contextmanager
def inside_network(bed: str) -> Iterator[None]:
    """Move this thread, and the threads and processes that it starts, into the network of the test bed."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(descriptor: int) -> None:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            raise TestbedError(f"The network namespace cannot be entered: {os.strerror(ctypes.get_errno())}.")

    home = os.open(_OWN, os.O_RDONLY)
    bridge = os.open(namespace_path(bridge_namespace(bed)), os.O_RDONLY)
    try:
        enter(bridge)
        yield
    finally:
        enter(home)
        os.close(bridge)
        os.close(home)


def _batch(namespace: str, lines: list[str]) -> None:
    run("ip", "-n", namespace, "-batch", "-", text="\n".join(lines) + "\n")
