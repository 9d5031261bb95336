"""Turns of the brokers for requests about all partitions (client/requests.py), in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from kafka_rollout.run.store.database import Database, put
from kafka_rollout.run.store.tables import turns

_MOST_WAIT_S = 15.0  # then a broker is asked without a turn, because turns are about load only


class SqlRequestTurns:
    """The turns of one cluster. A process that is killed in its turn leaves nothing to clean up."""

    def __init__(self, database: Database, cluster: str) -> None:
        self._database, self._cluster = database, cluster

    def take(self, nodes: Sequence[int]) -> tuple[int, float]:
        with self._database.reading() as connection:  # most clusters are small: nothing is written for them
            if not self._length_s(connection, nodes):
                return nodes[0], 0.0
        with self._database.serialized() as connection:
            length_s = self._length_s(connection, nodes)
            now = self._database.now(connection)
            rows = self._rows(connection)
            free_at = {node_id: rows[node_id].free_at if node_id in rows else 0.0 for node_id in nodes}
            # A turn ends before this time, so a later one shows a clock that was set back.
            latest = now + _MOST_WAIT_S + length_s
            free_at = {node_id: at if at <= latest else now for node_id, at in free_at.items()}
            node_id = min(nodes, key=lambda node: free_at[node])
            begins = max(now, free_at[node_id])
            if begins - now > _MOST_WAIT_S:
                return node_id, 0.0
            put(connection, turns, self._key(node_id), {"free_at": begins + length_s, "length_s": length_s})
        return node_id, begins - now

    def set_length(self, node_id: int, seconds: float) -> None:
        with self._database.reading() as connection:
            if ({row.length_s for row in self._rows(connection).values()} or {0.0}) == {seconds}:
                return
        with self._database.serialized() as connection:
            known = self._rows(connection).get(node_id)
            begins = known.free_at - known.length_s if known is not None else self._database.now(connection)
            put(connection, turns, self._key(node_id), {"free_at": begins + seconds, "length_s": seconds})
            connection.execute(update(turns).where(self._is_mine).values(length_s=seconds))

    def _rows(self, connection: Connection) -> dict[int, Any]:
        return {row.node_id: row for row in connection.execute(select(turns).where(self._is_mine)).all()}

    def _length_s(self, connection: Connection, nodes: Sequence[int]) -> float:
        lengths_s = (row.length_s for node_id, row in self._rows(connection).items() if node_id in nodes)
        return max(lengths_s, default=0.0)

    def _key(self, node_id: int) -> dict[str, Any]:
        return {"cluster": self._cluster, "node_id": node_id}

    @property
    def _is_mine(self) -> Any:
        return turns.c.cluster == self._cluster
