"""The history of a run: rows in the database, and documents below the URL of the artifacts (port RunStore).

Events form a hash chain: the hash of an event covers the previous hash and the canonical JSON of the event. The row of
the run has the number of events and the newest hash, so a check also finds that the last events are missing. The chain
also has entries with the hashes of the documents and of the plan (`entries`).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, exists, func, insert, or_, select, update

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.base.system.files import safe_name
from kafka_rollout.gates.check import BeforeStop
from kafka_rollout.model.plan import Plan
from kafka_rollout.run.events import Asked, Event
from kafka_rollout.run.store.artifacts import Artifacts, artifact_key
from kafka_rollout.run.store.database import Database, put
from kafka_rollout.run.store.entries import (
    BEGUN,
    ENTRIES,
    PLAN,
    WRITTEN,
    Known,
    decode,
    encode,
    is_entry,
    known_documents,
    sha256,
)
from kafka_rollout.run.store.tables import artifacts, before_stops, events, fingerprints, plans, runs

_NO_HASH = "0" * 64  # before the first event
_NEWEST_FIRST = runs.c.updated_at.desc(), runs.c.id.desc()
_REPORT, _REPORT_PAGE = "report.json", "report.html"
_NEWEST = 8  # entries of a run that has asked: the request, and documents of other tasks after it
_WITHOUT_EVENTS = 10  # rows of a cluster that have only documents: test traffic without a run
_LATE_S = 60.0  # a transaction can commit after one with a later time
_ASKING: dict[tuple[str, str], tuple[float, tuple[int, ...]]] = {}  # database, cluster → newest time, rows that ask
_READS = 5  # of a document that another process replaces at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHistory:
    """The events of a run up to the entry `number` of its hash chain, whose hash is `hash`. `run`: id of its row.

    `has_documents`: the plan or a document can have changed since the events that were known before.
    """

    run: int = 0
    number: int = 0
    hash: str = ""
    events: tuple[Event, ...] = ()
    has_documents: bool = True


class SqlRunStore:
    """The history of one run. The first write creates its row. `private`: folder of this machine for secret files."""

    def __init__(
        self,
        database: Database,
        documents: Artifacts,
        private: Path,
        cluster: str,
        run_id: str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        safe_name(run_id)
        self.run_id = run_id
        self.cluster = cluster
        self._database = database
        self._documents = documents
        self._private = private
        self._clock = clock
        self._read: ReadHistory | None = None

    def save_plan(self, plan: Plan) -> None:
        body = json.dumps(to_json(plan), ensure_ascii=False)
        with self._writing() as (connection, run):
            put(connection, plans, {"run": run.id}, {"body": body})
            self._enter(connection, run, WRITTEN, PLAN, sha256(body.encode()))

    def load_plan(self) -> Plan:
        """Return the plan. Raises UserError if the run has none, FatalError if it is damaged or was changed."""
        with self._database.reading() as connection:
            row = connection.execute(select(plans.c.run, plans.c.body).join(runs).where(*self._this())).one_or_none()
            body = None if row is None else row.body
            known = Known() if row is None else self._known(connection, row.run, PLAN)
        if body is None:
            raise UserError(
                f"Run {self.run_id} of cluster {self.cluster} has no plan.",
                remedy="Create the plan first, in this run.",
            )
        try:
            if not known.accepts(body.encode()):
                raise ValueError("not the plan that was recorded")
            return from_json(Plan, json.loads(body))
        except ValueError:
            raise FatalError(
                f"The plan of run {self.run_id} of cluster {self.cluster} is damaged or was changed after it was made.",
                remedy="Start a new run. It creates a new plan from the current state of the cluster.",
            ) from None

    def save_before_stop(self, release_step: str, before: BeforeStop, *, replace: bool = False) -> None:
        body = json.dumps(to_json(before), ensure_ascii=False)
        with self._writing() as (connection, run):
            key = {"run": run.id, "release_step": release_step, "node_id": before.node_id}
            if replace or connection.execute(select(before_stops).filter_by(**key)).first() is None:
                put(connection, before_stops, key, {"body": body})

    def load_before_stop(self, release_step: str, node_id: int) -> BeforeStop | None:
        query = select(before_stops.c.body).join(runs)
        which = (before_stops.c.release_step == release_step, before_stops.c.node_id == node_id)
        rows = self._database.read(query.where(*self._this(), *which))
        try:
            return from_json(BeforeStop, json.loads(rows[0].body)) if rows else None
        except ValueError:
            raise FatalError(
                f"The state of node {node_id} before its stop, in run {self.run_id}, is damaged.",
                remedy="Compare the node's partitions by hand before you continue.",
            ) from None

    def save_fingerprints(self, hashes: Mapping[int, str]) -> None:
        with self._writing() as (connection, run):
            connection.execute(delete(fingerprints).where(fingerprints.c.run == run.id))
            for node_id, value in hashes.items():
                connection.execute(insert(fingerprints).values(run=run.id, node_id=node_id, hash=value))

    def load_fingerprints(self) -> dict[int, str]:
        query = select(fingerprints.c.node_id, fingerprints.c.hash).join(runs).where(*self._this())
        return {row.node_id: row.hash for row in self._database.read(query)}

    def record(self, event: Event) -> None:
        kind, data = encode(event)
        body = canonical_json({"at": event.at or self._clock(), "kind": kind, "data": data})
        with self._writing() as (connection, run):
            self._append(connection, run, body)
            now = self._database.now(connection)
            connection.execute(update(runs).where(runs.c.id == run.id).values(updated_at=now))

    def events(self) -> tuple[Event, ...]:
        """As in RunStore. Raises FatalError for a damaged row.

        Every step asks for them several times, so only rows that are new since the last call are read and decoded.
        """
        read = self.read_history(self._read)
        self._read = read  # another thread can replace it with an older one; its next call reads the rest
        return read.events

    def read_history(self, known: ReadHistory | None = None) -> ReadHistory:
        """Return the history as it is now. Of one that continues `known`, only the new rows are read.

        Raises FatalError for a damaged row.
        """
        query = select(events).join(runs).where(*self._this()).order_by(events.c.number)
        if known is not None:
            query = query.where(events.c.number >= known.number)
        rows = self._database.read(query)
        if known is None:
            return self._history(rows, ReadHistory())
        if not rows or (rows[0].run, rows[0].number, rows[0].hash) != (known.run, known.number, known.hash):
            return self.read_history()  # another history, for example from a backup
        return self._history(rows[1:], replace(known, has_documents=False))

    def _history(self, rows: Sequence[Row[Any]], known: ReadHistory) -> ReadHistory:
        """Return `known` with the rows that follow."""
        if not rows:
            return known
        new = tuple(event for event in map(self._event, rows) if event is not None)
        return ReadHistory(
            run=rows[-1].run,
            number=rows[-1].number,
            hash=rows[-1].hash,
            events=known.events + new,
            has_documents=known.has_documents or len(new) < len(rows),
        )

    def verify_chain(self) -> str:
        with self._database.reading() as connection:
            run = connection.execute(select(runs).where(*self._this())).one_or_none()
            if run is None:
                return ""
            rows = connection.execute(select(events).where(events.c.run == run.id).order_by(events.c.number)).all()
        previous = _NO_HASH
        for expected, row in enumerate(rows, start=1):
            if row.number != expected:
                return f"Event {expected} is missing: event {row.number} follows event {expected - 1}."
            if row.hash != chain_hash(previous, row.body):
                return f"Event {expected} was altered, or events were removed or reordered: its hash does not match."
            previous = row.hash
        if (len(rows), previous) != (run.event_count, run.last_hash):
            return f"The events after event {len(rows)} are missing: the run recorded {run.event_count}."
        with self._database.reading() as connection:
            documents = known_documents(connection, run.id)
        for name, known in documents.items():
            try:
                if name == PLAN:
                    self.load_plan()
                elif known.is_recorded:
                    self.page(name)
            except (FatalError, UserError) as error:
                return error.sentence
        return ""

    def attachment(self, name: str, kind: type | None = None) -> Any | None:
        content = self.page(name)
        try:
            data = None if content is None else json.loads(content)
            return data if data is None or kind is None else from_json(kind, data)
        except ValueError:
            raise FatalError(
                f"The document {self.location(name)} of run {self.run_id} is damaged.",
                remedy="Restore it from a backup, or repeat the task that writes it.",
            ) from None

    def page(self, name: str) -> str | None:
        seen: Known | None = None
        for _ in range(_READS):
            has_row, known = self._find(name)
            if not has_row and not known.is_recorded:
                return None
            content = self._documents.read(self._key(name)) if has_row else b""
            if has_row and known.accepts(content):
                return content.decode()
            if known == seen:  # no other process replaced it between the two reads
                break
            seen = known
        raise FatalError(
            f"The document {self.location(name)} of run {self.run_id} of cluster {self.cluster} was changed or removed "
            "after the run wrote it: its hash does not match the run history.",
            remedy="Find out who can write to KAFKA_ROLLOUT_ARTIFACTS. Restore the document from a backup, or repeat "
            "the task that writes it.",
        )

    def attach(self, name: str, data: Any) -> None:
        self.attach_page(name, json.dumps(to_json(data), ensure_ascii=False))

    def attach_page(self, name: str, content: str) -> None:
        """Write a document, then its row and its entry in the chain. So a document with a row is complete."""
        encoded = content.encode()
        value = sha256(encoded)
        while not self._write(name, encoded, value):
            with self._writing() as (connection, run):
                self._enter(connection, run, BEGUN, name, value)

    def detach(self, name: str) -> None:
        with self._writing() as (connection, run):
            which = (artifacts.c.run == run.id, artifacts.c.name == name)
            if connection.execute(delete(artifacts).where(*which)).rowcount:
                self._enter(connection, run, WRITTEN, name, "")
        self._documents.remove(self._key(name))

    def write_report(self, html: str, report: Any) -> tuple[str, str]:
        self.attach_page(_REPORT, json.dumps(to_json(report), indent=1, ensure_ascii=False))
        self.attach_page(_REPORT_PAGE, html)
        return self.location(_REPORT_PAGE), self.location(_REPORT)

    def location(self, name: str) -> str:
        return self._documents.location(self._key(name))

    def private_path(self, name: str) -> Path:
        folder = self._private
        for part in ("", safe_name(self.cluster), safe_name(self.run_id)):
            folder /= part
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
        return folder / safe_name(name)

    def _write(self, name: str, content: bytes, value: str) -> bool:
        """Write a document. Returns False, and writes nothing, if the chain must first say that its write begins."""
        with self._writing() as (connection, run):
            known = self._known(connection, run.id, name)
            if known.is_recorded and value not in {known.written, *known.begun}:
                return False
            self._documents.write(self._key(name), content)
            values = {"size_bytes": len(content), "written_at": self._database.now(connection)}
            put(connection, artifacts, {"run": run.id, "name": name}, values)
            if known != Known(written=value):
                self._enter(connection, run, WRITTEN, name, value)
        return True

    def _find(self, name: str) -> tuple[bool, Known]:
        """Return whether the document has a row, and what the chain knows about it."""
        with self._database.reading() as connection:
            run = connection.execute(select(runs.c.id).where(*self._this())).scalar_one_or_none()
            if run is None:
                return False, Known()
            query = select(artifacts.c.name).where(artifacts.c.run == run, artifacts.c.name == name)
            return connection.execute(query).first() is not None, self._known(connection, run, name)

    def _known(self, connection: Connection, run: int, name: str) -> Known:
        try:
            return known_documents(connection, run).get(name, Known())
        except (ValueError, TypeError, KeyError):
            raise self._damaged("An entry about a document") from None

    def _enter(self, connection: Connection, run: Row[Any], kind: str, name: str, value: str) -> None:
        """Append an entry about a document to the chain. `value`: its SHA-256; empty if it is removed."""
        entry = {"at": self._clock(), "kind": kind, "data": {"name": name, "sha256": value}}
        self._append(connection, run, canonical_json(entry))

    def _append(self, connection: Connection, run: Row[Any], body: str) -> None:
        """Append a row to the chain. `run`: the locked row of the run, as it was at the begin of the transaction."""
        number, value = run.event_count + 1, chain_hash(run.last_hash, body)
        connection.execute(insert(events).values(run=run.id, number=number, body=body, hash=value))
        changed = {"event_count": number, "last_hash": value}
        connection.execute(update(runs).where(runs.c.id == run.id).values(**changed))

    def _key(self, name: str) -> str:
        return artifact_key("runs", self.cluster, self.run_id, name)

    def _this(self) -> tuple[Any, ...]:
        return runs.c.cluster == self.cluster, runs.c.run_id == self.run_id

    @contextmanager
    def _writing(self) -> Iterator[tuple[Connection, Row[Any]]]:
        """Open a transaction and lock the row of the run, so that only one process writes to a run at a time."""
        with self._database.begin() as connection:
            query = select(runs).where(*self._this()).with_for_update()
            row = connection.execute(query).one_or_none()
            if row is None:
                self._create(connection)
                row = connection.execute(query).one()
            yield connection, row

    def _create(self, connection: Connection) -> None:
        now = self._database.now(connection)
        values = {"created_at": now, "updated_at": now, "event_count": 0, "last_hash": _NO_HASH}
        row = {"cluster": self.cluster, "run_id": self.run_id, **values}
        if self._database.is_sqlite:
            connection.execute(insert(runs).values(**row))
            return
        from sqlalchemy.dialects import postgresql

        connection.execute(postgresql.insert(runs).values(**row).on_conflict_do_nothing())

    def _event(self, row: Row[Any]) -> Event | None:
        """Return the event; None for an entry about a document."""
        try:
            body = json.loads(row.body)
            kind, at, data = str(body["kind"]), float(body["at"]), dict(body["data"])
            return None if kind in ENTRIES else decode(kind, at, data)
        except (ValueError, TypeError, KeyError):
            raise self._damaged(f"Event {row.number}") from None

    def _damaged(self, what: str) -> FatalError:
        return FatalError(
            f"{what} of run {self.run_id} of cluster {self.cluster} is damaged.",
            remedy=f"Run `kafka-rollout runs verify --cluster {self.cluster} --run {self.run_id}`, and restore the "
            "database from a backup.",
        )


def canonical_json(event: Mapping[str, Any]) -> str:
    """Return the canonical JSON of an event: sorted keys, no spaces."""
    return json.dumps(event, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def chain_hash(previous: str, body: str) -> str:
    return hashlib.sha256(f"{previous}{body}".encode()).hexdigest()


def list_clusters_of_run(database: Database, run_id: str) -> tuple[str, ...]:
    """Return the names of the clusters that have a run with this id, sorted."""
    query = select(runs.c.cluster).where(runs.c.run_id == run_id).order_by(runs.c.cluster)
    return tuple(row.cluster for row in database.read(query))


def list_runs(database: Database, cluster: str) -> tuple[str, ...]:
    """Return the ids of the cluster's runs that have events, the last changed first."""
    return tuple(list_run_versions(database, cluster))


