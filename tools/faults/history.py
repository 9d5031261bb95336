"""The history of the runs as it grows: which run a command began, and which moments it has passed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from kafka_rollout.gates.gate import GateKind
from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.tables import events, runs
from tools.faults.limits import Stop
from tools.faults.plan import Moment

_LATEST_READ_S = 50.0  # a database that fails delays the reading of an event


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One event. `node_id`: the node of the event, if it has one. `moment`: None for a repetition."""

    at: float
    event: str
    node_id: int | None
    moment: Moment | None


@dataclass(slots=True)
class Moments:
    """Numbers the events of a run: the first of each node and release step counts."""

    _known: set[tuple[str, str, int | None]] = field(default_factory=set)
    _counts: dict[str, int] = field(default_factory=dict)

    def add(self, body: Mapping[str, Any]) -> Seen:
        data = body["data"]
        name, step, node_id = str(body["kind"]), data.get("release_step"), data.get("node_id")
        if name == "gate-held":
            ref = data["ref"]
            step, node_id = ref.get("release_step"), ref.get("node_id")
            name = "passed" if ref["kind"] == GateKind.AFTER_START.value else f"gate {ref['kind']}"
        key = (name, str(step or ""), node_id)
        if key in self._known:
            return Seen(at=float(body["at"]), event=name, node_id=node_id, moment=None)
        self._known.add(key)
        self._counts[name] = self._counts.get(name, 0) + 1
        moment = Moment(event=name, nth=self._counts[name])
        return Seen(at=float(body["at"]), event=name, node_id=node_id, moment=moment)


@dataclass(slots=True, kw_only=True)
class History:
    """Reads new events of the newest run after the runs in `before`. A failed read is repeated by the next call."""

    database: Database
    before: frozenset[str] = frozenset()
    run_id: str = ""
    moments: Moments = field(default_factory=Moments)
    stops: list[Stop] = field(default_factory=list)
    _number: int = 0

    def read(self) -> list[Seen]:
        """Raises errors of the database."""
        with self.database.reading() as connection:
            if not self.run_id:
                query = select(runs.c.run_id).where(runs.c.event_count > 0).order_by(runs.c.id)
                found = [name for name in connection.execute(query).scalars() if name not in self.before]
                if not found:
                    return []
                self.run_id = found[0]
            where = (runs.c.run_id == self.run_id, events.c.number > self._number)
            query_events = select(events.c.number, events.c.body).join(runs).where(*where).order_by(events.c.number)
            rows = connection.execute(query_events).all()
        seen = []
        for row in rows:
            self._number = row.number
            one = self.moments.add(json.loads(row.body))
            if one.event == "stopping" and one.node_id is not None:
                now = time.time()
                turned = abs(one.at - now) > _LATEST_READ_S  # the clock of the command
                self.stops.append(Stop(node_id=one.node_id, at=now if turned else one.at))
            seen.append(one)
        return seen


def run_ids(database: Database) -> frozenset[str]:
    with database.reading() as connection:
        return frozenset(connection.execute(select(runs.c.run_id)).scalars())
