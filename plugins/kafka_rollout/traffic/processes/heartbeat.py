"""The part of a background process that talks to the database: reports, and reads whether to stop."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Any

import psutil

from kafka_rollout.base.errors import RolloutError, TransientError
from kafka_rollout.run.background import BackgroundProcess, BackgroundState
from kafka_rollout.run.ports import ChangeLock
from kafka_rollout.run.store.background import SqlBackground
from kafka_rollout.traffic.processes.control import HEARTBEAT_S

log = logging.getLogger(__name__)

ALONE_S = 900.0  # without the database, or without the lock of its run
_LOCK_EVERY_S = 10.0


class Heartbeat:
    """Reports every two seconds, in a thread. Sets `stop` when the process has no reason to run any more:

    a worker requested it, another process replaced it, its run has not held the cluster's lock for `unlocked_s`, the
    process `only_with` of this host is gone, or the database did not answer for 15 minutes.
    """

    def __init__(
        self,
        record: SqlBackground,
        lock: ChangeLock,
        process: BackgroundProcess,
        stop: Event,
        *,
        unlocked_s: float = ALONE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = BackgroundState.RUNNING
        self.status: Callable[[], Mapping[str, Any]] = dict
        self.is_replaced = False
        self._record = record
        self._lock = lock
        self._process = process
        self._stop = stop
        self._ended = Event()
        self._unlocked_s = unlocked_s
        self._clock = clock
        self._answered_at = self._locked_at = clock()
        self._lock_read_at = 0.0
        self._only_with: psutil.Process | None = None
        if (pid := process.settings.get("only_with")) is not None:
            try:
                self._only_with = psutil.Process(pid)
            except psutil.NoSuchProcess:
                self._end("The process that began the run is gone.")
        self._thread = Thread(target=self._repeat, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def beat(self, result: Mapping[str, Any] | None = None) -> None:
        """One report; sets `stop` if there is a reason."""
        now = self._clock()
        try:
            row = self._record.report(self._process, self.state, pid=os.getpid(), status=self.status(), result=result)
            self._answered_at = now
            self.is_replaced = row is None
            if row is None or row.stop_requested:
                self._end("Another process replaced this one." if row is None else "The stop was requested.")
            elif self._process.settings.get("leased") and now - self._lock_read_at >= _LOCK_EVERY_S:
                self._lock_read_at = now
                holder = self._lock.holder(self._process.key.cluster)
                if holder is not None and holder.holder == self._process.key.run_id:
                    self._locked_at = now
                elif now - self._locked_at > self._unlocked_s:
                    self._end("The run does not hold the lock.")
        except RolloutError as error:
            log.warning("%s", error)
            if now - self._answered_at > ALONE_S:
                self._end("The database did not answer for 15 minutes.")
        if self._only_with is not None and not self._only_with.is_running():
            self._end("The process that began the run is gone.")

    def finish(self, state: BackgroundState, *, result: Mapping[str, Any] | None = None, error: str = "") -> None:
        """The last report. It is repeated for 15 minutes if the database does not answer."""
        self._ended.set()
        self._thread.join()
        status = {**self.status(), **({"error": error} if error else {})}
        deadline = self._clock() + ALONE_S
        while True:
            try:
                self._record.report(self._process, state, pid=os.getpid(), status=status, result=result)
                return
            except TransientError as problem:
                log.warning("%s", problem)
                if self._clock() > deadline:
                    raise
                time.sleep(HEARTBEAT_S)

    def _repeat(self) -> None:
        self.beat()
        while not self._ended.wait(HEARTBEAT_S):
            self.beat()

    def _end(self, why: str) -> None:
        if not self._stop.is_set():
            log.info("%s", why)
            self._stop.set()
