"""Processes in sessions of their own, and when one is gone, without a broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import psutil
import pytest

from kafka_rollout.base.system.sessions import start_session, wait_for_exit
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
            assert wait_for_exit([process], 0.0) == [process]
        finally:
            started.kill()
        assert wait_for_exit([process], 60.0) == []


def test_a_process_whose_id_a_thread_has_now_is_gone() -> None:
    """With 32,768 ids and a few hundred threads of Java, an id is soon used again."""
    ended = Event()
    thread = Thread(target=ended.wait)
    with subprocess.Popen(["/bin/sleep", "60"]) as started:
        process = psutil.Process(started.pid)
        started.kill()
    thread.start()
    try:
        process._pid = process._proc.pid = thread.native_id  # type: ignore[attr-defined]
        with pytest.raises(FileNotFoundError):
            psutil.Process.wait(process, 60.0)  # so psutil's own functions are not used
        assert wait_for_exit([process], 60.0) == []
    finally:
        ended.set()
        thread.join()
