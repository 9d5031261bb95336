"""Security settings for other processes: packed, in the memory of this process, and in files for Spark."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TextIO

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.files import read_regular
from kafka_rollout.client.security.client_security import PEM_FILES, ClientSecurity


@dataclass(frozen=True, slots=True)
class CarriedSecurity:
    """Settings of one user with the contents of their PEM files, for a process that cannot read the files of this one.

    Carry them encrypted, or by a pipe.
    """

    settings: str = field(repr=False)  # ClientSecurity.to_json
    files: tuple[tuple[str, bytes], ...] = field(repr=False)  # field of ClientSecurity, content

    @classmethod
    def pack(cls, security: ClientSecurity, *, only_memory: bool = False) -> CarriedSecurity:
        """Read the PEM files. `only_memory`: those that end with this process; the others are read at their paths.

        Raises UserError for a file that cannot be read.
        """
        paths = {name: path for name in PEM_FILES if (path := getattr(security, name))}
        if only_memory:
            paths = {name: path for name, path in paths.items() if is_in_memory(path)}
        return cls(security.to_json(), tuple((name, _read(path)) for name, path in paths.items()))

    def unpack(self) -> ClientSecurity:
        """Return the settings. The PEM files exist in the memory of this process only, until it ends."""
        paths = {name: file_in_memory(content) for name, content in self.files}
        return ClientSecurity.from_json(self.settings, "The security settings").model_copy(update=paths)

    def to_json(self) -> str:
        """With secrets, for the standard input of a process. Comments of a PEM file can have any encoding."""
        files = {name: data.decode(errors="surrogateescape") for name, data in self.files}
        return json.dumps({"settings": self.settings, "files": files})

    @classmethod
    def from_json(cls, text: str) -> CarriedSecurity:
        """Read `to_json`."""
        data = json.loads(text)
        return cls(
            data["settings"],
            tuple((name, content.encode(errors="surrogateescape")) for name, content in data["files"].items()),
        )


def _read(path: str) -> bytes:
    try:
        return read_regular(Path(path))
    except OSError as error:
        raise UserError(
            f"The TLS file {path} cannot be read: {error.strerror}.", remedy="Use a readable PEM file."
        ) from None


def is_in_memory(path: str) -> bool:
    """Return whether a path is that of a file from `file_in_memory`, which ends with its process."""
    return re.fullmatch(r"/proc/(self|\d+)/fd/\d+", path) is not None


@cache
def file_in_memory(content: bytes, process: str = "self") -> str:
    """Return the path of a file without a name (memfd_create(2)), because OpenSSL reads a key from a path only.

    It stays open until this process ends, because clients read it again with each connection. `process`: whose path is
    returned; child processes can read the path of a process id while that process runs.
    """
    descriptor = os.memfd_create("kafka-rollout")
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(content)
    return f"/proc/{process}/fd/{descriptor}"


@contextmanager
def credentials_file(home: Path, security: ClientSecurity | None) -> Iterator[Path | None]:
    """A file with mode 0600 below the private folder, removed at the end; None without credentials.

    This process locks it, and the kernel releases the lock when the process ends. So a file without a lock was left by
    a killed process, and the next process of this host removes it.
    """
    remove_stale_files(home)
    if security is None:
        yield None
        return
    folder = _folder(home)
    for each in (folder.parent, folder):
        each.mkdir(parents=True, exist_ok=True, mode=0o700)
        each.chmod(0o700)
    path = folder / f"{secrets.token_hex(8)}.json"
    with _locked(path) as file:
        try:
            file.write(security.to_json())
            file.flush()
            yield path
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[TextIO]:
    """A new file with its lock. Another process can remove it as stale before it is locked: then it is made again."""
    while True:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists():
                yield file
                return


def remove_stale_files(home: Path) -> None:
    """Remove the files of processes that were killed. A file of another user id stays."""
    with suppress(OSError):
        for path in _folder(home).glob("*.json"):
            with suppress(OSError), path.open("r+") as file:  # OSError: its owner runs, or has just removed it
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _folder(home: Path) -> Path:
    return home / "private" / "credentials"
