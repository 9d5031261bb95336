"""Background processes of a run, the test traffic and the group monitor: start, query and stop them from any worker.

This goes through the database, from any machine and user id. A process is stopped by a request, not by a signal. A
process on this host is dead when its process id is gone; a process on another host counts as dead when it has not
reported for LOST_AFTER_S. Imports Kafka clients: DAG files and commands import this module inside the function that
needs it.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil

from kafka_rollout.base.errors import FatalError, RolloutError, TransientError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.base.system.files import safe_name
from kafka_rollout.base.system.python import module_path, python_process
from kafka_rollout.base.system.sessions import start_session
from kafka_rollout.base.system.settings import Settings, read_variables
from kafka_rollout.client.rights import refuse_without_traffic_rights
from kafka_rollout.client.security.carried_security import CarriedSecurity
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.run.background import (
    BackgroundKey,
    BackgroundKind,
    BackgroundProcess,
    BackgroundState,
    series_of,
)
from kafka_rollout.run.ports import ChangeLock
from kafka_rollout.run.store.background import SqlBackground
from kafka_rollout.run.store.opening import database_of, open_run
from kafka_rollout.run.traffic import TrafficSeries, TrafficVerdict
from kafka_rollout.traffic.traffic_check import not_compared, with_earlier

log = logging.getLogger(__name__)

MODULE = "kafka_rollout.traffic.processes.main"
LOG = "process.log"
SO_FAR = "so_far"  # in the status: the newest check of a running process
HEARTBEAT_S = 2.0
LOST_AFTER_S = 60.0
_LATE_AFTER_S = 10.0  # a process of another host is alive if its last report is newer
_GONE_AFTER_S = 6.0  # without a process id on this host: two containers can have one host name
_POLL_S = 0.3
ALONE_S = 900.0  # without the database, or without the lock of its run
_LOCK_EVERY_S = 10.0
UNLOCKED_S = 120.0  # a run acquires the lock within this time after the monitor starts
_FIRST_RECORD_S = 120.0
_TRAFFIC_END_S = 180.0  # without progress; the consumers get 90 s for the rest of the logs
_MONITOR_END_S = 20.0
CHECK_S = 240.0


class Life(Enum):
    ALIVE = auto()
    UNSURE = auto()
    DEAD = auto()
    ENDED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundControl:
    """One background process of one run. `on_progress` gets a sentence every `progress_every_s` of waiting."""

    key: BackgroundKey
    settings: Settings
    bootstrap_servers: str = ""
    """Of the inventory, not of the database, because the process sends its credentials there. "": the process reads the
    inventory itself."""
    on_progress: Callable[[str], None] = lambda _: None
    progress_every_s: float = 10.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

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
        """The process, ended or dead. Raises FatalError if it is alive after `within_s`, in which it did not get on
        with its comparison either."""
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
        began = shown = self.clock()
        compared: Mapping[str, Any] = {}
        while True:
            process = self.record.read(self.key)
            if process is None:
                return None, Life.ENDED
            now, life = self.clock(), life_of(process)
            if process.state is BackgroundState.COMPARING and process.status != compared:  # it gets on
                began, compared = now, process.status
            if until(process, life) or now - began > within_s:
                return process, life
            if now - shown > self.progress_every_s:
                shown = now
                self.on_progress(process.sentence)
            self.sleep(_POLL_S)

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
            **read_variables(),
            **module_path(),
            "KAFKA_ROLLOUT_HOME": str(self.settings.home),
            "KAFKA_ROLLOUT_CLUSTERS": str(self.settings.clusters),
            "KAFKA_ROLLOUT_DATABASE": self.settings.database_url,
            **({"KAFKA_ROLLOUT_DATABASE_PASSWORD_FILE": str(password_file)} if password_file else {}),
        }
        child = python_process(["-m", MODULE, *words], environment)
        start_session(
            child.command,
            folder / LOG,
            environment=child.environment,
            cwd=child.folder,
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


def _kill(process: BackgroundProcess) -> None:
    """Kill the process, but none that has got its id since: the host's name can also be that of another container."""
    found = psutil.Process(process.pid)
    if process.instance in found.cmdline():
        found.kill()


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


def traffic_folder(cluster: str, run_id: str, settings: Settings) -> Path:
    """Return the folder for the journals of a run's test traffic: a shared one lets each worker compare them."""
    return settings.shared_folder / "runs" / safe_name(cluster) / safe_name(run_id) / "traffic"


