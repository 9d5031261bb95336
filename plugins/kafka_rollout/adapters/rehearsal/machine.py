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


def raise_loopback() -> None:
    """Bring the loopback interface of a new network namespace up. Raises OSError without the right."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        name = b"lo".ljust(16, b"\0")
        answer = fcntl.ioctl(control, _SIOCGIFFLAGS, name + bytes(24))
        (flags,) = struct.unpack_from("h", answer, 16)
        fcntl.ioctl(control, _SIOCSIFFLAGS, name + struct.pack("h", flags | _IFF_UP) + bytes(22))
