"""The processes that systemd leaves in the control group of a unit that it calls inactive or failed.

It gives up a process that runs with KillMode=none, with SendSIGKILL=no after TimeoutStopSec, and in uninterruptible
sleep (src/core/service.c). It removes an empty control group, and keeps one with a process (unit_prune_cgroup in
src/core/cgroup.c). Every user can read its files.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from kafka_rollout.model.starts import MAIN_CLASS

# A function of the shell. For each process of the control group of unit $1 and below, it prints `Left=PID NAME`; or
# `Beside=PID NAME` if its command line shows that it is not Kafka, and neither a JVM nor a script that becomes Kafka.
# At the end, it prints `Group=known`. The folder of systemd is the one whose init.scope has process 1: that of cgroup
# v2, of v2 beside v1, of v1. A process that ends between two commands is Kafka's until the next call.
_FUNCTION = (
    "left() { LC_ALL=C; export LC_ALL; shown=$(systemctl show --property=ControlGroup $1); group=${shown#*=}; seen=; "
    "case $shown in ControlGroup=) echo Group=known; return;; ControlGroup=/?*) ;; *) return;; esac; "
    "init=$(systemctl show --property=ControlGroup --value init.scope); "
    "for root in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do "
    'grep -qx 1 "$root$init/cgroup.procs" 2>/dev/null || continue; seen=yes; '
    'find "$root$group" -name cgroup.procs -exec cat {} + 2>&1 | while read -r pid; do case $pid in '
    '*": No such file or directory"|*": No such device") continue;; ""|*[!0-9]*) pid=0;; esac; '
    "is=Left; name=; read -r name 2>/dev/null </proc/$pid/comm; "
    "words=$(tr '\\0' '\\n' 2>/dev/null </proc/$pid/cmdline); "
    'test -z "$words" || printf \'%s\\n\' "$words" | '
    f"grep -qE '^{re.escape(MAIN_CLASS)}$|kafka-(server-start|run-class)|^([^ ]*/)?java$' || is=Beside; "
    'printf \'%s\\n\' "$is=$pid $name"; done; done; test -z "$seen" || echo Group=known; }; '
)
_PROCESS = re.compile(r"(Left|Beside)=(\d+) (.*)")


@dataclass(frozen=True, slots=True)
class LeftProcesses:
    """Those in the control group of a unit."""

    kafka: tuple[int, ...] | None = None
    """Those that can be Kafka; None: unknown."""
    names: tuple[str, ...] = ()
    """Of all, as `58 (java)`."""


def left_command(unit: str) -> str:
    """A line for the login shell, which needs no right."""
    return f"{_FUNCTION}left {shlex.quote(unit)}"


def without_kafka(unit: str) -> str:
    """A command of the login shell that succeeds if no process of the unit can be Kafka, and fails if it is unknown."""
    left = f"case $({left_command(unit)}) in *Left=*) false;; *Group=known) ;; *) false;; esac"
    return f"{{ {left}; }}"


def parse_left(text: str) -> LeftProcesses:
    """Read the output of `left_command`, also among other lines."""
    lines = text.splitlines()
    found = [match for match in map(_PROCESS.fullmatch, lines) if match]
    names = dict.fromkeys(f"{one[2]} ({one[3] or 'unknown'})" for one in found)
    kafka = dict.fromkeys(int(one[2]) for one in found if one[1] == "Left")
    return LeftProcesses(kafka=tuple(kafka) if "Group=known" in lines else None, names=tuple(names))