def start_traffic(
    cluster: ClusterSpec,
    run_id: str,
    *,
    security: ClientSecurity | None,
    folder: Path | None = None,
    leased: bool = True,
    only_with: int | None = None,
    lowered: Mapping[str, int] | None = None,
    together: Sequence[Sequence[int]] = (),
    settings: Settings | None = None,
) -> BackgroundProcess:
    """Start the test traffic of a run unless it runs. Returns when records are acknowledged and consumed.

    `folder`: each traffic period gets a folder in it, by default next to the artifacts. `leased`: the traffic stops
    when the run has not held the cluster's lock for 15 minutes. `only_with`: id of a process on this host that the
    traffic must not outlive. `lowered`: levels that the run lowers; clients that a lower level ends are left out,
    because they would block it. `together`: the brokers of each batch that the run restarts.

    If traffic was stopped before, a new traffic period starts, and the result covers all periods. A killed period
    continues if this worker can read its journals. Raises RefusedError if the cluster would not accept the traffic.
    """
    settings = settings or Settings.from_environment()
    of_traffic = (security or ClientSecurity()).of_traffic
    control = _control(cluster.name, run_id, BackgroundKind.TRAFFIC, settings, servers=cluster.bootstrap_servers)
    found, life = control.find()
    if found is not None and life is Life.ALIVE and not found.stop_requested:
        return found
    refuse_without_traffic_rights(cluster, of_traffic)
    if found is not None and life is Life.ALIVE:
        found = control.wait_for_end(_TRAFFIC_END_S)
    folder, group = folder or traffic_folder(cluster.name, run_id, settings), f"kafka-rollout-{run_id}"
    of_period: dict[str, Any] = {
        "group": group,
        "brokers": sorted(broker.node_id for broker in cluster.brokers),
        "together": [list(batch) for batch in together],
        "leased": leased,
        "only_with": only_with,
        "lowered": dict(lowered or {}),
        "unlocked_s": ALONE_S,
        "period": 1,
        "before": None,
    }
    if found is not None and found.state is not BackgroundState.STOPPED and is_reachable(found):
        of_period, folder = dict(found.settings), Path(found.folder)
    else:
        if found is not None:
            period = int(found.settings["period"]) + 1
            of_period |= {"period": period, "before": to_json(_known_result(found)), "group": f"{group}-{period}"}
        folder = folder / f"period-{of_period['period']}"
    started = control.start(found, folder=folder, settings=of_period, security=of_traffic)

    def has_records(process: BackgroundProcess) -> bool:
        return bool(process.status.get("acknowledged") and process.status.get("consumed"))

    if (ready := control.wait_until(has_records, _FIRST_RECORD_S)) is not None:
        return ready
    control.record.request_stop(cluster.name, run_id, BackgroundKind.TRAFFIC)
    failed = control.record.read(control.key) or started
    raise FatalError(
        "The test traffic did not produce and consume its first record: "
        f"{failed.status.get('error') or last_line(started) or 'it logged nothing'}",
        remedy=f"Read the log in {folder}. The cluster must accept and deliver records before it is rolled.",
    )


