"""Stops the processes that demos of this checkout started, and no others."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

import psutil

from kafka_rollout.adapters.system.sessions import session_members
from kafka_rollout.demo.folder import DEMOS, MARK, DemoFolder
from kafka_rollout.demo.local_cluster import stop_nodes

_DRIVER_S = 60.0
_AIRFLOW_S = 20.0
_KILL_S = 5.0


def demo_clean(below: Path = DEMOS) -> int:
    """Stop the demos whose folders are in a folder; return the number of stopped processes."""
    ended = 0
    for path in sorted(below.glob("*")) if below.is_dir() else ():
        driver = DemoFolder(path).driver()
        if driver is not None and driver.pid != psutil.Process().pid:
            ended += 1
            _end(driver, signal.SIGTERM, _DRIVER_S)  # the driver stops its own demo
        ended += end_demo(path)
    return ended


def end_demo(path: Path, *, deadline_s: float = 20.0) -> int:
    """Stop Airflow and its processes, then the brokers, then the controllers of one demo; return their number."""
    own = _processes(path)
    for process in own:
        with suppress(psutil.Error):
            if "standalone" in process.cmdline():
                _end(process, signal.SIGINT, _AIRFLOW_S)  # SIGTERM leaves its children behind
    left = [process for process in {*own, *_processes(path)} if _is_alive(process)]
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=_KILL_S)
    return len(own) + stop_nodes(path, deadline_s=deadline_s)


def _processes(path: Path) -> list[psutil.Process]:
    """Return the processes that were started with the demo's mark in their environment, and their sessions."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == str(path.resolve()) and process.pid != psutil.Process().pid:
                found.append(process)
    return list({*found, *session_members({process.pid for process in found})})


def _end(process: psutil.Process, number: signal.Signals, within_s: float) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
        _, alive = psutil.wait_procs([process], timeout=within_s)
        for left in alive:
            left.kill()
        psutil.wait_procs(alive, timeout=_KILL_S)


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
