"""Processes that run during a change: test traffic, and the monitor of groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.traffic_check import LedgerVerdict


def start_traffic(cluster: ClusterSpec, folder: Path, *, group: str, security_file: Path | None) -> int:
    """Start test traffic in a process of its own unless the folder has one running; returns its process id.

    `group`: prefix of its consumer groups. `folder`: its journals.
    """
    from kafka_rollout.adapters.background.traffic_process import start_ledger

    return start_ledger(
        bootstrap_servers=cluster.bootstrap_servers,
        folder=folder,
        group=group,
        replication_factor=min(3, len(cluster.brokers)),
        security_file=security_file,
    )


def find_traffic(folder: Path) -> int | None:
    """Process id of the folder's test traffic; None if it does not run."""
    from kafka_rollout.adapters.background.traffic_process import find_process

    running = find_process(folder)
    return None if running is None else running.pid


def stop_traffic(folder: Path) -> LedgerVerdict:
    """Stop the test traffic, consume to the end and compare acknowledged with consumed records."""
    from kafka_rollout.adapters.background.traffic_process import stop_ledger

    return stop_ledger(folder)


def start_group_monitor(
    run_folder: Path, *, cluster: str, run_id: str, security_file: Path | None, only_with: int | None = None
) -> int:
    """Start the monitor of the cluster's groups unless it runs; returns its process id.

    `only_with`: id of a process that the monitor must not outlive.
    """
    from kafka_rollout.adapters.background import group_monitor

    return group_monitor.start_group_watch(
        run_folder / group_monitor.FOLDER,
        cluster=cluster,
        run_id=run_id,
        security_file=security_file,
        only_with=only_with,
    )


def stop_group_monitor(run_folder: Path) -> dict[str, Any] | None:
    """Stop the monitor of a run, if it runs; what it has seen, None where there was none."""
    from kafka_rollout.adapters.background import group_monitor

    group_monitor.stop_group_watch(run_folder / group_monitor.FOLDER)
    return group_monitor.read_watch(run_folder / group_monitor.FOLDER)
