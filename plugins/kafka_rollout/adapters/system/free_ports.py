"""Ports of loopback for processes that are to be started."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack

from kafka_rollout.domain.model.errors import FatalError, UserError
from kafka_rollout.settings import ports_wanted

HOST = "127.0.0.1"
# Below the range that Linux gives to outgoing connections (32768 on): none of those takes a port in between.
_DEFAULT = "20000-32767"


@contextlib.contextmanager
def reserved_ports(count: int) -> Iterator[tuple[int, ...]]:
    """Free ports, bound by us until the block ends, so that two who ask at once get different ones."""
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
        remedy="End something that listens, or set KAFKA_ROLLOUT_PORTS to a larger range.",
    )


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that nothing listens on at this moment, all different."""
    with reserved_ports(count) as ports:
        return ports


def _usable() -> range:
    text = ports_wanted() or _DEFAULT
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 1024 <= int(first) <= int(last) <= 65_535):
        raise UserError(
            f"KAFKA_ROLLOUT_PORTS is {text!r}, which is no range of ports.", remedy=f"Write it as {_DEFAULT}."
        )
    return range(int(first), int(last) + 1)
