"""The database of a round's run history, and its failures."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import CalledProcessError

from kafka_rollout.run.store.database import Database
from tests.postgres import Postgres, running_postgres
from tools.faults.plan import POSTGRES
from tools.faults.world import End, NotPossibleError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDatabase:
    """`url`: for the commands. `server`: PostgreSQL; None for SQLite. `file`: of SQLite."""

    url: str
    server: Postgres | None = None
    file: Path | None = None

    def fail(self) -> End:
        """Kill PostgreSQL, or hold the lock of the SQLite file; returns what ends it."""
        if self.server is not None:
            server = self.server
            with suppress(CalledProcessError):
                server.control("-m", "immediate", "stop")
            return lambda: _start(server)
        holder = sqlite3.connect(str(self.file), isolation_level=None, check_same_thread=False, timeout=5)
        try:
            holder.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            holder.close()
            raise NotPossibleError(f"The SQLite file could not be locked: {error}.") from None

        def end() -> str:
            holder.execute("ROLLBACK")
            holder.close()
            return "lock released"

        return end


def _start(server: Postgres) -> str:
    for attempt in range(3):
        try:
            server.control("start")
            return "started again"
        except CalledProcessError:
            time.sleep(1 + attempt)
    return "did not start again"


@contextmanager
def open_database(kind: str, home: Path) -> Iterator[RunDatabase]:
    """A new database with this version's tables. PostgreSQL is a server of its own, removed at the end."""
    home.mkdir(parents=True, exist_ok=True)
    if kind == POSTGRES:
        with running_postgres() as server:
            yield RunDatabase(url=server.create_upgraded_database(), server=server)
        return
    file = home / "kafka-rollout.db"
    url = f"sqlite:///{file}"
    Database(url).upgrade()
    yield RunDatabase(url=url, file=file)
