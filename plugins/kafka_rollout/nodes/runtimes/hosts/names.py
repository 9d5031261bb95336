"""Which names of other machines the host of a node can resolve, as its Java does (getaddrinfo)."""

from __future__ import annotations

from collections.abc import Sequence

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
