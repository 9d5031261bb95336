"""Opens run histories, locks and stored scans with the database and the folders of the settings.

Imports SQLAlchemy: DAG files and commands import this module inside the function that needs it.
"""

from __future__ import annotations

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.run.store.artifacts import Artifacts
from kafka_rollout.run.store.database import Database, open_database
from kafka_rollout.run.store.history import SqlRunStore
from kafka_rollout.run.store.leases import SqlChangeLock
from kafka_rollout.run.store.scans import SqlCheckHistory, SqlScanHistory


def database_of(settings: Settings | None = None) -> Database:
    """Return the database of the settings; by default of the environment.

    Raises UserError if the variable names a SQLite file in a folder that does not exist: a typing error would make a
    second lock.
    """
    settings = settings or Settings.from_environment()
    database = open_database(settings.database_url, password_file=settings.database_password_file)
    if settings.database and database.file is not None and not database.file.parent.is_dir():
        raise UserError(
            f"KAFKA_ROLLOUT_DATABASE names a file in the folder {database.file.parent}, which does not exist.",
            remedy=f"Correct the path, or create the folder (`mkdir -m 0700 {database.file.parent}`).",
        )
    return database


def open_run(cluster: str, run_id: str, settings: Settings | None = None) -> SqlRunStore:
    """Open the history of one run, without a connection to the cluster. Raises UserError for an invalid run id."""
    settings = settings or Settings.from_environment()
    return SqlRunStore(database_of(settings), _documents(settings), settings.home / "private", cluster, run_id)


def open_lock(settings: Settings | None = None, *, call: str = "") -> SqlChangeLock:
    return SqlChangeLock(database_of(settings), call=call)


def open_scan_history(cluster: str, settings: Settings | None = None) -> SqlScanHistory:
    settings = settings or Settings.from_environment()
    return SqlScanHistory(database_of(settings), _documents(settings), cluster)


def open_check_history(cluster: str, settings: Settings | None = None) -> SqlCheckHistory:
    return SqlCheckHistory(database_of(settings), cluster)


def _documents(settings: Settings) -> Artifacts:
    return Artifacts(settings.artifacts_url, shared=bool(settings.artifacts))
