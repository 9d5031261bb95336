"""What runs and scans leave behind: run histories, locks, scan histories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafka_rollout.ports.change_lock import ChangeLock
from kafka_rollout.ports.run_store import RunStore
from kafka_rollout.ports.scan_history import ScanHistory, ScanReports
from kafka_rollout.settings import Settings


def open_run(cluster: str, run_id: str, settings: Settings | None = None) -> RunStore:
    """The history of one run, without a connection to the cluster. Raises UserError for a name that cannot be one."""
    from kafka_rollout.adapters.store.runs import FileRunStore

    return FileRunStore(_home(settings), cluster, run_id)


def run_folder(cluster: str, run_id: str, settings: Settings | None = None) -> Path:
    """The folder of a run's history; other parts of the run keep their files below it."""
    from kafka_rollout.adapters.store.runs import FileRunStore

    return FileRunStore(_home(settings), cluster, run_id).folder


def list_runs(cluster: str, settings: Settings | None = None) -> Sequence[str]:
    """Ids of the cluster's runs, newest first."""
    from kafka_rollout.adapters.store import runs

    return runs.list_runs(_home(settings), cluster)


def open_lock(settings: Settings | None = None) -> ChangeLock:
    """The locks of all clusters."""
    from kafka_rollout.adapters.store.leases import FileChangeLock

    return FileChangeLock(_home(settings))


def open_scan_history(cluster: str, settings: Settings | None = None) -> ScanHistory:
    """The scans that are kept of one cluster."""
    from kafka_rollout.adapters.store import scans

    return scans.ScanHistory(_home(settings), cluster)


def open_scan_reports(cluster: str, settings: Settings | None = None) -> ScanReports:
    """Events and pages of one cluster's scheduled scans."""
    from kafka_rollout.adapters.store import scan_reports

    return scan_reports.ScanReports(_home(settings), cluster)


def list_scanned_clusters(settings: Settings | None = None) -> Sequence[str]:
    """Names of the clusters that have a scan history."""
    from kafka_rollout.adapters.store.scans import scanned_clusters

    return scanned_clusters(_home(settings))


def _home(settings: Settings | None) -> Path:
    return (settings or Settings.from_environment()).home
