"""Background processes of a run: start and stop the test traffic and the group monitor, from any worker.

Imports Kafka clients: DAG files and commands import this module inside the function that needs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.base.system.files import safe_name
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.kafka.client.rights import refuse_without_traffic_rights
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.run.background import BackgroundKey, BackgroundKind, BackgroundProcess, BackgroundState
from kafka_rollout.run.store.opening import open_run
from kafka_rollout.run.traffic_verdict import TrafficVerdict
from kafka_rollout.traffic.check import not_compared, with_earlier
from kafka_rollout.traffic.processes.control import Control, Life, host_name, is_reachable, last_line
from kafka_rollout.traffic.processes.heartbeat import ALONE_S

log = logging.getLogger(__name__)

UNLOCKED_S = 120.0  # a run acquires the lock within this time after the monitor starts
_FIRST_RECORD_S = 120.0
_TRAFFIC_END_S = 180.0  # the consumers get 90 s for the rest of the logs
_MONITOR_END_S = 20.0


def run_folder(cluster: str, run_id: str, settings: Settings) -> Path:
    """Return the folder of this machine for the files of a run's background processes."""
    return _folder_below(settings.home, cluster, run_id)


def traffic_folder(cluster: str, run_id: str, settings: Settings) -> Path:
    """Return the folder for the journals of a run's test traffic: a shared one lets each worker compare them."""
    return _folder_below(settings.shared_folder, cluster, run_id) / "traffic"


def _folder_below(home: Path, cluster: str, run_id: str) -> Path:
    return home / "runs" / safe_name(cluster) / safe_name(run_id)


def start_traffic(
    cluster: ClusterSpec,
    run_id: str,
    *,
    security: ClientSecurity | None,
    group: str = "",
    folder: Path | None = None,
    leased: bool = True,
    lowered: Mapping[str, int] | None = None,
    settings: Settings | None = None,
) -> BackgroundProcess:
    """Start the test traffic of a run unless it runs. Returns when records are acknowledged and consumed.

    `group`: prefix of its consumer groups. `folder`: each traffic period gets a folder in it, by default next to the
    artifacts. `leased`: the traffic stops when the run has not held the cluster's lock for 15 minutes. `lowered`:
    levels that the run lowers; clients that a lower level ends are left out, because they would block it.

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
    folder, group = folder or traffic_folder(cluster.name, run_id, settings), group or f"kafka-rollout-{run_id}"
    of_period: dict[str, Any] = {
        "group": group,
        "replication_factor": min(3, len(cluster.brokers)),
        "leased": leased,
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
    if (ready := control.wait_until(_has_records, _FIRST_RECORD_S)) is not None:
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
            remedy=f"Check the cluster, then repeat the stop on host {process.host}: the journals are in "
            f"{process.folder}.",
        )
    return _known_result(process)


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
    return with_earlier(process.settings["before"], not_compared(process.host, sentence))


def _has_records(process: BackgroundProcess) -> bool:
    return bool(process.status.get("acknowledged") and process.status.get("consumed"))


def start_group_monitor(
    cluster: str,
    run_id: str,
    *,
    security: ClientSecurity | None,
    only_with: int | None = None,
    unlocked_s: float = UNLOCKED_S,
    settings: Settings | None = None,
) -> BackgroundProcess:
    """Start the monitor of the cluster's groups unless it runs.

    `only_with`: id of a process on this host that the monitor must not outlive; a monitor that already runs belongs to
    an earlier process and is replaced. `unlocked_s`: the monitor ends when its run has not held the cluster's lock for
    this many seconds. The result of a replaced monitor is attached to the run.
    """
    settings = settings or Settings.from_environment()
    control = _control(cluster, run_id, BackgroundKind.GROUPS, settings)
    before, life = control.find()
    if before is not None and life is Life.ALIVE and (only_with is not None or before.stop_requested):
        stop_group_monitor(cluster, run_id, settings=settings)
        before, life = control.find()
    if before is not None and life is Life.ALIVE:
        return before
    started = control.start(
        before,
        folder=run_folder(cluster, run_id, settings) / "group-monitor",
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
                psutil.Process(process.pid).kill()
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
) -> Control:
    key = BackgroundKey(cluster=cluster, run_id=run_id, kind=kind)
    settings = settings or Settings.from_environment()
    return Control(key=key, settings=settings, bootstrap_servers=servers, on_progress=on_progress)
