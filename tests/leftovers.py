"""Ends what an interrupted run of the tests has left running.

Every fixture ends what it started. But when the run itself is interrupted, pytest-xdist ends its workers before their
fixtures are torn down. What they started is known by the run's temporary folder: in its arguments, its environment or
as its working directory. A session that is older than the run belongs to another user, who reads the folder.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from kafka_rollout.base.system.sessions import wait_for_exit
from tools.demo.folder import session_members
from tools.testbed.bed import STATE, Bed
from tools.testbed.machine import TestbedError


def pytest_unconfigure(config: pytest.Config) -> None:
    factory = getattr(config, "_tmp_path_factory", None)
    if hasattr(config, "workerinput") or factory is None:
        return
    for state in _test_beds(factory.getbasetemp()):
        with suppress(TestbedError):  # a worker has just removed it
            Bed.read(state.parent).down()
    folder = f"{factory.getbasetemp()}{os.sep}"
    began = psutil.Process().create_time()
    left = session_members({leader for each in psutil.process_iter() for leader in _leader(each, folder, began)})
    for process in left:
        process.kill()
    wait_for_exit(left, 10.0)


def _test_beds(folder: Path) -> list[Path]:
    """State files of test beds, which are in folders of modules: below the run's, or below that of a worker."""
    return [*folder.glob(f"*/{STATE}"), *folder.glob(f"popen-*/*/{STATE}")]


def _leader(process: psutil.Process, folder: str, began: float) -> list[int]:
    try:
        told = [*process.cmdline(), *process.environ().values(), f"{process.cwd()}{os.sep}"]
        leader = psutil.Process(os.getsid(process.pid))
        ours = any(folder in one for one in told) and leader.create_time() > began
    except (psutil.Error, OSError):
        return []
    return [leader.pid] if ours else []
