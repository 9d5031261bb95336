"""How the limits and restrictions of the next process of a unit differ from those of the process that runs.

A line of a unit that was removed leaves no newer file, so the files do not show all that has changed. The process shows
what it was given, and systemd what it will give.

Source: systemd.exec(5), proc(5), and apply_* in src/core/exec-invoke.c for the settings that make a filter of seccomp.
The JVM raises its soft limit of open files to the hard one (-XX:+MaxFDLimit).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

LIMITS = {
    "Max open files": "NOFILE",
    "Max processes": "NPROC",
    "Max address space": "AS",
    "Max data size": "DATA",
    "Max file size": "FSIZE",
    "Max stack size": "STACK",
    "Max locked memory": "MEMLOCK",
    "Max cpu time": "CPU",
}
"""Line of /proc/PID/limits → the end of the setting of systemd."""
FILTERS = (
    *("MemoryDenyWriteExecute", "SystemCallFilter", "SystemCallArchitectures", "RestrictAddressFamilies"),
    *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "ProtectKernelModules"),
    *("ProtectKernelTunables", "ProtectKernelLogs", "ProtectClock", "ProtectHostname", "PrivateDevices"),
)
"""Settings that make systemd install a filter of system calls."""
_CAPABILITIES = (
    *("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap"),
    *("linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner"),
    *("sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice"),
    *("sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap"),
    *("mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf"),
    "checkpoint_restore",
)
"""By their number (capabilities(7))."""
_ROW = re.compile(r"(Max [a-z ]*?[a-z])\s{2,}(\d+|unlimited)\s+(\d+|unlimited)\b.*")
_NO_FILTER = ("", "no", "~")
_CHANGES_LIMITS = re.compile(r"(?:^|[\s/;&|('\"])(?:ulimit|prlimit|su|sudo|runuser|chpst|softlimit|systemd-run)\s")
_CHANGES_RIGHTS = re.compile(r"(?:^|[\s/;&|('\"])(?:su|sudo|runuser|chpst|gosu|setpriv|capsh|systemd-run)\s")


def find_differences(
    status: Mapping[str, str], limits: Iterable[str], shown: Mapping[str, str], lines: Iterable[str]
) -> tuple[str, ...]:
    """Return what the next process cannot do, and the one that runs can, as ends of sentences.

    `status`, `limits`: of the process, as in /proc. `shown`: the settings, as systemctl shows them. `lines`: of the
    commands and scripts of a start, which can change both.
    """
    texts = tuple(lines)
    found = [*_filters(status, shown)]
    if not any(map(_CHANGES_LIMITS.search, texts)):
        found += _lower_limits(limits, shown)
    if not any(map(_CHANGES_RIGHTS.search, texts)):
        found += _lost_capabilities(status, shown)
    return tuple(found)


def _filters(status: Mapping[str, str], shown: Mapping[str, str]) -> Iterator[str]:
    if shown.get("MemoryDenyWriteExecute") == "yes":
        yield "MemoryDenyWriteExecute=yes keeps Java from starting, and the process runs"
    own = [name for name in FILTERS if shown.get(name, "") not in _NO_FILTER]
    if own and status.get("Seccomp") == "0":
        yield f"{', '.join(own)} would filter system calls, and the process has no filter"
    if shown.get("NoNewPrivileges") == "yes" and status.get("NoNewPrivs") == "0":
        yield "NoNewPrivileges=yes closes setuid programs such as sudo, and the process is not closed to them"


def _lower_limits(limits: Iterable[str], shown: Mapping[str, str]) -> Iterator[str]:
    for row in filter(None, map(_ROW.fullmatch, map(str.strip, limits))):
        name = LIMITS.get(row[1])
        # The soft limit of open files is raised by Java.
        sides = {"": row[3]} if name == "NOFILE" else {"": row[3], "Soft": row[2]}
        for side, now in sides.items():
            then = shown.get(f"Limit{name}{side}", "")
            if name and then.isdigit() and _number(now) > int(then):
                yield f"Limit{name}= becomes {then} ({'soft' if side else 'hard'} limit), and the process has {now}"


def _number(text: str) -> float:
    return float("inf") if text == "unlimited" else float(text)


def _lost_capabilities(status: Mapping[str, str], shown: Mapping[str, str]) -> Iterator[str]:
    for setting, of_process in (("AmbientCapabilities", "CapAmb"), ("CapabilityBoundingSet", "CapPrm")):
        now = status.get(of_process, "")
        if setting not in shown or not re.fullmatch(r"[0-9a-f]+", now):
            continue
        kept = {name.removeprefix("cap_") for name in shown[setting].lower().split()}
        has = {name for number, name in enumerate(_CAPABILITIES) if int(now, 16) >> number & 1}
        if lost := sorted(has - kept):
            yield f"{setting}= gives no CAP_{', CAP_'.join(lost).upper()}, which the process has"
