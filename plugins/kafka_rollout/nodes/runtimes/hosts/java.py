"""The Java of a node, from the file `release` of its installation. Nothing is executed: the user of the broker chooses
what its process executes, and the SSH user must not execute it."""

from __future__ import annotations

import re
import shlex

from kafka_rollout.base.errors import TransientError, UserError
from kafka_rollout.model.host_state import can_change
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, rights_of, service_of
from kafka_rollout.nodes.runtimes.hosts.state import STAT, parse_paths

_VERSION = re.compile(r'^JAVA_VERSION="?(\d+)(?:\.(\d+))?', re.MULTILINE)
# The path without links, then each folder above it.
_CHAIN = f'while :; do {STAT} "$path" || exit 1; test "$path" != / || break; path=$(dirname "$path"); done'


def read_java_version(commands: HostCommands, node: NodeSpec, pid: int | None) -> int:
    """Return the feature version: of the running process, or of `java` in PATH if there is none.

    Raises UserError if the user of the node can change the file.
    """
    service = service_of(node)
    if pid is not None:
        java = commands.act(node, rights_of(node).find_java, pid=pid).out.strip()
        java = java.removesuffix(" (deleted)")  # replaced since: the next start runs the new file
    else:
        java = commands.run(node, 'readlink -f "$(command -v java)"').out.strip()
    home = java.rpartition("/bin/")[0]
    places = [f"{home}/release", *([f"{home.removesuffix('/jre')}/release"] if home.endswith("/jre") else [])]
    for place in places if home else ():
        line = f'path=$(readlink -e {shlex.quote(place)}) && test -f "$path" && {{ {_CHAIN}; }}'
        done = commands.run(node, line)
        paths = parse_paths(done.out)
        if done.code != 0 or not paths or paths[-1].path != "/":
            continue
        if unsafe := [path.path for path in paths if can_change(path, service.user)]:
            raise UserError(
                f"The Java version of node {node.name} is unknown: {', '.join(unsafe)} on host {service.host} can be "
                f"changed by {service.user} or by every user.",
                remedy="Install Java in a folder that belongs to root, and remove write rights of group and others.",
            )
        match = _VERSION.search(commands.run(node, ["cat", paths[0].path]).out)
        if match is not None:
            return int(match[2] or 0) if match[1] == "1" else int(match[1])
    raise TransientError(
        f"The Java version of node {node.name} on host {service.host} is unknown: there is no {places[0]} that has it."
        if home
        else f"Host {service.host} has no Java for node {node.name}.",
        remedy="Install a Java runtime that has this file, such as a package of the distribution or of Temurin.",
    )
