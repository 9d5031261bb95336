"""What a plan reads of a host in addition to its unit: clock, space, jars and the command line of the process."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping

from kafka_rollout.base.errors import TransientError
from kafka_rollout.model.host_state import HostFacts
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, rights_of, service_of
from kafka_rollout.releases.facts import Release

_OPENED = re.compile(r" -> (/\S+\.jar)$", re.MULTILINE)


def read_facts(
    commands: HostCommands, node: NodeSpec, folders: Mapping[Release, str], pid: int | None, now: Callable[[], float]
) -> HostFacts:
    """Read them with commands that change nothing. `folders`: of the releases. `now`: clock of this machine."""
    before = now()
    text = commands.run(node, "date +%s.%N").out.strip()
    after = now()
    if not re.fullmatch(r"\d+\.\d+", text):
        raise TransientError(
            f"Host {service_of(node).host} does not report its time: {text or 'no output'}.",
            remedy="Check `date` there.",
        )
    clock = float(text)
    opened = commands.sudo(node, rights_of(node).list_open_files, values={"pid": pid}).out if pid is not None else ""
    lines = commands.run(node, _line(service_of(node).release_parent, folders.values(), pid)).out.splitlines()

    def of(kind: str) -> list[str]:
        return [line.removeprefix(f"{kind} ") for line in lines if line.startswith(f"{kind} ")]

    free = "".join(of("free"))
    return HostFacts(
        clock_skew_s=clock - min(max(clock, before), after),
        release_bytes=int(free) if free.isdigit() else None,
        loaded_jars=tuple(dict.fromkeys(_OPENED.findall(opened))),
        release_jars={
            release: frozenset(jar.rsplit("/", 1)[1] for jar in of("jar") if jar.startswith(f"{folder}/libs/"))
            for release, folder in folders.items()
        },
        arguments=tuple(of("arg")),
    )


def read_jvm_arguments(commands: HostCommands, node: NodeSpec) -> tuple[str, ...]:
    """Read the arguments of the unit's process, then the words of the unit's environment, which the next start uses.

    Raises TransientError if the unit has no process and no environment. Files with an environment are not read.
    """
    unit = service_of(node).unit
    line = (
        f"LC_ALL=C systemctl show --property=Environment --value {unit} | sed 's/^/env /'; "
        f"pid=$(systemctl show --property=MainPID --value {unit}); "
        "tr '\\0' '\\n' 2>/dev/null </proc/$pid/cmdline | sed 's/^/arg /'"
    )
    lines = commands.run(node, line).out.splitlines()
    found = [line.removeprefix("arg ") for line in lines if line.startswith("arg ")]
    for text in (line.removeprefix("env ") for line in lines if line.startswith("env ")):
        found += [word for variable in _words(text) for word in variable.partition("=")[2].split()]
    if not found:
        raise TransientError(
            f"The arguments of the process of unit {unit} on host {service_of(node).host} are unknown.",
            remedy="Start the node, or set the arguments in the Environment of the unit.",
        )
    return tuple(found)


def _words(text: str) -> list[str]:
    """Split a line of systemd, which quotes as a shell does."""
    try:
        return shlex.split(text)
    except ValueError:  # an unknown way to quote: the words of it are not used
        return []


def _line(parent: str, folders: Iterable[str], pid: int | None) -> str:
    """A line of the login shell. A name of a folder has no character that a shell treats specially."""
    parts = [f"echo free $(df --output=avail --block-size=1 {parent} 2>/dev/null | tail -1)"]
    parts += [f"for jar in {folder}/libs/*.jar; do echo jar $jar; done" for folder in folders]
    if pid is not None:
        parts.append(f"tr '\\0' '\\n' 2>/dev/null </proc/{pid}/cmdline | sed {shlex.quote('s/^/arg /')}")
    return "; ".join(parts)
