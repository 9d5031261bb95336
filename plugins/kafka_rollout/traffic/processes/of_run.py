"""Background processes of a run: test traffic and the group monitor. Any worker can start and stop them.

Imports Kafka clients: DAG files and commands import this module inside the function that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kafka_rollout.base.system.files import safe_name
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.kafka.client.rights import refuse_without_traffic_rights
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.run.background import BackgroundKey, BackgroundKind, BackgroundProcess
from kafka_rollout.run.store.opening import open_run
from kafka_rollout.run.traffic_verdict import TrafficVerdict
from kafka_rollout.traffic.processes import group_monitor, traffic_process
from kafka_rollout.traffic.processes.control import Control


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
    """Start the test traffic of a run unless it runs. Returns when records are produced and consumed.

    `group`: prefix of its consumer groups. `folder`: folder of its journals, by default next to the artifacts.
    `leased`: the traffic stops when the run has not held the cluster's lock for 15 minutes. `lowered`: levels that the
    run lowers; see `traffic_process.start_traffic`.
    """
    settings = settings or Settings.from_environment()
    of_traffic = (security or ClientSecurity()).of_traffic
    return traffic_process.start_traffic(
        _control(cluster.name, run_id, BackgroundKind.TRAFFIC, settings, servers=cluster.bootstrap_servers),
        folder=folder or traffic_folder(cluster.name, run_id, settings),
        group=group or f"kafka-rollout-{run_id}",
        replication_factor=min(3, len(cluster.brokers)),
        security=of_traffic,
        leased=leased,
        lowered=lowered,
        check=lambda: refuse_without_traffic_rights(cluster, of_traffic),
    )


def stop_traffic(
    cluster: ClusterSpec,
    run_id: str,
    *,
    security: ClientSecurity | None,
    settings: Settings | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> TrafficVerdict | None:
    """Stop the test traffic, consume to the end, and compare acknowledged with consumed records.

    Returns None if the run has no test traffic.
    """
    servers = cluster.bootstrap_servers
    control = _control(cluster.name, run_id, BackgroundKind.TRAFFIC, settings, on_progress, servers=servers)
    return traffic_process.stop_traffic(control, security=security and security.of_traffic)


def start_group_monitor(
    cluster: str,
    run_id: str,
    *,
    security: ClientSecurity | None,
    only_with: int | None = None,
    unlocked_s: float | None = None,
    settings: Settings | None = None,
) -> BackgroundProcess:
    """Start the monitor of the cluster's groups unless it runs.

    `only_with`: id of a process on this host that the monitor must not outlive. `unlocked_s`: the monitor ends when
    its run has not held the cluster's lock for this many seconds; `group_monitor.UNLOCKED_S` by default.
    """
    settings = settings or Settings.from_environment()
    control = _control(cluster, run_id, BackgroundKind.GROUPS, settings)
    before, _ = control.find()
    folder = run_folder(cluster, run_id, settings) / "group-monitor"
    started = group_monitor.start_group_monitor(
        control,
        folder=folder,
        security=security,
        only_with=only_with,
        unlocked_s=group_monitor.UNLOCKED_S if unlocked_s is None else unlocked_s,
    )
    if before is not None and before.result is not None and before.instance != started.instance:
        open_run(cluster, run_id, settings).attach(f"groups/watch-{before.instance[:8]}.json", before.result)
    return started


def stop_group_monitor(cluster: str, run_id: str, *, settings: Settings | None = None) -> dict[str, Any] | None:
    """Stop the monitor of a run if it runs, and return its result; None if the run has no monitor."""
    return group_monitor.stop_group_monitor(_control(cluster, run_id, BackgroundKind.GROUPS, settings))


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
