"""Processes of our own that outlive the task that starts them; each has a folder, by which it is found again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from kafka_rollout.adapters.system.sessions import start_session


def spawn(module: str, folder: Path, *arguments: str, log_name: str) -> subprocess.Popen[bytes]:
    """`python -m module --folder F …` in a session of its own, its output appended to a file of the folder."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", module, "--folder", str(folder), *arguments]
    return start_session(command, folder / log_name, environment=environment)


def find_process(module: str, folder: Path) -> psutil.Process | None:
    """The running process of a folder, found by its command line."""
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if module in words and str(folder) in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            return process
    return None
