"""What else on a host starts through the link of a node, or from its package: Kafka Connect, or a Kafka of another
cluster.

The run switches the link, or replaces the package. Their next start is then on the other release, and a process that
runs loads classes from a folder whose jars have other names. A unit can name the link in a script or a file of its
environment, so the command lines of all Java programs show it. Of a unit without such a process, as of one that is
stopped, its text and its files show it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from kafka_rollout.model.host_state import JavaProcess, LinkUser, PlaceState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.class_path import OPTIONS
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, read_properties, rights_of, service_of
from kafka_rollout.nodes.runtimes.hosts.java_processes import JavaProcesses
from kafka_rollout.nodes.runtimes.hosts.start_paths import follow_link
from kafka_rollout.nodes.runtimes.hosts.text_files import TextFiles
from kafka_rollout.nodes.runtimes.hosts.unit_stops import EXECUTED
from kafka_rollout.nodes.runtimes.start_files import paths_in

_SHOWN = "Id,Names,ExecStart,ExecStartPre,WorkingDirectory,Environment,EnvironmentFiles,ActiveState"
_KAFKA = re.compile(r"kafka-server-start|kafka\.Kafka\b")
_START_PROGRAM = re.compile(r"(?<![\w./-])/[\w./-]*/kafka-server-start[\w.-]*")
_ENVIRONMENT_FILE = re.compile(r"^EnvironmentFiles=(/\S+)", re.MULTILINE)
_COMMAND = re.compile(r"^ExecStart(?:Pre)?=(.*)", re.MULTILINE)
_SOURCED = re.compile(r"(?:^|[;&|(]|\b(?:then|do|else))\s*(?:\.|source)\s+\"?(/[\w./-]+)")
_OF_SYSTEMD = re.compile(r"(?:/usr)?/lib/systemd/")
_DEPTH = 3
_PATH = re.compile(r"(?:^|[=:,;])(/[^=:,;]*)")
_OPEN_JAR = re.compile(r" -> (/\S+)/[^/\s]+\.jar(?: \(deleted\))?$", re.MULTILINE)
_ELSEWHERE = "/.kafka-rollout-elsewhere"


def read_link_users(commands: HostCommands, node: NodeSpec, java: JavaProcesses) -> tuple[LinkUser, ...] | None:
    """Return the units and processes, without the own ones; None if the host does not show all of them.

    `systemctl show` needs no right. The pattern names the units that are loaded: those that run, or start with the
    host. The unit of the node is loaded because it is named.
    """
    service = service_of(node)
    done = commands.run(node, ["systemctl", "show", f"--property={_SHOWN}", "--", service.unit, "*.service"])
    units: dict[str, str] = {}
    for shown in done.out.strip().split("\n\n"):
        lines = read_properties(shown)
        names = [*lines.get("Id", "").split(), *lines.get("Names", "").split()]
        units |= {name: shown for name in names[:1] if service.unit not in names}
        units |= {service.unit: shown} if service.unit in names else {}
    if service.unit not in units or done.code != 0 or not java.is_known:
        return None
    found = [*_of_processes(commands, node, java.others, units)]
    named = {one.name for one in found}
    starts = [service.symlink] if service.package is None else sorted({*_START_PROGRAM.findall(units[service.unit])})
    links, hidden = [_naming(path) for path in starts], dict[str, str]()
    for name, shown in units.items() if links else ():
        if name in named or name == service.unit:
            continue
        if any(link.search(shown) for link in links):
            found.append(LinkUser(name=name, starts_kafka=_KAFKA.search(shown) is not None))
        else:
            hidden[name] = shown
    # What runs has shown its class path.
    of_processes = {one.unit for one in java.others}
    found += _of_files(commands, node, {name: one for name, one in hidden.items() if name not in of_processes}, starts)
    return tuple(sorted(found, key=lambda one: one.name))


def _of_files(
    commands: HostCommands, node: NodeSpec, units: Mapping[str, str], starts: Sequence[str]
) -> Iterator[LinkUser]:
    """Yield the units that start through one of the paths by a script or a file of their environment, or of which this
    is unknown. `units`: name → what systemd shows. `starts`: the link, or programs of a package."""
    files, seen = TextFiles(commands, node), dict[str, dict[str, None]]()
    patterns = [_starts_from(one, is_program=service_of(node).package is not None) for one in starts]
    for name, shown in units.items():
        of_commands = (path for line in _COMMAND.findall(shown) for path in paths_in(line.replace(" ; argv[]=", " ")))
        programs = (path for path in of_commands if _OF_SYSTEMD.match(path) is None)
        seen[name] = dict.fromkeys((*programs, *_ENVIRONMENT_FILE.findall(shown)))
    for _ in range(_DEPTH):
        files.read(path for paths in seen.values() for path in paths)
        for paths in seen.values():
            texts = [files.texts[path] for path in paths if path in files.texts]
            lines = [line for text in texts for line in text.lines]
            inner = [path for line in lines for path in (*EXECUTED.findall(line), *_SOURCED.findall(line))]
            paths.update(dict.fromkeys(inner))
    for name, paths in seen.items():
        texts = [files.texts[path] for path in paths if path in files.texts]
        whole = "\n".join((units[name], *(line for text in texts for line in text.lines)))
        naming = [text.path for text in texts if any(one.search("\n".join(text.lines)) for one in patterns)]
        unread = [path for path in paths if path in files.unread]
        can_start = "ActiveState=active" not in units[name] and "kafka" in f"{name} {whole}".lower()
        if naming:
            doubt = f"{naming[0]}, which it reads or runs, names {' or '.join(starts)}"
            yield LinkUser(name=name, starts_kafka=_KAFKA.search(whole) is not None, doubt=doubt)
        elif unread and can_start:
            doubt = f"the SSH user cannot read {unread[0]}, which it reads or runs"
            yield LinkUser(name=name, starts_kafka=True, doubt=doubt)


def _starts_from(path: str, *, is_program: bool) -> re.Pattern[str]:
    """Return what names a program, or one below the link, or the link as the value of a variable or as a folder to
    enter."""
    if is_program:
        return _naming(path)
    quoted = re.escape(path)
    return re.compile(rf"(?<![\w./-]){quoted}/(?:bin|libs)\b|(?:=|:-|\bcd\s+)[\"']?{quoted}(?![\w.-])")


def _naming(path: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./-]){re.escape(path)}(?![\w.-])")


def _of_processes(
    commands: HostCommands, node: NodeSpec, processes: Sequence[JavaProcess], units: Mapping[str, str]
) -> Iterator[LinkUser]:
    """Yield those that run from the folder of the node: certain if they name the link, or are those of a package."""
    service = service_of(node)
    package, start = service.package, service.package.jars if service.package else service.symlink
    named = {one.pid: dict.fromkeys(_paths(one.command)) for one in processes if not one.has_own_root}
    asked = [*dict.fromkeys([start, *(path for paths in named.values() for path in paths)])]
    read = follow_link(commands, node, asked, [] if package else [_ELSEWHERE])
    now = {path: read[number, 0][0] for number, path in enumerate(asked)}
    through = {path for number, path in enumerate(asked) if not package and read[number, 1][0].path != now[path].path}
    folder = now[start].path
    for process in processes:
        if (paths := named.get(process.pid)) is None:
            continue
        doubt = ""
        is_certain = any(path in through or (package and _is_below(now[path].path, folder)) for path in paths)
        if not is_certain and not process.is_kafka:
            continue
        if not is_certain:
            seen = [path for path in _class_path(process.command) if now[path].state is not PlaceState.HIDDEN]
            opened = set() if seen else _folders_of_open_jars(commands, node, process)
            # A folder that is named by a link of its own stays when this link is switched.
            literal = {path for path in seen if posixpath.normpath(path) == now[path].path}
            if seen and (package or not any(_is_below(path, folder) for path in map(posixpath.normpath, literal))):
                continue
            if opened and not any(_is_below(path, folder) for path in opened):
                continue
            if not package and _naming(folder).search(units.get(process.unit, "")):
                continue
            doubt = "the host does not show in which folder its jars are"
            if seen or opened:
                doubt = f"it runs from {folder}, to which the link leads, and its unit does not name this folder"
            if opened and package:
                doubt = ""
        yield LinkUser(
            name=process.unit or f"process {process.pid}", process=process, starts_kafka=process.is_kafka, doubt=doubt
        )


def _folders_of_open_jars(commands: HostCommands, node: NodeSpec, process: JavaProcess) -> set[str]:
    """Return them without links; empty without the right, and for a process of another user."""
    return {*_OPEN_JAR.findall(commands.sudo(node, rights_of(node).list_open_files, pid=process.pid).out)}


def _paths(command: Sequence[str]) -> Iterator[str]:
    """Yield the absolute paths of a command line; of the jars of a class path their folders."""
    yield from _class_path(command)
    values = {value for option, value in pairwise(command) if option in OPTIONS}
    for word in command:
        if word not in values:
            yield from (path for path in _PATH.findall(word) if path.isprintable())


def _class_path(command: Sequence[str]) -> Iterable[str]:
    entries = [entry for option, value in pairwise(command) if option in OPTIONS for entry in value.split(":")]
    return dict.fromkeys(
        posixpath.dirname(one) if one.endswith((".jar", "/*")) else one
        for one in entries
        if one.startswith("/") and one.isprintable()
    )


def _is_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")
