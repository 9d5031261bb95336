"""The Java programs that run on the host of a node, whatever cluster and user they have, as their command lines show
them. Nothing needs a right."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_rollout.model.host_state import JavaProcess
from kafka_rollout.model.starts import MAIN_CLASS
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.class_path import OPTIONS
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.unit_processes import left_command, parse_left

_OTHER_SPELLING = MAIN_CLASS.replace(".", "[.]")  # so that grep does not find itself
_OF_JVM = ("-X", "-D", "-cp", "-classpath", "--class-path", "-javaagent:")
_WITH_VALUE = (*OPTIONS, "-p", "--module-path", "--add-modules", "--add-opens", "--add-exports", "--add-reads")
# The processes of others are hidden (hidepid of /proc) if that of process 1 is, which is root's. `Sees=` of each Java
# process: its user, its service, its words, and what kafka-server-stop.sh reads of its file. `Root=`: it is in a
# container, or has RootDirectory=, so its paths are not those of the host.
_PROCESSES = (
    "root() { awk '$5 == \"/\" {print $3, $4; exit}' /proc/$1/mountinfo; }; "
    "{ LC_ALL=C; export LC_ALL; test -z \"$(tr -d '\\0' 2>/dev/null </proc/1/cmdline)\" || echo Processes=known; "
    "for file in $(grep -lszxE '([^ ]*/)?java|" + _OTHER_SPELLING + "' /proc/[0-9]*/cmdline); "
    "do pid=${file%/cmdline}; pid=${pid#/proc/}; "
    "id=$(sed -n 's/^Uid:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$pid/status); "
    'echo "Sees=$pid $id $(id -nu "$id" 2>/dev/null)"; '
    'sed -n "s#.*/\\([^/]*\\.service\\)\\(/.*\\)\\{0,1\\}\\$#Service=$pid \\1#p" /proc/$pid/cgroup | head -n 1; '
    "tr '\\0\\n' '\\n ' <$file | sed \"s/^/Word=$pid /\"; "
    'own=$(root self); its=$(root $pid); test -z "$its" || test "$own" = "$its" || echo "Root=$pid $its"; '
    "configuration=$(tr '\\0\\n' '\\n ' <$file | sed -n '/^" + re.escape(MAIN_CLASS) + "$/{n;p;q;}'); "
    'case $configuration in /*) test ! -f "$configuration" || sed -n "s/^[[:space:]]*\\(node\\.id\\|broker\\.id\\|'
    'process\\.roles\\)[[:space:]]*[=:][[:space:]]*\\([^[:space:]]*\\).*/Set=$pid \\1 \\2/p" "$configuration";; esac; '
    "done; } 2>/dev/null; "
)
_LINE = re.compile(r"(Sees|Service|Word|Root|Set)=(\d+) (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaProcesses:
    """Those of a host."""

    own: frozenset[int]
    """Those of Kafka in the control group of the unit of the node."""
    others: tuple[JavaProcess, ...]
    """Those outside of it, as far as the host shows them."""
    is_known: bool
    """The host shows them all."""
    grouped: tuple[JavaProcess, ...]
    """Those in the control group of the unit that are not the node itself: another Kafka, and other programs."""
    lines: tuple[str, ...]
    """What the command printed, also for the lines that the caller added."""


def read_java_processes(commands: HostCommands, node: NodeSpec, pid: int | None, *, lines: str = "") -> JavaProcesses:
    """`pid`: the main process of the unit. `lines`: of the login shell, which also print lines."""
    unit = service_of(node).unit
    shown = commands.run(node, f"{_PROCESSES}{lines}{left_command(unit)}").out
    own, printed = parse_left(shown).kafka, tuple(shown.splitlines())
    of_unit = {*(own or ()), *([] if pid is None else [pid])}
    seen = tuple(_parse(printed))
    return JavaProcesses(
        own=frozenset(of_unit),
        others=tuple(one for one in seen if one.pid not in of_unit and (one.is_kafka or one.unit != unit)),
        grouped=_beside(node, [one for one in seen if one.pid in of_unit], pid),
        is_known="Processes=known" in printed and own is not None,
        lines=printed,
    )


def _beside(node: NodeSpec, processes: Sequence[JavaProcess], pid: int | None) -> tuple[JavaProcess, ...]:
    """Return the processes of a control group that are not the node. `pid`: the main process, which can be a shell. One
    with the same configuration is the node: a JVM that starts a program shows its own command line for a moment."""
    kafka = [one for one in processes if one.is_kafka]
    file = service_of(node).configuration_file
    own = [one for one in kafka if one.pid == pid] or [one for one in kafka if one.configuration == file] or kafka[:1]
    same = {one.configuration for one in own}
    return tuple(one for one in processes if one not in own and not (one.is_kafka and one.configuration in same))


def _parse(lines: Iterable[str]) -> Iterator[JavaProcess]:
    shown: dict[int, dict[str, list[str]]] = {}
    for match in filter(None, map(_LINE.fullmatch, lines)):
        shown.setdefault(int(match[2]), {}).setdefault(match[1], []).append(match[3])
    for pid, values in shown.items():
        words = values.get("Word", [])
        is_kafka = _is_kafka(words)
        program = "" if is_kafka else _program(words)
        if not (is_kafka or program):
            continue
        user_id, _, user = "".join(values.get("Sees", [])[:1]).partition(" ")
        settings = dict(one.partition(" ")[::2] for one in values.get("Set", []))
        rest = words[words.index(MAIN_CLASS) + 1 :] if is_kafka else []
        yield JavaProcess(
            pid=pid,
            unit="".join(values.get("Service", [])[:1]),
            command=tuple(words),
            program=program,
            configuration=rest[0] if rest else "",
            user=user,
            user_id=int(user_id) if user_id.isdigit() else None,
            node_id=settings.get("node.id", settings.get("broker.id", "")),
            roles=settings.get("process.roles", ""),
            has_own_root="Root" in values,
        )


def _is_kafka(words: Sequence[str]) -> bool:
    """Return whether a command line is one of a JVM, and not of a command that looks for Kafka, such as pgrep. Without
    words, the process has ended."""
    before = words[: words.index(MAIN_CLASS)] if MAIN_CLASS in words else ()
    return any(word.startswith(_OF_JVM) for word in before) or posixpath.basename("".join(before[:1])) == "java"


def _program(words: Sequence[str]) -> str:
    """Return the main class or the jar of a JVM; empty for another program."""
    if posixpath.basename("".join(words[:1])) != "java":
        return ""
    left = list(words[1:])
    while left:
        word = left.pop(0)
        if word == "-jar":
            return posixpath.basename("".join(left[:1])) or "java"
        if word in _WITH_VALUE:
            del left[:1]
        elif not word.startswith(("-", "@")):
            return word
    return "java"
