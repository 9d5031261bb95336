"""Faults of networks and disks for local nodes, without an effect on the machine. Needs root.

The campaign moves itself into a network and a mount namespace of its own. Each node runs as a user of its own, so that
a routing rule can discard what one node sends to a port. The data of each node is on a small file system of its own.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Lock

_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000
_FIRST_USER = 64_300
_LOCAL_LAST = 10_000  # the rule for local addresses is first otherwise
_DATA_MB = 300
_RIGHTS = "+dac_override,+dac_read_search,+fowner,+chown"
_prefs, _guard = count(1), Lock()


def missing_for_isolation() -> str:
    """Why the namespaces cannot be used here; empty if they can."""
    if os.geteuid() != 0:
        return "network and disk faults of local nodes need root"
    lacking = [name for name in ("ip", "mount", "umount", "setpriv") if shutil.which(name) is None]
    return f"network and disk faults of local nodes need {', '.join(lacking)}" if lacking else ""


def enter() -> None:
    """Move this process, before it has threads, into its own network and mount namespaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS | _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    _run("mount", "--make-rprivate", "/")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "rule", "add", "pref", str(_LOCAL_LAST), "lookup", "local")
    _run("ip", "rule", "del", "pref", "0")


def user_of(number: int) -> int:
    """The user of the node with this position in the cluster."""
    return _FIRST_USER + number


def write_java(folder: Path, java: Path, homes: Iterable[Path]) -> Path:
    """Write a Java home that starts each node as its own user; return the home."""
    cases = ""
    for number, home in enumerate(homes):
        user = f"--reuid={user_of(number)} --securebits=+no_setuid_fixup --inh-caps={_RIGHTS} --ambient-caps={_RIGHTS}"
        cases += f'*" {home}/server.properties") exec setpriv {user} {java} "$@" ;;\n'
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True, exist_ok=True)
    binary.write_text(f'#!/bin/sh\ncase "$*" in\n*StorageTool*) ;;\n{cases}esac\nexec {java} "$@"\n')
    binary.chmod(0o755)
    return folder


def mount_data(folder: Path) -> None:
    """Move the files of a stopped node to a small file system of its own."""
    draft = folder.with_name(f"{folder.name}.moved")
    folder.rename(draft)
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={_DATA_MB}m,mode=0755", "tmpfs", str(folder))
    shutil.copytree(draft, folder, dirs_exist_ok=True)
    shutil.rmtree(draft)


def unmount_data(folder: Path) -> None:
    if os.path.ismount(folder):
        _run("umount", "--lazy", str(folder))


def fill(folder: Path) -> Path:
    """Write zeros until the file system is full; return the file."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError:
            pass
    return filler


@contextmanager
def discarding(cuts: Iterable[tuple[int, str]]) -> Iterator[None]:
    """Discard what users send to TCP ports. `cuts`: user and port."""
    rules = []
    try:
        for user, port in cuts:
            with _guard:
                pref = str(next(_prefs))
            what = ("uidrange", f"{user}-{user}", "ipproto", "tcp", "dport", port, "blackhole")
            _run("ip", "rule", "add", "pref", pref, *what)
            rules.append(pref)
        yield
    finally:
        for pref in rules:
            _run("ip", "rule", "del", "pref", pref)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)
