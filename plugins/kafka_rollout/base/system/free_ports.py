"""Free loopback ports for processes that are started later."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.base.system.settings import read_port_range

HOST = "127.0.0.1"
# Below Linux's range for outgoing connections (from 32768), so that no connection takes a port in between.
_DEFAULT = "20000-32767"


@contextlib.contextmanager
def reserved_ports(count: int) -> Iterator[tuple[int, ...]]:
    """Yield free ports, bound until the block ends, so that two callers at the same time get different ports."""
    usable = _usable()
    with ExitStack() as stack:
        ports: list[int] = []
        for port in random.sample(usable, len(usable)):
            holder = socket.socket()
            try:
                holder.bind((HOST, port))
            except OSError:
                holder.close()
                continue
            stack.enter_context(holder)
            ports.append(port)
            if len(ports) == count:
                yield tuple(ports)
                return
    raise FatalError(
        f"There are no {count} free ports from {usable[0]} to {usable[-1]} on {HOST}.",
        remedy="Stop a process that listens, or set KAFKA_ROLLOUT_PORTS to a larger range.",
    )


def free_ports(count: int) -> tuple[int, ...]:
    """Return different ports on which no process listens now."""
    with reserved_ports(count) as ports:
        return ports


def _usable() -> range:
    text = read_port_range() or _DEFAULT
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 1024 <= int(first) <= int(last) <= 65_535):
        raise UserError(
            f"KAFKA_ROLLOUT_PORTS is {text!r}, which is not a range of ports.", remedy=f"Write it as {_DEFAULT}."
        )
    return range(int(first), int(last) + 1)


def host_and_port(url: str, owner: str) -> tuple[str, int]:
    """Split the URL of an agent. `owner`: the node's name, for the UserError about a URL without host and port."""
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise UserError(f"{url} of node {owner} has no host and port.", remedy="Use the form http://127.0.0.1:<port>.")
    return parts.hostname, parts.port
