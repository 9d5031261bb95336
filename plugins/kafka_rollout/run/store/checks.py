"""The scheduled checks of a cluster: the JSON document and the page of each run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select

from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.tables import checks

KEPT = 60  # checks of a cluster: two months of daily checks


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCheck:
    """One check. `at`: epoch seconds when it was stored. `document`: as `CheckReport.document` returns it."""

    run_id: str
    at: float
    document: Mapping[str, Any]


class SqlCheckHistory:
    """The scheduled checks of one cluster."""

    def __init__(self, database: Database, cluster: str) -> None:
        self.cluster = cluster
        self._database = database

    def keep(self, run_id: str, document: Mapping[str, Any], page: str, *, at_most: int = KEPT) -> None:
        """Store the check of a run in place of an earlier attempt. Remove the oldest checks above `at_most`."""
        with self._database.serialized() as connection:
            connection.execute(delete(checks).where(self._is_mine, checks.c.run_id == run_id))
            values = {"target": str(document["target"]), "body": json.dumps(document), "page": page}
            now = self._database.now(connection)
            connection.execute(insert(checks).values(cluster=self.cluster, run_id=run_id, at=now, **values))
            newest = select(checks.c.run_id).where(self._is_mine).order_by(checks.c.at.desc(), checks.c.run_id.desc())
            old = connection.execute(newest.offset(at_most)).scalars().all()
            connection.execute(delete(checks).where(self._is_mine, checks.c.run_id.in_(old)))

    def newest(self, at_most: int = KEPT) -> tuple[KeptCheck, ...]:
        """Return the stored checks, newest first."""
        query = select(checks.c.run_id, checks.c.at, checks.c.body).where(self._is_mine)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(checks.c.at.desc(), checks.c.run_id.desc()).limit(at_most)).all()
        return tuple(KeptCheck(run_id=row.run_id, at=row.at, document=json.loads(row.body)) for row in rows)

    def newest_id(self) -> tuple[str, float] | None:
        """Return run id and time of the newest check; None without one."""
        query = select(checks.c.run_id, checks.c.at).where(self._is_mine)
        with self._database.reading() as connection:
            row = connection.execute(query.order_by(checks.c.at.desc(), checks.c.run_id.desc()).limit(1)).one_or_none()
        return None if row is None else (row.run_id, row.at)

    def page_of_run(self, run_id: str) -> str | None:
        """Return the page of a run's check; None if there is none."""
        query = select(checks.c.page).where(self._is_mine, checks.c.run_id == run_id)
        with self._database.reading() as connection:
            found: str | None = connection.execute(query).scalar_one_or_none()
        return found

    @property
    def _is_mine(self) -> Any:
        return checks.c.cluster == self.cluster
