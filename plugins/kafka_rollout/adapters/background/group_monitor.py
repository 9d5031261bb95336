"""Watching a cluster's groups as a process of its own: it looks through every stop of a roll.

    python -m kafka_rollout.processes.group_monitor --folder F

The folder holds `settings.json` (cluster, run, where credentials are) and `watch.json`, written anew all the time. It
reads only. SIGTERM ends it; it also ends by itself when its run no longer holds the cluster's lock, and when the shell
that started it is gone.
"""

from __future__ import annotations

import json
import logging
import signal
import time
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import psutil

from kafka_rollout.adapters.background.detached import find_process, spawn
from kafka_rollout.adapters.inventory import find_cluster
from kafka_rollout.adapters.kafka.groups import groups_of_broker
from kafka_rollout.adapters.kafka.requests import ClusterConnections
from kafka_rollout.adapters.kafka.security import ClientSecurity
from kafka_rollout.adapters.store.database import open_database
from kafka_rollout.adapters.store.leases import SqlChangeLock
from kafka_rollout.adapters.system.files import write_whole
from kafka_rollout.domain.groups.described import DescribedGroup
from kafka_rollout.domain.groups.monitor import MonitoredGroups
from kafka_rollout.domain.model.errors import RolloutError, TransientError
from kafka_rollout.settings import Settings

log = logging.getLogger(__name__)

MODULE = "kafka_rollout.processes.group_monitor"
WATCH_FILE = "watch.json"
FOLDER = "group-monitor"  # not "groups": the run's document groups/watch.json may be in the same folder
_EVERY_S = 1.0
_SHARE = 0.2  # of the time that may go into looking: a cluster of many groups is looked at more seldom
_TIMEOUT_S = 3.0
_WRITE_EVERY_S = 5.0
_UNLOCKED_S = 120.0  # within this time after its start the run takes the lock
_END_S = 20.0


def start_group_watch(
    folder: Path, *, cluster: str, run_id: str, security_file: Path | None = None, only_with: int | None = None
) -> int:
    """Start the watcher of a run, detached, unless it is running; returns its pid. `only_with`: the process that it
    shall not outlive, where the run is one; a watcher that is there already is then one of an earlier process."""
    running = find_process(MODULE, folder)
    if running is not None and only_with is None:
        return running.pid
    stop_group_watch(folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = {
        "cluster": cluster,
        "run_id": run_id,
        "security_file": str(security_file) if security_file else None,
        "only_with": only_with,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    if (folder / WATCH_FILE).exists():  # of a run that goes on after it had stopped
        (folder / WATCH_FILE).rename(folder / f"watch-until-{int(time.time())}.json")
    return spawn(MODULE, folder, log_name="watch.log").pid


def stop_group_watch(folder: Path) -> None:
    """End the watcher, if it runs; what it saw is in its folder."""
    process = find_process(MODULE, folder)
    if process is None:
        return
    with suppress(psutil.NoSuchProcess):  # it has just ended by itself
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_S)
        except psutil.TimeoutExpired:
            process.kill()


def read_watch(folder: Path) -> dict[str, Any] | None:
    """What the watcher of a folder has seen; None where there was none."""
    try:
        seen: dict[str, Any] = json.loads((folder / WATCH_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return seen


class GroupWatcher:
    def __init__(self, folder: Path, settings: Settings) -> None:
        told = json.loads((folder / "settings.json").read_text())
        security = ClientSecurity.from_file(Path(told["security_file"])) if told["security_file"] else ClientSecurity()
        self._file = folder / WATCH_FILE
        self._cluster: str = told["cluster"]
        self._run_id: str = told["run_id"]
        self._with = _process(told["only_with"])
        self._nodes = ClusterConnections(find_cluster(settings.clusters, self._cluster), security, timeout_s=_TIMEOUT_S)
        self._lock = SqlChangeLock(open_database(settings.database_url, password_file=settings.database_password_file))
        self._watch = MonitoredGroups()
        self._silent: set[int] = set()  # brokers that did not answer the last look

    def run(self, stop: Event) -> None:
        written, lock_until = 0.0, time.monotonic() + _UNLOCKED_S
        pause_s = 0.0
        while not stop.wait(pause_s):
            began = time.monotonic()
            self._watch.add(self._look(), began)
            if began - written > _WRITE_EVERY_S:
                self._write()
                written = began
                if self._holds_lock():
                    lock_until = began
                elif began > lock_until:
                    log.info("The run does not hold the lock.")
                    break
            if self._with is not None and not self._with.is_running():
                log.info("The process that began the run is gone.")
                break
            took = time.monotonic() - began
            pause_s = max(_EVERY_S - took, took * (1 / _SHARE - 1), 0.0)
        self._write()
        self._nodes.close()

    def _look(self) -> list[DescribedGroup]:
        """Groups whose coordinator does not answer are left out: it is being replaced."""
        seen: list[DescribedGroup] = []
        for broker in self._nodes.brokers:
            try:
                seen += groups_of_broker(self._nodes, broker)
                self._silent.discard(broker.node_id)
            except RolloutError as error:
                if broker.node_id not in self._silent:
                    log.info("%s", error)
                self._silent.add(broker.node_id)
        return seen

    def _holds_lock(self) -> bool:
        try:
            holder = self._lock.holder(self._cluster)
        except TransientError as error:  # for as long as a run may be without the lock
            log.info("%s", error)
            return False
        return holder is not None and holder.holder == self._run_id

    def _write(self) -> None:
        write_whole(self._file, json.dumps(self._watch.to_dict()).encode())


def _process(pid: int | None) -> psutil.Process | None:
    """Raises TransientError where it is gone already."""
    try:
        return None if pid is None else psutil.Process(pid)
    except psutil.NoSuchProcess:
        raise TransientError("The process that began the run is gone.", remedy="Go on with the run.") from None