def list_run_versions(database: Database, cluster: str, at_most: int | None = None) -> dict[str, str]:
    """Return run id → version of its history, the last changed first, for runs that have events.

    The version changes with every event and every document. `at_most`: number of runs; None: all.
    """
    query = select(runs.c.id, runs.c.run_id, runs.c.event_count, runs.c.last_hash).where(runs.c.cluster == cluster)
    if at_most is not None:  # so that the events of older runs are not searched
        enough = select(runs.c.id).where(runs.c.cluster == cluster, runs.c.event_count > 0).order_by(*_NEWEST_FIRST)
        query = query.where(runs.c.id.in_(enough.limit(at_most + _WITHOUT_EVENTS)))
    query = query.where(exists().where(events.c.run == runs.c.id, ~is_entry())).order_by(*_NEWEST_FIRST)
    rows = database.read(query.limit(at_most))
    return {row.run_id: f"{row.id}-{row.event_count}-{row.last_hash}" for row in rows}


def list_changed_runs(database: Database, cluster: str, since: float) -> tuple[str, ...]:
    """Return the ids of the cluster's runs with an event after `since` (epoch seconds), the last changed first."""
    query = select(runs.c.run_id).where(runs.c.cluster == cluster, runs.c.updated_at > since, runs.c.event_count > 0)
    return tuple(row.run_id for row in database.read(query.order_by(*_NEWEST_FIRST)))


