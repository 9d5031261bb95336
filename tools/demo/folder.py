"""The folder of a demo in this checkout, and the end of the processes that the demo started, and of no others."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from kafka_rollout.base.system.sessions import is_running, wait_for_exit
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.rehearsal.machine.sandbox import rehearsal_folder, remove_leftovers
from tools.demo.local_cluster import stop_nodes

PROJECT_ROOT = Path(__file__).resolve().parents[2]


# In the environment of Airflow and of all processes that it starts, so that `kafka-rollout clean` finds them.
MARK = "KAFKA_ROLLOUT_DEMO"
DEMOS = PROJECT_ROOT / ".demo"


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Paths of a demo."""

    path: Path

    @classmethod
    def create(cls, below: Path = DEMOS) -> DemoFolder:
        """Create a folder named by time and process id; driver.json identifies this process as the driver."""
        path = below.resolve() / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        path.mkdir(parents=True)
        me = psutil.Process()
        (path / "driver.json").write_text(json.dumps({"pid": me.pid, "started_at": me.create_time()}))
        return cls(path)

    @property
    def airflow_home(self) -> Path:
        return self.path / "airflow"

    @property
    def settings(self) -> Settings:
        """Return the demo's own inventory and home, with the machine's cache of releases."""
        machine = Settings.from_environment()
        return Settings(
            clusters=self.path / "clusters",
            home=self.path / "home",
            cache=machine.cache,
            include=machine.include,
            catalogue=machine.added_releases,
        )

    def environment(self) -> dict[str, str]:
        """Return the variables by which Airflow's processes find this demo's cluster."""
        settings = self.settings
        return {
            MARK: str(self.path),
            "KAFKA_ROLLOUT_CLUSTERS": str(settings.clusters),
            "KAFKA_ROLLOUT_HOME": str(settings.home),
            "KAFKA_ROLLOUT_CACHE": str(settings.cache),
            "KAFKA_ROLLOUT_INCLUDE": str(settings.include),
            "KAFKA_ROLLOUT_CATALOGUE": str(settings.added_releases),
        }

    def driver(self) -> psutil.Process | None:
        """Return the process that drives this demo, if it runs; identified by process id and start time."""
        try:
            noted = json.loads((self.path / "driver.json").read_text())
            process = psutil.Process(noted["pid"])
            return process if process.create_time() == noted["started_at"] else None
        except (OSError, ValueError, KeyError, psutil.Error):
            return None


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
    """Stop Airflow and its processes, then the brokers, then the controllers of one demo; return their number.

    A rehearsal whose processes were killed leaves its copy of the cluster, which is removed.
    """
    own = _processes(path)
    for process in own:
        with suppress(psutil.Error):
            if "standalone" in process.cmdline():
                _end(process, signal.SIGINT, _AIRFLOW_S)  # SIGTERM leaves its children behind
    left = [process for process in {*own, *_processes(path)} if is_running(process)]
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    wait_for_exit(left, _KILL_S)
    remove_leftovers(rehearsal_folder(DemoFolder(path).settings))
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
        alive = wait_for_exit([process], within_s)
        for left in alive:
            left.kill()
        wait_for_exit(alive, _KILL_S)


def session_members(leaders: Collection[int]) -> list[psutil.Process]:
    """Return the processes of the sessions with these leaders.

    Airflow's processes overwrite their titles, so arguments and environment do not show to whom they belong.
    """
    members = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) in leaders:
                members.append(process)
        except (ProcessLookupError, PermissionError):
            continue
    return members
