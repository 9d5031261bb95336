"""Searches for planted secrets: in files, and in the command lines of processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil


def middle_of(key: str) -> str:
    """A line from the middle of a private key: the first lines of all keys can be equal."""
    lines = key.splitlines()
    return lines[len(lines) // 2]


def files_with(secrets: Collection[str | bytes], folder: Path, *, kinds: Collection[str] = ()) -> list[str]:
    """The files below a folder that contain one of the secrets. `kinds`: suffixes that the folder must have."""
    wanted = [secret.encode() if isinstance(secret, str) else secret for secret in secrets]
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    for kind in kinds:
        assert any(path.suffix == kind for path in files), f"the search found no {kind} file"
    return [str(path) for path in files if any(secret in path.read_bytes() for secret in wanted)]


@contextmanager
def watched_processes(
    secrets: Collection[str], *, every_s: float = 0.3, attributes: Sequence[str] = ("cmdline",)
) -> Iterator[set[str]]:
    """Collect the command lines, of all processes of this machine, that contain one of the secrets.

    `attributes`: of psutil; "environ" adds the environment variables.
    """
    found: set[str] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(every_s):
            for process in psutil.process_iter([*attributes]):
                line = " ".join(str(process.info[name] or "") for name in attributes)
                if process.pid != os.getpid() and any(secret in line for secret in secrets):
                    found.add(line)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