def stop_traffic(
    cluster: ClusterSpec,
    run_id: str,
    *,
    security: ClientSecurity | None,
    settings: Settings | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> TrafficVerdict | None:
    """Stop the traffic, consume to the end and compare; the result over all periods, None without traffic.

    A repeated call returns the same result. A process whose host does not answer gives a result with a discrepancy of
    kind `unknown`. Raises FatalError if the consumers cannot reach the end of the logs.
    """
    servers = cluster.bootstrap_servers
    control = _control(cluster.name, run_id, BackgroundKind.TRAFFIC, settings, on_progress, servers=servers)
    control.record.request_stop(cluster.name, run_id, BackgroundKind.TRAFFIC)
    process = control.wait_for_end(_TRAFFIC_END_S)
    if process is not None and process.state is not BackgroundState.STOPPED and is_reachable(process):
        of_traffic = security and security.of_traffic
        control.start(process, folder=Path(process.folder), settings=process.settings, security=of_traffic, drain=True)
        process = control.wait_for_end(_TRAFFIC_END_S)
    if process is None:
        return None
    if process.state is BackgroundState.FAILED:
        raise FatalError(
            f"The test traffic ended without a comparison: {process.status.get('error')}",
            remedy=f"Check the cluster. The journals are in {process.folder} on host {process.host}: a run compares "
            "them when its step is repeated there.",
        )
    return _known_result(process)


def check_traffic(
    cluster: ClusterSpec,
    run_id: str,
    *,
    settings: Settings | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
    within_s: float = CHECK_S,
) -> TrafficVerdict | None:
    """Compare what was acknowledged until now, while the traffic goes on; the result over all periods, None if the run
    never had traffic.

    Of traffic that has ended, the last result: node steps since then are without traffic. Raises TransientError if
    there is no result.
    """
    servers = cluster.bootstrap_servers
    control = _control(cluster.name, run_id, BackgroundKind.TRAFFIC, settings, on_progress, servers=servers)
    process, life = control.find()
    if process is None:
        return None
    if process.state is BackgroundState.STOPPED and process.result is not None:
        return from_json(TrafficVerdict, process.result)
    if life is not Life.ALIVE or process.stop_requested:
        raise TransientError(f"The test traffic does not run. {process.sentence}")
    asked = control.record.request_check(control.key)
    found = control.wait_until(lambda one: one.status.get(SO_FAR, {}).get("asked") == asked, within_s)
    if found is None:
        raise TransientError(f"The test traffic did not compare its records in {within_s:.0f} s. {process.sentence}")
    so_far = found.status[SO_FAR]
    if so_far.get("result") is None:
        raise TransientError(f"The records of the test traffic could not be compared: {so_far.get('error')}")
    seen = series_of(found)
    return replace(from_json(TrafficVerdict, so_far["result"]), series=seen.series, leaderships=seen.leaderships)


def _known_result(process: BackgroundProcess) -> TrafficVerdict:
    """The result over all periods; a period without one is unknown."""
    if process.state is BackgroundState.STOPPED and process.result is not None:
        return from_json(TrafficVerdict, process.result)
    why = (
        f"the comparison failed: {process.status.get('error')}"
        if process.state is BackgroundState.FAILED
        else f"host {process.host} did not answer (last report {process.age_s:.0f} s ago)"
    )
    sentence = (
        f"The result of traffic period {process.settings['period']} is unknown: {why}. Its journals are in "
        f"{process.folder} on host {process.host}."
    )
    seen = from_json(TrafficSeries, process.result or {})
    unknown = replace(not_compared(process.host, sentence), series=seen.series, leaderships=seen.leaderships)
    return with_earlier(process.settings["before"], unknown)


def start_group_monitor(
    cluster: str,
    run_id: str,
    *,
    security: ClientSecurity | None,
    only_with: int | None = None,
    unlocked_s: float = UNLOCKED_S,
) -> BackgroundProcess:
    """Start the monitor of the cluster's groups unless it runs.

    `only_with`: id of a process on this host that the monitor must not outlive; a monitor that already runs belongs to
    an earlier process and is replaced. `unlocked_s`: the monitor ends when its run has not held the cluster's lock for
    this many seconds. The result of a replaced monitor is attached to the run.
    """
    settings = Settings.from_environment()
    control = _control(cluster, run_id, BackgroundKind.GROUPS, settings)
    before, life = control.find()
    if before is not None and life is Life.ALIVE and (only_with is not None or before.stop_requested):
        stop_group_monitor(cluster, run_id, settings=settings)
        before, life = control.find()
    if before is not None and life is Life.ALIVE:
        return before
    started = control.start(
        before,
        folder=settings.home / "runs" / safe_name(cluster) / safe_name(run_id) / "group-monitor",
        settings={"leased": True, "unlocked_s": unlocked_s, "only_with": only_with},
        security=security,
    )
    if before is not None and before.result is not None:
        open_run(cluster, run_id, settings).attach(f"groups/watch-{before.instance[:8]}.json", before.result)
    return started


def stop_group_monitor(cluster: str, run_id: str, *, settings: Settings | None = None) -> dict[str, Any] | None:
    """Stop the monitor of a run if it runs, and return its result; None if the run has no monitor.

    The key `incomplete` has a sentence if the monitor did not report its end.
    """
    control = _control(cluster, run_id, BackgroundKind.GROUPS, settings)
    control.record.request_stop(cluster, run_id, BackgroundKind.GROUPS)
    try:
        process = control.wait_for_end(_MONITOR_END_S)
    except FatalError as error:
        log.warning("%s", error)
        process = control.record.read(control.key)
        if process is not None and process.host == host_name():
            with suppress(psutil.Error):
                _kill(process)
    if process is None or process.result is None:
        return None
    if process.state is BackgroundState.STOPPED:
        return dict(process.result)
    return {**process.result, "incomplete": process.sentence}


def _control(
    cluster: str,
    run_id: str,
    kind: BackgroundKind,
    settings: Settings | None,
    on_progress: Callable[[str], None] = lambda _: None,
    *,
    servers: str = "",
) -> BackgroundControl:
    key = BackgroundKey(cluster=cluster, run_id=run_id, kind=kind)
    settings = settings or Settings.from_environment()
    return BackgroundControl(key=key, settings=settings, bootstrap_servers=servers, on_progress=on_progress)


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
        self.asked = ""
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
            self.asked = "" if row is None else row.asked
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
