"""Folders that this project made: the only ones that it removes with what is below them.

A marker in the folder, written when it was made, proves it: it has the inode of the folder, which a copy does not have,
and a random text that the processes of the folder carry. The process that uses the folder holds a lock of the marker
(flock(2)), which the kernel releases when it ends. So a folder without its lock is a leftover, whatever process ids
this process can see: the owner can be in another process namespace.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.base.system.files import open_regular

MARKER = ".made-by-kafka-rollout"
_DRAWN = re.compile(r".+-[0-9a-f]{8}")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID = Path("/etc/machine-id")


@dataclass(frozen=True, slots=True)
class OwnFolder:
    """A folder with its proof."""

    path: Path
    token: str
    """Random: what has it belongs to this folder."""
    boot_id: str
    machine_id: str

    @property
    def is_of_this_machine(self) -> bool:
        """Return whether it was made under this kernel, or before a restart of this machine.

        Another machine can share the file system, and not each network file system shares locks.
        """
        return self.boot_id == _text(_BOOT_ID) or bool(self.machine_id and self.machine_id == _text(_MACHINE_ID))


@contextmanager
def new_own_folder(path: Path) -> Iterator[OwnFolder]:
    """Make a folder, mode 0700, whose parent exists, and hold its lock. Raises OSError as mkdir and open do."""
    path.mkdir(mode=0o700)
    made = OwnFolder(path, secrets.token_hex(16), _text(_BOOT_ID), _text(_MACHINE_ID))
    data = {
        "inode": path.stat().st_ino,
        "token": made.token,
        "boot_id": made.boot_id,
        "machine_id": made.machine_id,
    }
    descriptor = os.open(path / MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        with suppress(OSError):  # without locks, no other process takes the folder for a leftover either
            fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(data, file)  # until then it is no proof
        file.flush()
        yield made


def read_own_folder(path: Path) -> OwnFolder:
    """Return the proof that this project made a folder. Raises RefusedError without one: it must not be removed."""
    try:
        status, marker = path.lstat(), (path / MARKER).lstat()
    except OSError:
        raise _kept(path, "has no marker of kafka-rollout") from None
    if not stat.S_ISDIR(status.st_mode) or {status.st_uid, marker.st_uid} != {os.geteuid()}:
        raise _kept(path, "is a link or belongs to another user")
    try:
        with os.fdopen(open_regular(path / MARKER, follow_links=False), "rb") as file:
            data = parse_json(file.read())
        found = OwnFolder(path, str(data["token"]), str(data["boot_id"]), str(data["machine_id"]))
        inode = data["inode"]
    except (OSError, ValueError, KeyError, TypeError):
        raise _kept(path, "has a damaged marker of kafka-rollout") from None
    if inode != status.st_ino:
        raise _kept(path, "was not made at this place: it is a copy, or its file system gave it another inode")
    return found


@contextmanager
def taking(folder: OwnFolder) -> Iterator[bool]:
    """Hold the lock of a leftover. Yields whether this process has it: False while another one uses the folder.

    Raises RefusedError on a file system that cannot show it.
    """
    try:
        descriptor = os.open(folder.path / MARKER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # it was just removed
        yield False
        return
    with os.fdopen(descriptor, "rb"):
        yield _lock(descriptor, folder.path)


def _lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _kept(path, f"can be in use: its file system does not show it ({error.strerror})") from None
    return True


def remove_own_folder(path: Path) -> None:
    """Remove a folder that this project made, with everything below it.

    The marker is removed last, so that an interrupted call can be repeated. Files that appear meanwhile stay, with
    their folder. Raises RefusedError, and removes nothing, for a folder that this project did not make.
    """
    read_own_folder(path)
    for entry in os.scandir(path):
        if entry.name == MARKER:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            Path(entry.path).unlink(missing_ok=True)
    if [entry.name for entry in os.scandir(path)] == [MARKER]:
        (path / MARKER).unlink()
        path.rmdir()


def remove_drawn_folder(path: Path) -> None:
    """Remove a folder of documents with everything in it, if it exists; errors as `refuse_undrawn`."""
    refuse_undrawn(str(path))
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)


def refuse_undrawn(path: str) -> None:
    """Raise RefusedError unless the last name of a path ends with the 8 random digits of a folder of documents.

    A shared store of documents has no inodes, so the name that this project drew and recorded is the proof.
    """
    if not _DRAWN.fullmatch(path.rstrip("/").rpartition("/")[2]):
        raise RefusedError(f"{path} has no name of a folder of kafka-rollout.", remedy="It was not removed.")


def refuse_named(path: Path, keep: Iterable[Path]) -> None:
    """Raise RefusedError for a folder to remove that is, contains, or is in one of these paths."""
    real = path.resolve()
    for other in (one.resolve() for one in keep):
        if real.is_relative_to(other) or other.is_relative_to(real):
            raise _kept(path, f"was named by this command, or contains or is in {other}, which was")


def remove_files_of(folder: int) -> None:
    """Remove the files of an open folder, which must have no folder in it. Raises OSError for one."""
    for name in os.listdir(folder):
        os.unlink(name, dir_fd=folder)


def _kept(path: Path, why: str) -> RefusedError:
    return RefusedError(f"{path} {why}.", remedy="It was not removed. Remove it yourself if nothing uses it.")


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
