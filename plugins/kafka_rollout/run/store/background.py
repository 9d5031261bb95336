"""Rows of background processes: the last request of a worker, and the last report of the process.

There is one row per run and kind. All workers read and write it, so every machine can start, stop and query a process.
Ages are computed with the clock of the database.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from kafka_rollout.run.background import BackgroundKey, BackgroundKind, BackgroundProcess, BackgroundState
from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.tables import background

_RUN, _STOP, _CHECK = "run", "stop", "check "


class SqlBackground:
    """All background processes of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, key: BackgroundKey) -> BackgroundProcess | None:
        """Return the process; None if the run never had one of this kind."""
        with self._database.reading() as connection:
            return self._read(connection, key)

    def register(
        self, key: BackgroundKey, *, replaces: str, host: str, folder: str, settings: Mapping[str, Any], stop: bool
    ) -> str | None:
        """Register a new process in state STARTING and return its instance.

        Returns None if another worker was faster: the row no longer has the instance `replaces` (empty: no row).
        """
        instance = secrets.token_hex(16)
        with self._database.serialized() as connection:
            found = self._read(connection, key)
            if (found.instance if found else "") != replaces:
                return None
            connection.execute(delete(background).where(*_this(key)))
            values = {
                "cluster": key.cluster,
                "run_id": key.run_id,
                "kind": key.kind,
                "instance": instance,
                "wanted": _STOP if stop else _RUN,
                "state": BackgroundState.STARTING,
                "host": host,
                "pid": 0,
                "folder": folder,
                "reported_at": self._database.now(connection),
                "settings": json.dumps(settings),
                "status": "{}",
                "result": "",
            }
            connection.execute(insert(background).values(**values))
        return instance

    def report(
        self,
        process: BackgroundProcess,
        state: BackgroundState,
        *,
        pid: int,
        status: Mapping[str, Any],
        result: Mapping[str, Any] | None = None,
    ) -> BackgroundProcess | None:
        """Store a report with the current time, and return the row. None if another process replaced this one.

        Without `result` the row keeps its result.
        """
        values = {"state": state, "pid": pid, "status": json.dumps(status)}
        if result is not None:
            values["result"] = json.dumps(result)
        which = (*_this(process.key), background.c.instance == process.instance)
        with self._database.begin() as connection:
            now = self._database.now(connection)
            if not connection.execute(update(background).where(*which).values(**values, reported_at=now)).rowcount:
                return None
            return self._read(connection, process.key)

    def request_stop(self, cluster: str, run_id: str, *kinds: BackgroundKind) -> None:
        """Request the end of the run's processes of these kinds (default: all). A process reads it within seconds."""
        which = (background.c.cluster == cluster, background.c.run_id == run_id)
        with self._database.begin() as connection:
            of_kind = background.c.kind.in_(kinds or tuple(BackgroundKind))
            connection.execute(update(background).where(*which, of_kind).values(wanted=_STOP))

    def request_check(self, key: BackgroundKey) -> str:
        """Request a check of what the process has done so far; return the request, which its status then names. A
        process that is to stop gets none.
        """
        asked = secrets.token_hex(4)
        with self._database.begin() as connection:
            which = (*_this(key), background.c.wanted != _STOP)
            connection.execute(update(background).where(*which).values(wanted=f"{_CHECK}{asked}"))
        return asked

    def _read(self, connection: Connection, key: BackgroundKey) -> BackgroundProcess | None:
        row = connection.execute(select(background).where(*_this(key))).one_or_none()
        if row is None:
            return None
        return BackgroundProcess(
            key=key,
            instance=row.instance,
            stop_requested=row.wanted == _STOP,
            state=BackgroundState(row.state),
            host=row.host,
            pid=row.pid,
            folder=row.folder,
            age_s=max(0.0, self._database.now(connection) - row.reported_at),
            settings=json.loads(row.settings),
            status=json.loads(row.status),
            result=json.loads(row.result) if row.result else None,
            asked=row.wanted.removeprefix(_CHECK) if row.wanted.startswith(_CHECK) else "",
        )


def _this(key: BackgroundKey) -> tuple[Any, ...]:
    return background.c.cluster == key.cluster, background.c.run_id == key.run_id, background.c.kind == key.kind
