"""What the process of a node was given at its start, and what systemd gives the next one. Needs no right."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_rollout.model.process_limits import FILTERS, LIMITS, find_differences
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, read_properties, service_of
from kafka_rollout.nodes.runtimes.hosts.main_process import PROCESS

_LIMITS = (f"Limit{name}{side}" for name in LIMITS.values() for side in ("", "Soft"))
_PROPERTIES = ",".join(("NoNewPrivileges", *FILTERS, "AmbientCapabilities", "CapabilityBoundingSet", *_LIMITS))
_READ = (
    PROCESS + "sed 's/^/status /' /proc/$pid/status 2>/dev/null; sed 's/^/limit /' /proc/$pid/limits 2>/dev/null; "
    "LC_ALL=C systemctl show --property=" + _PROPERTIES + " {unit}"
)


def read_differences(commands: HostCommands, node: NodeSpec, lines: Iterable[str]) -> tuple[str, ...]:
    """As `find_differences`; without a process, none. `lines`: of the commands and scripts of the next start."""
    shown = commands.run(node, _READ.format(unit=service_of(node).unit)).out.splitlines()
    status = (
        line.removeprefix("status ").split(":", 1) for line in shown if line.startswith("status ") and ":" in line
    )
    limits = [line.removeprefix("limit ") for line in shown if line.startswith("limit ")]
    values = {name: value.strip() for name, value in status}
    if not values:
        return ()
    rest = "\n".join(line for line in shown if not line.startswith(("status ", "limit ")))
    return find_differences(values, limits, read_properties(rest), lines)
