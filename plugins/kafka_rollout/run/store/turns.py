"""Turns of the brokers for requests about all partitions (kafka/client/turns.py), in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update

from kafka_rollout.run.store.database import Database, put
from kafka_rollout.run.store.tables import turns


class SqlRequestTurns:
    """The turns of one cluster. A process that is killed in its turn leaves nothing to clean up."""

    def __init__(self, database: Database, cluster: str) -> None:
        self._database, self._cluster = database, cluster

    def take(self, nodes: Sequence[int]) -> tuple[int, float]:
        with self._database.serialized() as connection:
            rows = {row.node_id: row for row in connection.execute(select(turns).where(self._is_mine)).all()}
            length_s = max((row.length_s for row in rows.values()), default=0.0)
            free_at = {node_id: rows[node_id].free_at if node_id in rows else 0.0 for node_id in nodes}
            now = self._database.now(connection)
            node_id = min(nodes, key=lambda node: free_at[node])
            begins = max(now, free_at[node_id])
            key = {"cluster": self._cluster, "node_id": node_id}
            put(connection, turns, key, {"free_at": begins + length_s, "length_s": length_s})
        return node_id, begins - now

    def set_length(self, node_id: int, seconds: float) -> None:
        with self._database.serialized() as connection:
            mine = update(turns).where(self._is_mine)
            longer_s = seconds - turns.c.length_s
            connection.execute(mine.where(turns.c.node_id == node_id).values(free_at=turns.c.free_at + longer_s))
            connection.execute(mine.values(length_s=seconds))

    @property
    def _is_mine(self) -> Any:
        return turns.c.cluster == self._cluster
