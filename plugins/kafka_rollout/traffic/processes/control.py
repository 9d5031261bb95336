"""Start, query and stop background processes through the database, from any machine and user id.

A process is stopped by a request in the database, not by a signal. A process on this host is dead when its process id
is gone; a process on another host counts as dead when it has not reported for LOST_AFTER_S.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

import psutil

from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.system.sessions import start_session
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.kafka.client.security.carried_security import CarriedSecurity
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.run.background import BackgroundKey, BackgroundProcess
from kafka_rollout.run.store.background import SqlBackground
from kafka_rollout.run.store.opening import database_of

MODULE = "kafka_rollout.traffic.processes.main"
LOG = "process.log"
HEARTBEAT_S = 2.0
LOST_AFTER_S = 60.0
_LATE_AFTER_S = 10.0  # a process of another host is alive if its last report is newer
_GONE_AFTER_S = 6.0  # without a process id on this host: two containers can have one host name
_POLL_S = 0.3

OnProgress = Callable[[str], None]


class Life(Enum):
    ALIVE = auto()
    UNSURE = auto()
    DEAD = auto()
    ENDED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One background process of one run. `on_progress` gets a sentence every `progress_every_s` of waiting.

    `bootstrap_servers`: of the inventory, not of the database, because the process sends its credentials there. "": the
    process reads the inventory itself.
    """

    key: BackgroundKey
    settings: Settings
    bootstrap_servers: str = ""
    on_progress: OnProgress = lambda _: None
    progress_every_s: float = 10.0

    @property
    def record(self) -> SqlBackground:
        return SqlBackground(database_of(self.settings))

    def find(self) -> tuple[BackgroundProcess | None, Life]:
        """The process, once it is certain whether it is alive."""
        return self._wait(lambda _, life: life is not Life.UNSURE, LOST_AFTER_S + _LATE_AFTER_S)

    def start(
        self,
        replaced: BackgroundProcess | None,
        *,
        folder: Path,
        settings: Mapping[str, Any],
        security: ClientSecurity | None,
        drain: bool = False,
    ) -> BackgroundProcess:
        """Start a process instead of `replaced`, or return the one that another worker started at the same time."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        instance = self.record.register(
            self.key,
            replaces=replaced.instance if replaced else "",
            host=host_name(),
            folder=str(folder),
            settings=settings,
            stop=drain,
        )
        if instance is not None:
            self._spawn(instance, folder, security or ClientSecurity(), *(["--drain"] if drain else []))
        if (started := self.record.read(self.key)) is None:
            raise FatalError("The record of a background process was removed.", remedy="Repeat the step.")
        return started

    def wait_for_end(self, within_s: float) -> BackgroundProcess | None:
        """The process, ended or dead. Raises FatalError if it is alive after `within_s`."""
        process, life = self._wait(lambda _, life: life in (Life.ENDED, Life.DEAD), within_s)
        if process is not None and life not in (Life.ENDED, Life.DEAD):
            raise FatalError(
                f"The {self.key.kind.label} (process {process.pid} on host {process.host}) was requested to stop and "
                f"did not end in {within_s:.0f} s.",
                remedy=f"Read {Path(process.folder) / LOG} on that host.",
            )
        return process

    def wait_until(self, ready: Callable[[BackgroundProcess], bool], within_s: float) -> BackgroundProcess | None:
        """The process as soon as it is ready; None if it ended, died, or `within_s` passed."""
        process, _ = self._wait(lambda found, life: ready(found) or life in (Life.ENDED, Life.DEAD), within_s)
        return process if process is not None and ready(process) else None

    def _wait(
        self, until: Callable[[BackgroundProcess, Life], bool], within_s: float
    ) -> tuple[BackgroundProcess | None, Life]:
        began = shown = time.monotonic()
        while True:
            process = self.record.read(self.key)
            if process is None:
                return None, Life.ENDED
            now, life = time.monotonic(), life_of(process)
            if until(process, life) or now - began > within_s:
                return process, life
            if now - shown > self.progress_every_s:
                shown = now
                self.on_progress(process.sentence)
            time.sleep(_POLL_S)

    def _spawn(self, instance: str, folder: Path, security: ClientSecurity, *arguments: str) -> None:
        """Credentials go through the standard input, so no file has to be removed.

        The process can live longer than this one, so it gets the keys that are only in the memory of this one.
        """
        key = self.key
        words = ["--cluster", key.cluster, "--run", key.run_id, "--kind", key.kind, "--instance", instance, *arguments]
        words += ["--bootstrap-servers", self.bootstrap_servers]
        password_file = self.settings.database_password_file
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "KAFKA_ROLLOUT_HOME": str(self.settings.home),
            "KAFKA_ROLLOUT_CLUSTERS": str(self.settings.clusters),
            "KAFKA_ROLLOUT_DATABASE": self.settings.database_url,
            **({"KAFKA_ROLLOUT_DATABASE_PASSWORD_FILE": str(password_file)} if password_file else {}),
        }
        start_session(
            [sys.executable, "-m", MODULE, *words],
            folder / LOG,
            environment=environment,
            stdin=CarriedSecurity.pack(security, only_memory=True).to_json().encode(),
        )


def host_name() -> str:
    return socket.gethostname()


def is_reachable(process: BackgroundProcess) -> bool:
    """Whether this worker can read and continue the process's journals, on its host or in a shared folder."""
    mode = os.R_OK | os.W_OK | os.X_OK
    return os.access(process.folder, mode, effective_ids=True) and (Path(process.folder) / LOG).exists()


def life_of(process: BackgroundProcess) -> Life:
    if process.has_ended:
        return Life.ENDED
    if process.host == host_name() and process.pid:
        if _has_process(process):
            return Life.ALIVE
        return Life.DEAD if process.age_s > _GONE_AFTER_S else Life.UNSURE
    if process.age_s > LOST_AFTER_S:
        return Life.DEAD
    return Life.ALIVE if process.age_s < _LATE_AFTER_S else Life.UNSURE


def _has_process(process: BackgroundProcess) -> bool:
    try:
        found = psutil.Process(process.pid)
        return process.instance in found.cmdline() and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def last_line(process: BackgroundProcess) -> str:
    """The last line that the process logged, if this worker can read it."""
    try:
        lines = (Path(process.folder) / LOG).read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
