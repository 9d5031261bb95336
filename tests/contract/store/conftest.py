"""The same tests for each database. Those of PostgreSQL are in `make test-full`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_rollout.notifications.store.sent import SqlNotifications
from kafka_rollout.run.store.artifacts import Artifacts
from kafka_rollout.run.store.background import SqlBackground
from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.history import SqlRunStore
from kafka_rollout.run.store.leases import ANSWER_S, SqlChangeLock
from kafka_rollout.run.store.scans import SqlCheckHistory, SqlScanHistory
from tests.postgres import Postgres


class Clock:
    """A clock of the database that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(kw_only=True)
class Store:
    """What is recorded, in one database and one folder. Every call opens it like a process of its own."""

    url: str
    home: Path
    clock: Clock = field(default_factory=Clock)

    def database(self, *, clock: Callable[[], float] | None = None) -> Database:
        return Database(self.url, clock=clock)

    def lock(
        self, *, call: str = "", own_clock: bool = False, renew_every_s: float = 60.0, answer_s: float = ANSWER_S
    ) -> SqlChangeLock:
        """By the test's clock; by the database's own with `own_clock`."""
        database = self.database(clock=None if own_clock else self.clock)
        return SqlChangeLock(database, call=call, renew_every_s=renew_every_s, answer_s=answer_s)

    def run(self, run_id: str = "run", cluster: str = "demo", database: Database | None = None) -> SqlRunStore:
        documents = Artifacts(str(self.home))
        database = database or self.database()
        return SqlRunStore(database, documents, self.home / "private", cluster, run_id, clock=lambda: 100.0)

    def background(self) -> SqlBackground:
        return SqlBackground(self.database(clock=self.clock))

    def notifications(self) -> SqlNotifications:
        return SqlNotifications(self.database(clock=self.clock))

    def checks(self, cluster: str = "orders") -> SqlCheckHistory:
        return SqlCheckHistory(self.database(clock=self.clock), cluster)

    def scans(self, cluster: str = "orders") -> SqlScanHistory:
        return SqlScanHistory(self.database(), Artifacts(str(self.home)), cluster)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return Store(url=f"sqlite:///{tmp_path}/kafka-rollout.db", home=tmp_path)
    server: Postgres = request.getfixturevalue("postgres")
    return Store(url=server.create_upgraded_database(), home=tmp_path)