def list_asking_runs(database: Database, cluster: str) -> tuple[str, ...]:
    """Return the ids of the cluster's runs whose newest entries have a request, the last changed first.

    A run that waits for an answer records nothing, apart from documents. Read its events to know whether it waits. A
    process searches all runs once, later those that asked and those with events since.
    """
    newest = and_(events.c.run == runs.c.id, events.c.number > runs.c.event_count - _NEWEST)
    asks = exists().where(newest, events.c.body.like(f'%"kind":"{Asked.kind}"}}'))
    query = select(runs.c.id, runs.c.run_id).where(runs.c.cluster == cluster)
    since, known = _ASKING.get((database.name, cluster), (0.0, ()))
    with database.reading() as connection:
        newest_at = select(func.max(runs.c.updated_at)).where(runs.c.cluster == cluster)
        until = connection.execute(newest_at).scalar_one() or 0.0
        if since <= until:  # else the database is another one, for example from a backup
            query = query.where(or_(runs.c.id.in_(known), runs.c.updated_at > since - _LATE_S))
        rows = connection.execute(query.where(asks).order_by(*_NEWEST_FIRST)).all()
    _ASKING[database.name, cluster] = until, tuple(row.id for row in rows)
    return tuple(row.run_id for row in rows)


def list_reported_runs(database: Database, cluster: str, at_most: int) -> tuple[str, ...]:
    """Return the ids of the cluster's newest runs that have a report, the last written first."""
    query = select(runs.c.run_id).join(artifacts).where(runs.c.cluster == cluster, artifacts.c.name == _REPORT)
    rows = database.read(query.order_by(artifacts.c.written_at.desc()).limit(at_most))
    return tuple(row.run_id for row in rows)
