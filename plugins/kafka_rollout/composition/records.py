"""Opens what is recorded: run histories, locks, kept scans, and the database behind them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_rollout.settings import Settings

if TYPE_CHECKING:
    from kafka_rollout.adapters.store.artifacts import Artifacts
    from kafka_rollout.adapters.store.database import Database
    from kafka_rollout.ports.change_lock import ChangeLock
    from kafka_rollout.ports.run_store import RunStore
    from kafka_rollout.ports.scan_history import ScanHistory


def open_run(cluster: str, run_id: str, settings: Settings | None = None) -> RunStore:
    """The history of one run, without a connection to the cluster. Raises UserError for a name that cannot be one."""
    from kafka_rollout.adapters.store.runs import SqlRunStore

    settings = settings or Settings.from_environment()
    return SqlRunStore(_database(settings), _documents(settings), settings.home / "private", cluster, run_id)


def run_folder(cluster: str, run_id: str, settings: Settings | None = None) -> Path:
    """Where processes next to a run keep their files, on this machine."""
    from kafka_rollout.adapters.system.files import safe_name

    home = (settings or Settings.from_environment()).home
    return home / "runs" / safe_name(cluster) / safe_name(run_id)


def list_runs(cluster: str, settings: Settings | None = None) -> tuple[str, ...]:
    """Ids of the cluster's runs, the one written to last first."""
    from kafka_rollout.adapters.store import runs

    return runs.list_runs(_database(settings), cluster)


def list_clusters_of_run(run_id: str, settings: Settings | None = None) -> tuple[str, ...]:
    """Names of the clusters that have a run with this id; a run id is unique only within its DAG."""
    from kafka_rollout.adapters.store import runs

    return runs.list_clusters_of_run(_database(settings), run_id)


def open_lock(settings: Settings | None = None) -> ChangeLock:
    """The locks of all clusters."""
    from kafka_rollout.adapters.store.leases import SqlChangeLock

    return SqlChangeLock(_database(settings))


def open_scan_history(cluster: str, settings: Settings | None = None) -> ScanHistory:
    """The kept scans of one cluster, or of what stands for it."""
    from kafka_rollout.adapters.store.scans import SqlScanHistory

    settings = settings or Settings.from_environment()
    return SqlScanHistory(_database(settings), _documents(settings), cluster)


def list_scanned_clusters(settings: Settings | None = None) -> tuple[str, ...]:
    """Names of the clusters that have kept scans."""
    from kafka_rollout.adapters.store.scans import scanned_clusters

    return scanned_clusters(_database(settings))


def read_events(cluster: str, run_id: str, settings: Settings | None = None) -> tuple[Mapping[str, Any], ...]:
    """The events of a run as plain JSON with `at` and `kind`, oldest first."""
    from kafka_rollout.adapters.store.event_codec import encode

    events = open_run(cluster, run_id, settings).events()
    encoded = ((event.at, *encode(event)) for event in events)
    return tuple({"at": at, "kind": kind, **data} for at, kind, data in encoded)


def upgrade_database(settings: Settings | None = None) -> str:
    """Bring the database to this version's tables; its name."""
    database = _database(settings)
    database.upgrade()
    return database.name


def check_database(settings: Settings | None = None) -> str:
    """Raise UserError unless the database has this version's tables; its name."""
    database = _database(settings)
    database.check()
    return database.name


def _database(settings: Settings | None) -> Database:
    from kafka_rollout.adapters.store.database import open_database

    settings = settings or Settings.from_environment()
    return open_database(settings.database_url, password_file=settings.database_password_file)


def _documents(settings: Settings) -> Artifacts:
    from kafka_rollout.adapters.store.artifacts import Artifacts

    return Artifacts(settings.artifacts_url)
