"""Which Java the next start of a unit runs: as kafka-run-class.sh finds it, and not as the last start has found it.

It starts $JAVA_HOME/bin/java, and without JAVA_HOME `java` in PATH. The unit's environment can set both, and so can a
script of the start. The link in PATH (/etc/alternatives) can have been changed since the process started.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.base.errors import NotObservableError, TransientError
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, rights_of, service_of
from kafka_rollout.nodes.runtimes.hosts.open_files import WHY_HIDDEN, why_hidden
from kafka_rollout.nodes.runtimes.hosts.option_sources import ScriptsOfStart, UnitOptions
from kafka_rollout.nodes.runtimes.hosts.shell_lines import assignments
from kafka_rollout.nodes.runtimes.hosts.text_files import TextFile

_DELETED = " (deleted)"  # the end of /proc/PID/exe
_SYSTEMD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # without PATH in a unit
_OF_KAFKA = ("java", "$JAVA_HOME/bin/java", "${JAVA_HOME}/bin/java")  # JAVA= in kafka-run-class.sh
_DEFAULT = re.compile(r"\$\{JAVA_HOME:?-([^}]*)\}")
_LITERAL = re.compile(r"/[^$`*?\[\]{}~]*")
_ASKS = re.compile(r"-z\s.*JAVA_HOME|JAVA_HOME:?=")


@dataclass(frozen=True, slots=True, kw_only=True)
class NextJava:
    """The Java of the next start of a node. Paths are without links."""

    paths: tuple[str, ...]
    """More than one if it is not known which of them the start runs; empty without a Java."""
    of_process: str = ""
    """That of the running process; empty without one."""
    why: str = ""
    """Why it is not known, the end of a sentence."""

    @property
    def has_changed(self) -> bool:
        return bool(self.of_process and self.paths) and self.of_process not in self.paths


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """What the scripts of a start do with JAVA_HOME and PATH."""

    homes: tuple[str, ...] = ()
    """Values that replace that of the unit."""
    defaults: tuple[str, ...] = ()
    """Values that count without one in the unit."""
    why: str = ""
    """Why they can do more, the end of a sentence; empty: they do not."""


def _setting_of(texts: Iterable[TextFile], *, is_whole: bool) -> _Setting:
    homes: list[str] = []
    defaults: list[str] = []
    why = "" if is_whole else "not all scripts of its start can be read"
    for text in texts:
        before = ""
        for line in text.lines:
            for name, written in assignments(line):
                value = written.replace('"', "").replace("'", "").rstrip("/")
                default = _DEFAULT.fullmatch(value)
                if name == "JAVA_HOME" and _LITERAL.fullmatch(value):
                    (defaults if _ASKS.search(f"{before} {line}") else homes).append(value)
                elif name == "JAVA_HOME" and default is not None and _LITERAL.fullmatch(default[1]):
                    defaults.append(default[1].rstrip("/"))
                elif name in ("JAVA_HOME", "PATH") or (name == "JAVA" and value not in _OF_KAFKA):
                    why = f"{text.path} sets {name}"
            before = line
    return _Setting(homes=tuple(dict.fromkeys(homes)), defaults=tuple(dict.fromkeys(defaults)), why=why)


def find_next_java(
    commands: HostCommands, node: NodeSpec, pid: int | None, unit: UnitOptions, start: ScriptsOfStart
) -> NextJava:
    """Return the Java of the next start on one of the releases for which `start` was read. `pid`: of the process.

    Raises NotObservableError if JAVA_HOME of the unit has no Java, and if the Java of the process was removed or is
    hidden (open_files.py) and the next one is unknown.
    """
    service = service_of(node)
    settings = {_setting_of(texts, is_whole=start.is_known) for texts in start.scripts.values()} or {_Setting()}
    home = unit.variables.get("JAVA_HOME", "").rstrip("/")
    home = home if home.startswith("/") else ""
    why = next((one.why for one in settings if one.why), "")
    if not home and not unit.is_whole:
        why = why or "its environment is unknown in part"
    folders = [one for one in unit.variables.get("PATH", unit.search or _SYSTEMD_PATH).split(":") if one[:1] == "/"]
    wanted: dict[str, list[str]] = {}
    if start.java:
        wanted["program"] = [start.java]
    else:
        for one in settings:
            for value in one.homes or ([home] if home else one.defaults):
                wanted[value] = [f"{value}/bin/java"]
            if not (one.homes or home or one.defaults):
                wanted["path"] = [f"{folder}/java" for folder in folders]
    process, found, hidden, why_unseen = _look(commands, node, pid, wanted)
    if home in wanted and home not in found:
        raise NotObservableError(
            f"JAVA_HOME of {service.unit} on host {service.host} is {home}, where the SSH user finds no bin/java.",
            remedy="Correct JAVA_HOME of the unit, or let the SSH user enter this folder.",
        )
    paths = list(dict.fromkeys(found.values()))
    of_process = process.removesuffix(_DELETED)
    is_removed = process.endswith(_DELETED)
    why = why or (f"the SSH user cannot enter {hidden}" if hidden else "")
    if home and not why and len(paths) > 1:
        why = "a script of its start sets JAVA_HOME too"
    if home and of_process == found.get(home) and not is_removed:
        return NextJava(paths=(of_process,), of_process=of_process)  # the scripts did not replace it
    if not why:
        return NextJava(
            paths=tuple(paths), of_process=of_process, why="its releases have scripts with other values of JAVA_HOME"
        )
    if why_unseen:
        raise NotObservableError(
            f"The Java of the process of node {node.name} on host {service.host} cannot be read, because {why_unseen}, "
            f"and the Java of its next start is unknown: {why}.",
            remedy=f"Set JAVA_HOME in the unit (`systemctl edit {service.unit}`), and nowhere else.",
        )
    if is_removed and of_process not in paths:
        raise NotObservableError(
            f"The Java of the process of node {node.name} was removed from host {service.host} ({of_process}), such as "
            f"by an update, and the Java of its next start is unknown: {why}.",
            remedy="Restart the node with its new Java (`kafka-rollout restart`), or set JAVA_HOME in the unit.",
        )
    both = dict.fromkeys([*([of_process] if of_process else []), *paths])
    return NextJava(paths=tuple(both), of_process=of_process, why=why)


def _look(
    commands: HostCommands, node: NodeSpec, pid: int | None, wanted: Mapping[str, Sequence[str]]
) -> tuple[str, dict[str, str], str, str]:
    """Return the program of the process, the first Java of each list that exists, without links, a folder before it
    that the SSH user cannot enter, and why the kernel hides the program; empty if it does not."""
    right = rights_of(node).find_java
    # It can have ended since.
    is_there = f"test -d /proc/{pid} && {{ echo Hidden=; {WHY_HIDDEN.format(pid=pid)}}}"
    exe = f"exe=$({shlex.join(right.command(pid=pid))}) || {{ {is_there}; }}"
    parts = [] if pid is None else [exe, 'echo "exe 0 $exe"']
    for number, paths in enumerate(wanted.values()):
        words = " ".join(map(shlex.quote, paths))
        parts.append(
            f'for java in {words}; do if test -x "$java" && test -f "$java"; then '
            f'echo "java {number} $(readlink -f "$java")"; break; fi; folder=${{java%/*}}; '
            f'if test -d "$folder" && ! test -x "$folder"; then echo "hidden {number} $folder"; fi; done'
        )
    done = commands.expect(node, right, commands.run(node, "; ".join([*parts, "true"])))
    lines = done.out.splitlines()
    rows = [line.split(" ", 2) for line in lines if line.count(" ") >= 2]
    keys = list(wanted)
    found = {keys[int(number)]: path for kind, number, path in rows if kind == "java"}
    process = next((path for kind, _, path in rows if kind == "exe"), "")
    folder = next((path for kind, _, path in rows if kind == "hidden"), "")
    hidden = why_hidden(lines) if "Hidden=" in lines else ""
    if "Hidden=" in lines and not hidden:
        raise TransientError(
            f"The tool cannot {right.purpose}: node {node.name}, host {service_of(node).host}.",
            remedy="Check the host, then repeat the step.",
        )
    return process, found, folder, hidden
