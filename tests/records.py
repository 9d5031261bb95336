"""The real run history, locks and scans in a folder of a test."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from kafka_rollout.notifications.due import Notification, NotificationKind, alert_of_scan, of_scheduled_run
from kafka_rollout.notifications.store.sent import SqlNotifications
from kafka_rollout.run.events import Event, StepEnded, StepOutcome, events_of
from kafka_rollout.run.store.artifacts import Artifacts
from kafka_rollout.run.store.database import Database, open_database
from kafka_rollout.run.store.history import SqlRunStore, list_runs
from kafka_rollout.run.store.leases import SqlChangeLock
from kafka_rollout.run.store.scans import SqlScanHistory

FILE = "kafka-rollout.db"
SERVER = "KAFKA_ROLLOUT_DATABASE"  # set by the fixture `each_database`


def database_of(home: Path) -> Database:
    """The database that the settings name for this home; a new one is a copy, which is faster than the migrations."""
    if url := os.environ.get(SERVER):
        return open_database(url)
    file = home / FILE
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_empty_database())
    return open_database(f"sqlite:///{file}")


def run_history(home: Path, cluster: str, run_id: str, *, clock: Callable[[], float] = time.time) -> SqlRunStore:
    return SqlRunStore(database_of(home), Artifacts(str(home)), home / "private", cluster, run_id, clock=clock)


def run_ids(home: Path, cluster: str) -> tuple[str, ...]:
    """The newest first; none where no database was made yet."""
    return list_runs(database_of(home), cluster) if SERVER in os.environ or (home / FILE).exists() else ()


def change_lock(home: Path, *, clock: Callable[[], float] | None = None, call: str = "") -> SqlChangeLock:
    """`clock` replaces the database's."""
    database_of(home)
    return SqlChangeLock(Database(os.environ.get(SERVER) or f"sqlite:///{home / FILE}", clock=clock), call=call)


def record_alert(
    home: Path, cluster: str, run_id: str, kind: NotificationKind, headline: str, *sentences: str, report: str = ""
) -> None:
    """Record the alert of a scheduled scan or check."""
    alert = alert_of_scan(kind, headline, sentences, remedy="", report=report)
    SqlNotifications(database_of(home)).record_alert(of_scheduled_run(alert, cluster, run_id, time.time()))


def alerts_of(home: Path, cluster: str) -> tuple[Notification, ...]:
    return SqlNotifications(database_of(home)).alerts(cluster)


def scan_history(home: Path, cluster: str) -> SqlScanHistory:
    return SqlScanHistory(database_of(home), Artifacts(str(home)), cluster)


@cache
def _empty_database() -> bytes:
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-template-") as folder:
        file = Path(folder) / FILE
        Database(f"sqlite:///{file}").upgrade()
        return file.read_bytes()


def failed_step(step: str, reason: str, at: float = 0.0) -> StepEnded:
    return StepEnded(at=at, step=step, outcome=StepOutcome.FAILED, reason=reason)


def failed_steps(events: Iterable[Event]) -> list[StepEnded]:
    return [one for one in events_of(events, StepEnded) if one.outcome is StepOutcome.FAILED]
