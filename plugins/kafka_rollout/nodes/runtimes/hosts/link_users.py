"""Other units of a host that start through the link of a node, such as Kafka Connect of the same archive.

The run switches the link. Their next start is then on the other release, and a process that runs loads classes from a
folder whose jars have other names.
"""

from __future__ import annotations

import re

from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, read_properties, service_of

_SHOWN = "Id,Names,ExecStart,ExecStartPre,WorkingDirectory,Environment"


def read_link_users(commands: HostCommands, node: NodeSpec) -> tuple[str, ...] | None:
    """Return the names of the units whose commands, folder or environment name the link; empty for a package, whose
    files have no link. None if systemd does not show the units, with the one of the node among them.

    `systemctl show` needs no right. The pattern names the units that are loaded: those that run, or start with the
    host. The unit of the node is loaded because it is named.
    """
    service = service_of(node)
    if service.package is not None:
        return ()
    done = commands.run(node, ["systemctl", "show", f"--property={_SHOWN}", "--", service.unit, "*.service"])
    link = re.compile(rf"(?<![\w./-]){re.escape(service.symlink)}(?![\w.-])")
    found, is_whole = [], False
    for shown in done.out.strip().split("\n\n"):
        lines = read_properties(shown)
        names = [*lines.get("Id", "").split(), *lines.get("Names", "").split()]
        if service.unit in names:
            is_whole = True
        elif names and link.search(shown):
            found.append(names[0])
    return tuple(sorted({*found})) if is_whole and done.code == 0 else None
