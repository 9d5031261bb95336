"""Processes in sessions of their own, without a broker."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from kafka_rollout.adapters import detached
from kafka_rollout.adapters.process_sessions import session_members, start_session


def test_a_process_is_found_as_soon_as_it_is_started(tmp_path: Path) -> None:
    """Popen returns before the kernel shows the command line: one look in ten came too early."""
    command = ["/bin/sleep", "60"]
    for _ in range(100):
        with start_session(command, tmp_path / "log", environment={}) as started:
            try:
                assert psutil.Process(started.pid).cmdline() == command
            finally:
                started.kill()


def test_a_detached_process_is_found_by_its_folder_at_once_and_leads_its_own_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sleeper.py").write_text("import time; time.sleep(60)")
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(20):
        with detached.spawn("sleeper", tmp_path, log_name="log") as started:
            try:
                found = detached.find_process("sleeper", tmp_path)
                assert found is not None
                assert found.pid == started.pid
                assert [member.pid for member in session_members({started.pid})] == [started.pid]
            finally:
                started.kill()
