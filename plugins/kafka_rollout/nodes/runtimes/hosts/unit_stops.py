"""What systemd executes when it stops the unit of a node, and the other Java programs of its host. Nothing needs a
right."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from kafka_rollout.model.host_state import UnitStop
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.java_processes import read_java_processes
from kafka_rollout.nodes.runtimes.hosts.shell_constructs import LONGEST, is_shell
from kafka_rollout.nodes.runtimes.hosts.text_files import TextFile, TextFiles
from kafka_rollout.nodes.runtimes.start_files import paths_in

# systemd runs the commands as the user of the unit, which need not be that of the process (systemd.exec(5)): without
# User=, as root. A command with `+` or `!` runs with the rights of systemd (systemd.service(5)), and CAP_KILL is the
# right to send a signal to every process. systemd removes comments, and then joins lines (systemd.syntax(7)).
_PRIVILEGED = (
    "user=$(systemctl show --property=User {unit} 2>/dev/null); case $user in User=) echo User=0;; "
    'User=*[!0-9]*) echo "User=$(id -u "${{user#User=}}" 2>/dev/null)";; User=?*) echo "$user";; esac; '
    'files=$(systemctl cat {unit} 2>/dev/null) && test -n "$files" && ! printf \'%s\\n\' "$files" | '
    "sed '/^[[:space:]]*[#;]/d' | "
    r"sed -E -e ':a' -e '/(^|[^\])(\\\\)*\\$/{{' -e '$!{{' -e 'N' -e 's/\\\n/ /' -e 'ba' -e '}}' -e '}}' | "
    "grep -qE '^[[:space:]]*(ExecStop(Post)?[[:space:]]*=(.*[[:space:]];)?[[:space:]]*[-@:|]*[+!]|"
    "(PermissionsStartOnly|AmbientCapabilities)[[:space:]]*=)' && "
    "echo Privileged=no; "
)
EXECUTED = re.compile(
    r"(?:^|[;&|(]|\b(?:then|do|else|exec|nohup|(?:ba|da|k)?sh|sudo(?:\s+-u\s*\S+|\s+-\w+)*))\s*(/[\w./-]+)"
)
"""The program after the begin of a command in a line of a script."""
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

    Without such commands, a stop reaches no process outside of the control group.
    """
    if not (stop or after):
        return UnitStop(signal=signal, grouped=read_java_processes(commands, node, pid).grouped)
    unit = shlex.quote(service_of(node).unit)
    java = read_java_processes(commands, node, pid, lines=_PRIVILEGED.format(unit=unit))
    users = [line.removeprefix("User=") for line in java.lines if line.startswith("User=")]
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
        is_privileged="Privileged=no" not in java.lines,
        own=java.own,
        grouped=java.grouped,
        processes=tuple(one for one in java.others if one.is_kafka) if java.is_known else None,
        programs=tuple(one for one in java.others if not one.is_kafka),
    )


def _read_scripts(commands: HostCommands, node: NodeSpec, stop: Iterable[str]) -> list[TextFile]:
    """Return the scripts of commands that the SSH user can read, such as those in /etc/init.d, and the scripts that
    these execute."""
    files = TextFiles(commands, node)
    texts = files.read(path for command in stop for path in paths_in(command))
    found = list(texts)
    for _ in range(_DEPTH):
        inner = [path for text in texts for line in text.lines for path in EXECUTED.findall(line)]
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
