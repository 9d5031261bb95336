"""Entries of a run's hash chain: its events, and the SHA-256 of its documents and its plan.

An event is stored as its kind, its time and the fields of the dataclass of the kind.

An entry about a document has its name and SHA-256, so a document that was changed outside the tool is found when it is
read. These entries are rows of the table `events`, but not events of the run: `SqlRunStore.events` leaves them out.

A document is written while the row of the run is locked, and its entry is committed afterwards. Before an existing
document is replaced, an entry of the kind `document-begun` is committed: if the process is killed during the write, the
old and the new content are both accepted. Runs of earlier versions have no entries: their documents are not compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, or_, select

from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.run import events as run_events
from kafka_rollout.run import step_events
from kafka_rollout.run.events import Event, Unknown
from kafka_rollout.run.store.tables import events

KINDS: Mapping[str, type[Event]] = {
    found.kind: found
    for module in (run_events, step_events)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Event) and found.kind
}
"""Kind → its dataclass."""


def encode(event: Event) -> tuple[str, dict[str, Any]]:
    """Return (kind, data); data is plain JSON without `at`."""
    if isinstance(event, Unknown):
        return event.recorded_kind, dict(event.data)
    return event.kind, {name: value for name, value in to_json(event).items() if name != "at"}


def decode(kind: str, at: float, data: Mapping[str, Any]) -> Event:
    """Return the event; `Unknown` for a kind of a newer version and for data that do not fit the kind.

    Fields that a newer version added to a known kind are ignored.
    """
    try:
        event: Event = from_json(KINDS[kind], {**data, "at": at})
    except (KeyError, ValueError):
        return Unknown(at=at, recorded_kind=kind, data=dict(data))
    return event


WRITTEN, BEGUN = "document", "document-begun"
PLAN = "plan"  # the name of the plan, which is a row of the table `plans`


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the chain knows about one document.

    `written`: its SHA-256, empty after its removal, None without an entry. `begun`: SHA-256 of contents whose write
    began after that.
    """

    written: str | None = None
    begun: tuple[str, ...] = ()

    @property
    def is_recorded(self) -> bool:
        """Return whether the document exists, by the chain."""
        return bool(self.written)

    def accepts(self, content: bytes) -> bool:
        """Return whether the content is a recorded one. Without an entry there is nothing to compare with."""
        return self.written is None or sha256(content) in {self.written, *self.begun}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def is_entry() -> ColumnElement[bool]:
    """Return the condition for a row of the table `events` that is an entry about a document.

    The canonical JSON of a row ends with its kind.
    """
    return or_(*(events.c.body.like(f'%"kind":"{kind}"}}') for kind in (WRITTEN, BEGUN)))


ENTRIES = frozenset({WRITTEN, BEGUN})


def known_documents(connection: Connection, run: int) -> dict[str, Known]:
    """Return document → what the chain of the run knows about it."""
    query = select(events.c.body).where(and_(events.c.run == run, is_entry())).order_by(events.c.number)
    return fold(connection.execute(query).scalars())


def fold(bodies: Iterable[str]) -> dict[str, Known]:
    """Return document → what these entries say, oldest first."""
    known: dict[str, Known] = {}
    for body in bodies:
        entry = json.loads(body)
        name, value = str(entry["data"]["name"]), str(entry["data"]["sha256"])
        if entry["kind"] == WRITTEN:
            known[name] = Known(written=value)
        else:
            before = known.get(name, Known())
            known[name] = Known(written=before.written, begun=(*before.begun, value))
    return known
