"""When files of a host were changed."""

from __future__ import annotations

import math
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


def read_newer(commands: HostCommands, node: NodeSpec, paths: Iterable[str], started: int | None) -> tuple[str, ...]:
    """Return the paths that can be newer than the process, each once; also those that the SSH user does not see.
    `started`: when it was started (epoch s of the host); None: unknown."""
    asked = tuple(dict.fromkeys(paths))
    times = read_times(commands, node, asked)
    return tuple(path for path in asked if started is None or times.get(path, math.inf) >= started)
