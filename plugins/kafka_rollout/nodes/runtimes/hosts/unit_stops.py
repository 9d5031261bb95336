"""What systemd executes when it stops the unit of a node, and the other Kafka processes of its host, whatever cluster
and user they have. Nothing needs a right."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Sequence

from kafka_rollout.model.host_state import KafkaProcess, UnitStop
from kafka_rollout.model.starts import MAIN_CLASS
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.shell_constructs import LONGEST, is_shell
from kafka_rollout.nodes.runtimes.hosts.text_files import TextFile, TextFiles
from kafka_rollout.nodes.runtimes.hosts.unit_processes import left_command, parse_left
from kafka_rollout.nodes.runtimes.start_files import paths_in

_OTHER_SPELLING = MAIN_CLASS.replace(".", "[.]")  # so that grep does not find itself
_OF_JVM = ("-X", "-D", "-cp", "-classpath", "--class-path", "-javaagent:")
# The processes of others are hidden (hidepid of /proc) if that of process 1 is, which is root's. `Sees=` of each
# process of Kafka: its user, its service, and what kafka-server-stop.sh reads of its file.
_PROCESSES = (
    "{ LC_ALL=C; export LC_ALL; test -z \"$(tr -d '\\0' 2>/dev/null </proc/1/cmdline)\" || echo Processes=known; "
    "for file in $(grep -lszx '" + _OTHER_SPELLING + "' /proc/[0-9]*/cmdline); do pid=${file%/cmdline}; "
    "pid=${pid#/proc/}; "
    "id=$(sed -n 's/^Uid:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$pid/status); "
    'echo "Sees=$pid $id $(id -nu "$id" 2>/dev/null)"; '
    'sed -n "s#.*/\\([^/]*\\.service\\)\\(/.*\\)\\{0,1\\}\\$#Service=$pid \\1#p" /proc/$pid/cgroup | head -n 1; '
    "tr '\\0\\n' '\\n ' <$file | sed \"s/^/Word=$pid /\"; "
    "configuration=$(tr '\\0\\n' '\\n ' <$file | sed -n '/^" + re.escape(MAIN_CLASS) + "$/{n;p;q;}'); "
    'case $configuration in /*) test ! -f "$configuration" || sed -n "s/^[[:space:]]*\\(node\\.id\\|broker\\.id\\|'
    'process\\.roles\\)[[:space:]]*[=:][[:space:]]*\\([^[:space:]]*\\).*/Set=$pid \\1 \\2/p" "$configuration";; esac; '
    "done; } 2>/dev/null; "
)
# systemd runs the commands as the user of the unit, which need not be that of the process (systemd.exec(5)): without
# User=, as root. A command with `+` or `!` runs with the rights of systemd (systemd.service(5)), and CAP_KILL is the
# right to send a signal to every process.
_PRIVILEGED = (
    "user=$(systemctl show --property=User {unit} 2>/dev/null); case $user in User=) echo User=0;; "
    'User=*[!0-9]*) echo "User=$(id -u "${{user#User=}}" 2>/dev/null)";; User=?*) echo "$user";; esac; '
    'files=$(systemctl cat {unit} 2>/dev/null) && test -n "$files" && ! printf \'%s\\n\' "$files" | '
    "grep -qE '^[[:space:]]*(ExecStop(Post)?[[:space:]]*=[[:space:]]*[-@:]*[+!]|"
    "(PermissionsStartOnly|AmbientCapabilities)[[:space:]]*=)' && "
    "echo Privileged=no; "
)
_LINE = re.compile(r"(Sees|Service|Word|Set)=(\d+) (.*)")
_EXECUTED = re.compile(
    r"(?:^|[;&|(]|\b(?:then|do|else|exec|nohup|(?:ba|da|k)?sh|sudo(?:\s+-u\s*\S+|\s+-\w+)*))\s*(/[\w./-]+)"
)
_STARTS = re.compile(r"kafka-(?:server-start|run-class)")
_PID_FILE = re.compile(r"/[\w./@:,+-]*pid[\w./@:,+-]*", re.IGNORECASE)
_DEPTH = 3


def read_unit_stop(
    commands: HostCommands,
    node: NodeSpec,
    *,
    stop: Sequence[str],
    after: Sequence[str],
    pid: int | None,
    signal: str = "",
) -> UnitStop:
    """Return what a stop executes and whom it can reach. `stop`, `after`: the words of each ExecStop= and
    ExecStopPost=. `pid`: the main process of the unit. `signal`: as in UnitStop.

    Without such commands, a stop reaches no other process, and none is asked for.
    """
    if not (stop or after):
        return UnitStop(signal=signal)
    unit = shlex.quote(service_of(node).unit)
    out = commands.run(node, f"{_PROCESSES}{_PRIVILEGED.format(unit=unit)}{left_command(service_of(node).unit)}").out
    own = parse_left(out).kafka
    shown = out.splitlines()
    found = _parse(shown)
    of_unit = {*(own or ()), *([] if pid is None else [pid])}
    is_known = "Processes=known" in shown and own is not None
    users = [line.removeprefix("User=") for line in shown if line.startswith("User=")]
    of_stop, of_after = (_read_scripts(commands, node, words) for words in (stop, after))
    scripts = {text.path: "\n".join(text.lines) for text in (*of_stop, *of_after) if _is_whole_script(text)}
    return UnitStop(
        commands=tuple(stop),
        lines=tuple((text.path, line) for text in of_stop for line in text.lines),
        after=tuple(after),
        scripts=scripts,
        pid_files=_read_pid_files(commands, node, (*stop, *after, *scripts.values())),
        signal=signal,
        user_id=int(users[0]) if len(users) == 1 and users[0].isdigit() else None,
        is_privileged="Privileged=no" not in shown,
        own=frozenset(of_unit),
        processes=tuple(one for one in found if one.pid not in of_unit) if is_known else None,
    )


def _parse(lines: Iterable[str]) -> list[KafkaProcess]:
    shown: dict[int, dict[str, list[str]]] = {}
    for match in filter(None, map(_LINE.fullmatch, lines)):
        shown.setdefault(int(match[2]), {}).setdefault(match[1], []).append(match[3])
    found = []
    for pid, values in shown.items():
        words = values.get("Word", [])
        if not _is_kafka(words):
            continue
        user_id, _, user = "".join(values.get("Sees", [])[:1]).partition(" ")
        settings = dict(one.partition(" ")[::2] for one in values.get("Set", []))
        rest = words[words.index(MAIN_CLASS) + 1 :]
        found.append(
            KafkaProcess(
                pid=pid,
                unit="".join(values.get("Service", [])[:1]),
                command=tuple(words),
                configuration=rest[0] if rest else "",
                user=user,
                user_id=int(user_id) if user_id.isdigit() else None,
                node_id=settings.get("node.id", settings.get("broker.id", "")),
                roles=settings.get("process.roles", ""),
            )
        )
    return found


def _is_kafka(words: Sequence[str]) -> bool:
    """Return whether a command line is one of a JVM, and not of a command that looks for Kafka, such as pgrep. Without
    words, the process has ended."""
    before = words[: words.index(MAIN_CLASS)] if MAIN_CLASS in words else ()
    return any(word.startswith(_OF_JVM) for word in before) or posixpath.basename("".join(before[:1])) == "java"


def _read_scripts(commands: HostCommands, node: NodeSpec, stop: Iterable[str]) -> list[TextFile]:
    """Return the scripts of commands that the SSH user can read, such as those in /etc/init.d, and the scripts that
    these execute."""
    files = TextFiles(commands, node)
    texts = files.read(path for command in stop for path in paths_in(command))
    found = list(texts)
    for _ in range(_DEPTH):
        inner = [path for text in texts for line in text.lines for path in _EXECUTED.findall(line)]
        texts = files.read(path for path in inner if _STARTS.search(path) is None)
        found += texts
    return found


def _is_whole_script(text: TextFile) -> bool:
    return is_shell(text.interpreter) and text.length <= LONGEST


def _read_pid_files(commands: HostCommands, node: NodeSpec, texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers in the files of these texts whose names say that they have process ids."""
    files = TextFiles(commands, node)
    files.read(path for text in texts for path in _PID_FILE.findall(text))
    words = {path: [word for line in text.lines for word in line.split()] for path, text in files.texts.items()}
    known = {path: tuple(map(int, found)) for path, found in words.items() if all(map(str.isdecimal, found))}
    return {**known, **dict.fromkeys(files.absent, ())}
