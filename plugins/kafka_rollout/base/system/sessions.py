"""Processes that lead their own session, and the end of processes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from kafka_rollout.base.system.files import open_below

_POLL_S = 0.02
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")


def child_environment() -> dict[str, str]:
    """Return the environment for Kafka's processes. The rest of ours can contain credentials, as Airflow's has."""
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}


def start_session(
    command: Sequence[str],
    output: Path,
    *,
    environment: Mapping[str, str],
    cwd: Path,
    stdin: bytes | None = None,
    within: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process that neither Ctrl-C at our terminal nor the end of our process group reaches; what it prints is
    appended to a file. Returns once its command line is there, by which others find it: Popen returns in the middle of
    the exec, and a process that is looked for just then seems to have ended.

    `stdin`: all of its standard input, such as credentials that no file and no argument may hold. `within`: a folder
    above the file, below which no link is followed; by default its own.
    """
    parts = output.relative_to(within or output.parent).parts
    descriptor = open_below(within or output.parent, *parts, flags=os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with os.fdopen(descriptor, "ab") as log:
        started = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=cwd,
            start_new_session=True,
        )
    if started.stdin is not None and stdin is not None:
        with suppress(BrokenPipeError), started.stdin:  # it ended already
            started.stdin.write(stdin)
    with suppress(psutil.Error):  # it has exited already
        process = psutil.Process(started.pid)
        while not process.cmdline():
            time.sleep(_POLL_S)
    return started


def wait_for_exit(processes: Collection[psutil.Process], within_s: float) -> list[psutil.Process]:
    """Wait until processes have exited; return those that still run after `within_s` seconds.

    Not psutil.wait_procs: it fails if another process has a thread with the id of one that exited (pidfd_open(2)).
    """
    ends = time.monotonic() + within_s
    while left := [process for process in processes if is_running(process)]:
        if time.monotonic() >= ends:
            break
        time.sleep(_POLL_S)
    return left


def is_running(process: psutil.Process) -> bool:
    """Return whether a process runs. A zombie without other threads does not: it has no open files and ports.

    A thread that is still in the kernel, for example writing to a slow disk, keeps files and ports open.
    """
    try:
        return process.is_running() and (process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1)
    except psutil.NoSuchProcess:
        return False
