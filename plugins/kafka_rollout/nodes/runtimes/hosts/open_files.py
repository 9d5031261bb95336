"""The files that the process of a node has open, and what its command line shows if the kernel refuses their list.

The kernel shows /proc/PID/fd and /proc/PID/exe of a process only to a user with all its capabilities and in its user
namespace (__ptrace_may_access in kernel/ptrace.c), so not to the user of the node for a unit with PrivateUsers=yes or
AmbientCapabilities=, or with a Java that has file capabilities. Each user can read the command line, in which the start
scripts of Kafka write each jar.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.class_path import OPTIONS
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, rights_of
from kafka_rollout.nodes.runtimes.hosts.installing import JAR
from kafka_rollout.nodes.runtimes.hosts.shells import refused_by_sudo

_JAR = re.compile(r" -> (/\S+\.jar)( \(deleted\))?$", re.MULTILINE)
_OPEN = re.compile(r" -> (/.+)$", re.MULTILINE)
WHY_HIDDEN = (
    "map=$(cat /proc/{pid}/uid_map 2>/dev/null); "  # empty: it has ended
    'test -z "$map" || test "$(cat /proc/self/uid_map)" = "$map" || echo Hidden=namespace; '
    "grep -qE '^CapPrm:[[:space:]]*0*[1-9a-f]' /proc/{pid}/status && echo Hidden=capabilities; "
)
"""Lines of the login shell, without a right, for `why_hidden`."""
_CAUSES = {
    "namespace": "it runs in a user namespace of its own (PrivateUsers=yes in its unit)",
    "capabilities": "it has capabilities that its user has not (AmbientCapabilities= of its unit, or setcap on its "
    "Java)",
}
_COMMAND = "tr '\\0' '\\n' 2>/dev/null </proc/{pid}/cmdline | sed 's/^/arg /'; "


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFiles:
    """Of a process."""

    jars: Mapping[str, bool] = field(default_factory=dict)
    """Path → whether the file was removed since: another one can be in its place."""
    paths: tuple[str, ...] = ()
    hidden: str = ""
    """Why the kernel refuses their list, a part of a sentence: then they are the jars of the class path."""
    version: str = ""
    """Of the jar of kafka.Kafka in the class path; empty without one, and if there are several."""


def read_open_files(commands: HostCommands, node: NodeSpec, pid: int | None, *, needs_right: bool = False) -> OpenFiles:
    """Return the files. `needs_right`: raise RefusedError without the right of sudo; else there are none then."""
    if pid is None:
        return OpenFiles()
    right = rights_of(node).list_open_files
    done = commands.sudo(node, right, pid=pid)
    if needs_right:
        commands.refuse_missing_right(node, right, done)
    versions: Mapping[str, str] = _versions(done.out.splitlines())
    if done.code == 0 or versions or refused_by_sudo(done):
        jars: dict[str, bool] = {}
        for one in _JAR.finditer(done.out):
            jars[one[1]] = jars.get(one[1], True) and one[2] is not None
        paths = tuple(dict.fromkeys(_OPEN.findall(done.out)))
        if len({*versions.values()}) > 1:  # a plugin can bring the jar too, in a class loader of its own
            versions = _of_class_path(commands, node, pid, versions)
        return OpenFiles(jars=jars, paths=paths, version=_only(versions))
    lines = commands.run(node, (_COMMAND + WHY_HIDDEN).format(pid=pid)).out.splitlines()
    if not (hidden := why_hidden(lines)):  # it can have ended since
        return OpenFiles()
    named = _class_path(_arguments(lines))
    return OpenFiles(
        jars=dict.fromkeys(named, False),
        paths=tuple(named),
        hidden=hidden,
        version=_only(_versions(named)),
    )


def _of_class_path(commands: HostCommands, node: NodeSpec, pid: int, versions: Mapping[str, str]) -> Mapping[str, str]:
    """Return the jars that the class path names, else those in its folders (`libs/*`)."""
    arguments = _arguments(commands.run(node, _COMMAND.format(pid=pid)).out.splitlines())
    named = {*_versions(_class_path(arguments)).values()}
    if named:
        return {path: version for path, version in versions.items() if version in named}
    folders = [posixpath.dirname(one) for one in _entries(arguments) if one.endswith("/*")]
    real = commands.run(node, ["readlink", "-m", "--", *folders]).out.splitlines() if folders else []
    return {path: version for path, version in versions.items() if posixpath.dirname(path) in real}


def why_hidden(lines: Iterable[str]) -> str:
    """Return why the kernel hides a process from its user, a part of a sentence, of the lines of WHY_HIDDEN; empty if
    they show no reason."""
    causes = [_CAUSES[name] for line in lines if (name := line.removeprefix("Hidden=")) in _CAUSES]
    return " and ".join(causes)


def _arguments(lines: Iterable[str]) -> list[str]:
    return [line.removeprefix("arg ") for line in lines if line.startswith("arg ")]


def _versions(lines: Iterable[str]) -> dict[str, str]:
    """Return path → version of the jars of kafka.Kafka, of paths or of the lines of `ls`."""
    found = {}
    for line in lines:
        path = line.rpartition(" -> ")[2].removesuffix(" (deleted)")
        if (match := JAR.search(f"{path}\n")) is not None:
            found[path] = match[1]
    return found


def _only(versions: Mapping[str, str]) -> str:
    different = {*versions.values()}
    return different.pop() if len(different) == 1 else ""


def _entries(arguments: Sequence[str]) -> list[str]:
    entries = [entry for option, value in pairwise(arguments) if option in OPTIONS for entry in value.split(":")]
    return [one for one in entries if one.startswith("/")]


def _class_path(arguments: Sequence[str]) -> list[str]:
    """Return the jars in the class path of a command line; one with all jars of a folder is left out."""
    return list(dict.fromkeys(posixpath.normpath(one) for one in _entries(arguments) if one.endswith(".jar")))
