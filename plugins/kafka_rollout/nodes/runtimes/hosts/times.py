"""When files of a host were changed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands

_TIMES = re.compile(r"(\d+)/(\d+)(/.+)")
TIMES = ("stat", "--dereference", "--format=%Y/%Z%n")


def parse_times(shown: str) -> dict[str, float]:
    """Return path → the later time of its content and its inode (epoch s), as `stat` prints them for `%Y/%Z%n`."""
    matches = filter(None, map(_TIMES.fullmatch, shown.splitlines()))
    return {match[3]: max(float(match[1]), float(match[2])) for match in matches}


def read_times(commands: HostCommands, node: NodeSpec, paths: Iterable[str]) -> dict[str, float]:
    """Return path → the later time of its content and its inode (epoch s), of those that the SSH user sees."""
    asked = [path for path in dict.fromkeys(paths) if path.startswith("/") and path.isprintable()]
    return parse_times(commands.run(node, [*TIMES, *asked]).out) if asked else {}
