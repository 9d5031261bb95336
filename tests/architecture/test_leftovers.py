"""A run of the tests that is interrupted leaves nothing running."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

_STARTS_TWO = """
import subprocess, time
from pathlib import Path

def test_it(tmp_path):
    below = subprocess.Popen(["sleep", "600"], cwd=tmp_path, start_new_session=True)
    told = subprocess.Popen(["sleep", "600"], env={{"HOME": str(tmp_path)}}, start_new_session=True)
    draft = Path({pid_file!r}).with_suffix(".draft")
    draft.write_text(f"{{below.pid}} {{told.pid}}")
    draft.rename({pid_file!r})
    time.sleep(600)
"""


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_the_tests_started_ends_with_an_interrupted_run(tmp_path: Path) -> None:
    pid_file, test = tmp_path / "pid", tmp_path / "test_it.py"
    test.write_text(_STARTS_TWO.format(pid_file=str(pid_file)))
    run = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "1",
            "-p",
            "tests.leftovers",
            "--rootdir",
            str(tmp_path),
            str(test),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    wait_until(pid_file.exists)
    started = [psutil.Process(int(pid)) for pid in pid_file.read_text().split()]
    run.send_signal(signal.SIGINT)
    run.wait(120)
    wait_until(lambda: not any(map(runs, started)))  # a worker may outlive the run that it ends them for
