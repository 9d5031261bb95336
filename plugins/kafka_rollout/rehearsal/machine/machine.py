"""What this machine offers a rehearsal: memory, disk, a network namespace."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from kafka_rollout.base.errors import RefusedError

_CGROUP = Path("/sys/fs/cgroup")
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_PROBE_S = 10.0


def free_memory() -> int:
    """Return the free memory in bytes: of the machine, or of this process's control group if that is less."""
    free = psutil.virtual_memory().available
    with suppress(OSError, ValueError):
        limit = int((_CGROUP / "memory.max").read_text())
        free = min(free, limit - int((_CGROUP / "memory.current").read_text()))
    return max(0, free)


def free_disk(folder: Path) -> int:
    """Return the free bytes of the file system of a folder, which can be missing."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(existing).free


@cache
def namespace_command() -> Sequence[str]:
    """Return the command that runs another one in a network namespace of its own; empty where it is not allowed."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    options = ["--net"] if os.geteuid() == 0 else ["--map-root-user", "--net"]
    command = [unshare, *options, "--"]
    with suppress(OSError, subprocess.SubprocessError):
        tried = subprocess.run([*command, "true"], capture_output=True, timeout=_PROBE_S, check=False)
        if tried.returncode == 0:
            return tuple(command)
    return ()


def enter_loopback() -> None:
    """Bring the loopback interface of this network namespace up.

    Raises RefusedError if another interface is up: this is not a namespace of its own.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        others = [name for _, name in socket.if_nameindex() if name != "lo" and _flags(control, name) & _IFF_UP]
        if others:
            raise RefusedError(
                f"The process of the rehearsal has the network interface {others[0]}.",
                remedy="Report this as a bug of kafka-rollout. Nothing was started.",
            )
        flags = _flags(control, "lo") | _IFF_UP
        fcntl.ioctl(control, _SIOCSIFFLAGS, _name("lo") + struct.pack("h", flags) + bytes(22))


def _flags(control: socket.socket, name: str) -> int:
    answer = fcntl.ioctl(control, _SIOCGIFFLAGS, _name(name) + bytes(24))
    return int(struct.unpack_from("h", answer, 16)[0])


def _name(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")
