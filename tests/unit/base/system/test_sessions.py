"""Processes in sessions of their own, and when one is gone, without a broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kafka_rollout.base.system.sessions import start_session
from kafka_rollout.nodes.runtimes import local_process
from tests.waiting import wait_until
from tools.demo.folder import session_members


def test_a_process_is_found_as_soon_as_it_is_started(tmp_path: Path) -> None:
    """Popen returns before the kernel shows the command line: one look in ten came too early."""
    command = ["/bin/sleep", "60"]
    for _ in range(100):
        with start_session(command, tmp_path / "log", environment={}, cwd=tmp_path) as started:
            try:
                assert psutil.Process(started.pid).cmdline() == command
            finally:
                started.kill()


def test_a_process_reads_what_no_argument_may_hold_from_its_standard_input(tmp_path: Path) -> None:
    with start_session(["/bin/cat"], tmp_path / "log", environment={}, cwd=tmp_path, stdin=b"secret") as started:
        assert started.wait(60) == 0
    assert (tmp_path / "log").read_bytes() == b"secret"


def test_a_started_process_leads_its_own_session(tmp_path: Path) -> None:
    with start_session(["/bin/sleep", "60"], tmp_path / "log", environment={}, cwd=tmp_path) as started:
        try:
            assert [member.pid for member in session_members({started.pid})] == [started.pid]
        finally:
            started.kill()


# Its first thread ends and another one stays, as when a killed process still waits for its disk.
_HALF_ENDED = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("ready", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="its system calls are Linux's")
def test_a_process_is_gone_when_its_last_thread_is() -> None:
    with subprocess.Popen([sys.executable, "-c", _HALF_ENDED], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"ready\n"
        process = psutil.Process(started.pid)
        try:
            wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, 60)
            assert not local_process._wait_for_exit(process, 0.0)
        finally:
            started.kill()
        assert local_process._wait_for_exit(process, 60.0)
