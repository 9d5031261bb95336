"""Opens run histories, locks, stored scans and their database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_rollout.base.system.settings import Settings

if TYPE_CHECKING:
    from kafka_rollout.run.ports import ChangeLock, RunStore, ScanHistory
    from kafka_rollout.run.store.artifacts import Artifacts
    from kafka_rollout.run.store.database import Database


def open_run(cluster: str, run_id: str, settings: Settings | None = None) -> RunStore:
    """Open the history of one run, without a connection to the cluster. Raises UserError for an invalid run id."""
    from kafka_rollout.run.store.runs import SqlRunStore

    settings = settings or Settings.from_environment()
    return SqlRunStore(_database(settings), _documents(settings), settings.home / "private", cluster, run_id)


def run_folder(cluster: str, run_id: str, settings: Settings | None = None) -> Path:
    """Return the folder of this machine for the files of a run's background processes."""
    from kafka_rollout.base.system.files import safe_name

    home = (settings or Settings.from_environment()).home
    return home / "runs" / safe_name(cluster) / safe_name(run_id)


def traffic_folder(cluster: str, run_id: str, settings: Settings | None = None) -> Path:
    """Return the folder for the journals of a run's test traffic: a shared one lets each worker compare them."""
    settings = settings or Settings.from_environment()
    return run_folder(cluster, run_id, replace(settings, home=settings.shared_folder)) / "traffic"


def list_runs(cluster: str, settings: Settings | None = None) -> tuple[str, ...]:
    """Return the ids of the cluster's runs, the last changed first."""
    from kafka_rollout.run.store import runs

    return runs.list_runs(_database(settings), cluster)


def list_run_versions(cluster: str, at_most: int, settings: Settings | None = None) -> Mapping[str, str]:
    """Return run id → version of its history, for the runs that changed last. A version is that of one content."""
    from kafka_rollout.run.store import runs

    return runs.list_run_versions(_database(settings), cluster, at_most)


def list_clusters_of_run(run_id: str, settings: Settings | None = None) -> tuple[str, ...]:
    """Return the clusters that have a run with this id; a run id is unique only within its DAG."""
    from kafka_rollout.run.store import runs

    return runs.list_clusters_of_run(_database(settings), run_id)


def open_lock(settings: Settings | None = None) -> ChangeLock:
    """Open the locks of all clusters."""
    from kafka_rollout.run.store.leases import SqlChangeLock

    return SqlChangeLock(_database(settings))


def open_scan_history(cluster: str, settings: Settings | None = None) -> ScanHistory:
    """Open the stored scans of one cluster."""
    from kafka_rollout.run.store.scans import SqlScanHistory

    settings = settings or Settings.from_environment()
    return SqlScanHistory(_database(settings), _documents(settings), cluster)


def list_scanned_clusters(settings: Settings | None = None) -> tuple[str, ...]:
    """Return the names of the clusters that have stored scans."""
    from kafka_rollout.run.store.scans import scanned_clusters

    return scanned_clusters(_database(settings))


def read_events(cluster: str, run_id: str, settings: Settings | None = None) -> tuple[Mapping[str, Any], ...]:
    """Return the events of a run as plain JSON with `at` and `kind`, oldest first."""
    from kafka_rollout.run.store.event_codec import encode

    events = open_run(cluster, run_id, settings).events()
    encoded = ((event.at, *encode(event)) for event in events)
    return tuple({"at": at, "kind": kind, **data} for at, kind, data in encoded)


def upgrade_database(settings: Settings | None = None) -> str:
    """Upgrade the database to the tables of this version. Return its name."""
    database = _database(settings)
    database.upgrade()
    return database.name


def check_database(settings: Settings | None = None) -> str:
    """Return the name of the database. Raises UserError unless it has the tables of this version."""
    database = _database(settings)
    database.check()
    return database.name


def _database(settings: Settings | None) -> Database:
    from kafka_rollout.run.store.database import open_database

    settings = settings or Settings.from_environment()
    return open_database(settings.database_url, password_file=settings.database_password_file)


def _documents(settings: Settings) -> Artifacts:
    from kafka_rollout.run.store.artifacts import Artifacts

    return Artifacts(settings.artifacts_url, shared=bool(settings.artifacts))
