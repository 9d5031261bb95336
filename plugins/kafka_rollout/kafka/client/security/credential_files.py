"""Files with credentials for Spark, which reads them in its own processes.

A file is locked by the process that wrote it, and the kernel releases the lock when that process ends. So a file
without a lock was left by a killed process, and the next process of this host removes it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from kafka_rollout.kafka.client.security.client_security import ClientSecurity


@contextmanager
def credentials_file(home: Path, security: ClientSecurity | None) -> Iterator[Path | None]:
    """A file with mode 0600 below the private folder, removed at the end; None without credentials."""
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
