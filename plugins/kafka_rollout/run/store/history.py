"""The history of a run: rows in the database, and documents below the URL of the artifacts (port RunStore).

The rows of the plan and of each document have the SHA-256 of the content. It detects damage, and a document that was
replaced outside of the tool. It does not prove who wrote what: a user who can write to the database can write a digest.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.base.system.files import safe_name
from kafka_rollout.base.wording import few
from kafka_rollout.gates.gate import BeforeStop
from kafka_rollout.model.plan import Plan
from kafka_rollout.run.events import Asked, E, Event, Unknown, events_of
from kafka_rollout.run.store.artifacts import Artifacts, artifact_key
from kafka_rollout.run.store.claims import read_known_claims
from kafka_rollout.run.store.database import Database, put
from kafka_rollout.run.store.event_json import decode, encode
from kafka_rollout.run.store.tables import artifacts, before_stops, events, fingerprints, leases, plans, runs

_NEWEST_FIRST = runs.c.updated_at.desc(), runs.c.id.desc()
_REPORT, _REPORT_PAGE = "report.json", "report.html"
_NEWEST = 8  # events of a run that has asked: the request, and events of other tasks after it
_LATE_S = 60.0  # a transaction can commit after one with a later time
_ASKING: dict[tuple[str, str], tuple[float, tuple[int, ...]]] = {}  # database, cluster → newest time, rows that ask
# Built once: each step reads and records several times, and building a statement takes longer than executing it.
_THIS = (runs.c.cluster == bindparam("cluster"), runs.c.run_id == bindparam("run_id"))
_NEWEST_NUMBER = select(func.coalesce(func.max(runs.c.number), 0)).where(runs.c.cluster == bindparam("cluster"))
_RUN_FOR_UPDATE = select(runs).where(*_THIS).with_for_update()
_NEXT_VERSION = update(runs).where(runs.c.id == bindparam("run"))
_NEW_EVENT = insert(events)
_NEW_EVENTS = (
    select(events, runs.c.version, runs.c.number.label("run_number"))
    .join(runs)
    .where(*_THIS, events.c.number >= bindparam("first"))
    .order_by(events.c.number)
)
_DIGESTS = (
    select(artifacts.c.sha256, artifacts.c.next_sha256).join(runs).where(*_THIS, artifacts.c.name == bindparam("name"))
)
_PLAN = select(plans).join(runs).where(*_THIS)
_BEFORE_STOP = (
    select(before_stops.c.body)
    .join(runs)
    .where(
        *_THIS,
        before_stops.c.release_step == bindparam("release_step"),
        before_stops.c.node_id == bindparam("node_id"),
    )
)
_READS = 5  # of a document that another process replaces at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHistory:
    """The events of a run as they were read."""

    run: int = 0
    """Id of its row; 0 without an event."""
    number: int = 0
    """What the run is called; 0 without an event."""
    version: int = 0
    """Version of the run, which grows with each event and each change of a document."""
    newest: str = ""
    """The row of the newest event."""
    events: tuple[Event, ...] = ()
    has_documents: bool = True
    """Whether the plan or a document can have changed since the events that were known before."""


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
        self._known_claims: frozenset[str] = frozenset()
        self._this = {"cluster": cluster, "run_id": run_id}
        self._number = 0

    @property
    def number(self) -> int:
        """As in RunQueries. The first call for a new run creates its row."""
        if not self._number:
            found = self._database.read(select(runs.c.number).where(*_THIS), self._this)
            if found:
                self._number = found[0].number
            else:
                with self._writing() as (_, run):
                    self._number = run.number
        return self._number

    def save_plan(self, plan: Plan) -> None:
        body = json.dumps(to_json(plan), ensure_ascii=False)
        with self._writing() as (connection, run):
            put(connection, plans, {"run": run.id}, {"body": body, "sha256": sha256(body.encode())})
            self._count(connection, run, cluster_id=plan.cluster_id)

    def load_plan(self) -> Plan:
        """Return the plan. Raises UserError if the run has none, FatalError if it is damaged or was changed."""
        rows = self._database.read(_PLAN, self._this)
        if not rows:
            raise UserError(
                f"Run {self.number} of cluster {self.cluster} has no plan.",
                remedy="Create the plan first, in this run.",
            )
        try:
            if sha256(rows[0].body.encode()) != rows[0].sha256:
                raise ValueError("not the plan that was recorded")
            return from_json(Plan, json.loads(rows[0].body))
        except ValueError:
            raise FatalError(
                f"The plan of run {self.number} of cluster {self.cluster} is damaged or was changed after it was made.",
                remedy="Start a new run. It creates a new plan from the current state of the cluster.",
            ) from None

    def save_before_stop(self, release_step: str, before: BeforeStop, *, replace: bool = False) -> None:
        body = json.dumps(to_json(before), ensure_ascii=False)
        with self._writing() as (connection, run):
            key = {"run": run.id, "release_step": release_step, "node_id": before.node_id}
            if replace or connection.execute(select(before_stops).filter_by(**key)).first() is None:
                put(connection, before_stops, key, {"body": body})

    def load_before_stop(self, release_step: str, node_id: int) -> BeforeStop | None:
        rows = self._database.read(_BEFORE_STOP, {**self._this, "release_step": release_step, "node_id": node_id})
        try:
            return from_json(BeforeStop, json.loads(rows[0].body)) if rows else None
        except ValueError:
            raise FatalError(
                f"The state of node {node_id} before its stop, in run {self.number}, is damaged.",
                remedy="Compare the node's partitions by hand before you continue.",
            ) from None

    def save_fingerprints(self, hashes: Mapping[int, str]) -> None:
        with self._writing() as (connection, run):
            connection.execute(delete(fingerprints).where(fingerprints.c.run == run.id))
            for node_id, value in hashes.items():
                connection.execute(insert(fingerprints).values(run=run.id, node_id=node_id, hash=value))

    def load_fingerprints(self) -> dict[int, str]:
        query = select(fingerprints.c.node_id, fingerprints.c.hash).join(runs).where(*_THIS)
        return {row.node_id: row.hash for row in self._database.read(query, self._this)}

    def record(self, event: Event) -> None:
        kind, data = encode(event)
        body = canonical_json({"at": event.at or self._clock(), "kind": kind, "data": data})
        with self._writing() as (connection, run):
            number = run.event_count + 1
            connection.execute(_NEW_EVENT, {"run": run.id, "number": number, "kind": kind, "body": body})
            self._count(connection, run, event_count=number, updated_at=self._database.now(connection))

    def events(self) -> tuple[Event, ...]:
        """As in RunStore. Raises FatalError for a damaged row.

        Every step asks for them several times, so only rows that are new since the last call are read and decoded.
        """
        read = self.read_history(self._read)
        self._read = read  # another thread can replace it with an older one; its next call reads the rest
        return read.events

    def events_of_other_runs(self, kind: type[E]) -> tuple[E, ...]:
        """As in RunQueries. A damaged row is left out."""
        found = list[Event]()
        for row in self._events_of_others([kind]):
            with suppress(FatalError):
                found.append(self._event(row))
        return events_of(sorted(found, key=lambda one: one.at), kind)

    def events_by_other_run(self, *kinds: type[Event]) -> dict[str, tuple[Event, ...] | None]:
        """As in RunQueries."""
        count = func.count(events.c.number).label("found")
        query = select(runs, count).outerjoin(events).where(self._others()).group_by(runs.c.id)
        whole = self._database.read(query.order_by(runs.c.created_at, runs.c.id))
        rows: dict[int, list[Row[Any]]] = {}
        for row in self._events_of_others(kinds):
            rows.setdefault(row.run, []).append(row)
        return {
            str(run.number) if run.cluster == self.cluster else f"{run.number} of cluster {run.cluster}": (
                self._read_all(rows.get(run.id, ())) if run.found >= run.event_count else None
            )
            for run in whole
        }

    def _others(self) -> ColumnElement[bool]:
        """Return which runs are the other ones of the cluster. The inventory can have given it other names before, and
        its name to another cluster. The id is that of the plan, or before the plan that of the lock.
        """
        lease = select(leases.c.cluster_id).where(leases.c.cluster == self.cluster, leases.c.holder == self.run_id)
        known = (*self._database.read(select(runs.c.cluster_id).where(*_THIS), self._this), *self._database.read(lease))
        found = next((row.cluster_id for row in known if row.cluster_id), "")
        of_name = runs.c.cluster == self.cluster
        of_cluster = or_(runs.c.cluster_id == found, and_(of_name, runs.c.cluster_id == "")) if found else of_name
        return and_(of_cluster, or_(runs.c.cluster != self.cluster, runs.c.run_id != self.run_id))

    def _events_of_others(self, kinds: Collection[type[Event]]) -> Sequence[Row[Any]]:
        """Return the rows of events of these kinds, those of a run in their order."""
        query = select(events).join(runs).where(self._others(), events.c.kind.in_([kind.kind for kind in kinds]))
        return self._database.read(query.order_by(events.c.run, events.c.number))

    def _read_all(self, rows: Iterable[Row[Any]]) -> tuple[Event, ...] | None:
        """Return the events; None if one is damaged."""
        try:
            found = tuple(map(self._event, rows))
        except FatalError:
            return None
        return None if any(isinstance(one, Unknown) for one in found) else found

    def known_claims(self, nonces: Collection[str]) -> frozenset[str]:
        """As in RunQueries. A nonce that was known stays known, so only new ones need the database."""
        if not self._known_claims.issuperset(nonces):
            self._known_claims = read_known_claims(self._database)
        return self._known_claims.intersection(nonces)

    def read_history(self, known: ReadHistory | None = None) -> ReadHistory:
        """Return the history as it is now. Of one that continues `known`, only the new rows are read.

        Raises FatalError for a damaged row.
        """
        known = known or ReadHistory()
        rows = self._database.read(_NEW_EVENTS, {**self._this, "first": len(known.events)})
        if not rows:
            return ReadHistory()
        if known.events and (rows[0].run, rows[0].number, rows[0].body) != (known.run, len(known.events), known.newest):
            return self.read_history()  # another history, for example from a backup
        new = rows[1:] if known.events else rows
        return ReadHistory(
            run=rows[0].run,
            number=rows[0].run_number,
            version=rows[0].version,
            newest=rows[-1].body,
            events=known.events + tuple(map(self._event, new)),
            has_documents=not known.events or rows[0].version - known.version != len(new),
        )

    def find_damage(self) -> str:
        """Return a sentence about the first event, plan or document that is missing or damaged; empty if none is."""
        counts = self._database.read(select(runs.c.event_count).where(*_THIS), self._this)
        stored = select(events.c.number).join(runs).where(*_THIS)
        numbers = {row.number for row in self._database.read(stored, self._this)}
        if missing := sorted({number + 1 for row in counts for number in range(row.event_count)} - numbers):
            return f"Of {counts[0].event_count} events, these are missing: {few(missing)}."
        names = select(artifacts.c.name).join(runs).where(*_THIS).order_by(artifacts.c.name)
        try:
            self.read_history()
            with suppress(UserError):  # it has no plan
                self.load_plan()
            for row in self._database.read(names, self._this):
                self.page(row.name)
        except FatalError as error:
            return error.sentence
        return ""

    def attachment(self, name: str, kind: type | None = None) -> Any | None:
        content = self.page(name)
        try:
            data = None if content is None else json.loads(content)
            return data if data is None or kind is None else from_json(kind, data)
        except ValueError:
            raise FatalError(
                f"The document {self.location(name)} of run {self.number} is damaged.",
                remedy="Restore it from a backup, or repeat the task that writes it.",
            ) from None

    def page(self, name: str) -> str | None:
        seen = None
        for _ in range(_READS):
            with self._database.reading() as connection:
                row = self._row(connection, name)
            if row is None:
                return None
            content = self._documents.read(self._key(name))
            if sha256(content) in row:
                return content.decode()
            if row == seen:  # no other process replaced it between the two reads
                break
            seen = row
        raise FatalError(
            f"The document {self.location(name)} of run {self.number} of cluster {self.cluster} was changed "
            "after the run wrote it: its SHA-256 is another one.",
            remedy="Find out who can write to KAFKA_ROLLOUT_ARTIFACTS. Restore the document from a backup, or repeat "
            "the task that writes it.",
        )

    def attach(self, name: str, data: Any) -> None:
        self.attach_page(name, json.dumps(to_json(data), ensure_ascii=False))

    def attach_page(self, name: str, content: str) -> None:
        """Write a document, then its row. So a document with a row is complete.

        Before a document is replaced, its row says that this write begins. If the process is killed during the write,
        the old and the new content are both accepted.
        """
        encoded = content.encode()
        value = sha256(encoded)
        while True:
            self._begin(name, value)
            with self._writing() as (connection, run):
                row = self._row(connection, name)
                if row is not None and value not in (row.sha256, row.next_sha256):
                    continue  # another process began to replace it
                self._documents.write(self._key(name), encoded)
                about = {"size_bytes": len(encoded), "sha256": value, "next_sha256": ""}
                about["written_at"] = self._database.now(connection)
                put(connection, artifacts, {"run": run.id, "name": name}, about)
                if row is None or row.sha256 != value:
                    self._count(connection, run)
            return

    def detach(self, name: str) -> None:
        with self._writing() as (connection, run):
            which = (artifacts.c.run == run.id, artifacts.c.name == name)
            if connection.execute(delete(artifacts).where(*which)).rowcount:
                self._count(connection, run)
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

    def _begin(self, name: str, value: str) -> None:
        """Record that another content of a document is being written. `value`: its SHA-256."""
        with self._writing() as (connection, run):
            row = self._row(connection, name)
            if row is None or value == row.sha256:
                return
            before = row.sha256
            if row.next_sha256:  # of a killed process: which of the two contents is there?
                with suppress(FatalError):  # it is missing, and is written now
                    content = sha256(self._documents.read(self._key(name)))
                    before = content if content == row.next_sha256 else before
            which = (artifacts.c.run == run.id, artifacts.c.name == name)
            connection.execute(update(artifacts).where(*which).values(sha256=before, next_sha256=value))

    def _row(self, connection: Connection, name: str) -> Any | None:
        """Return the SHA-256 of a document, and that of a content whose write began; None if there is no document."""
        return connection.execute(_DIGESTS, {**self._this, "name": name}).one_or_none()

    def _count(self, connection: Connection, run: Row[Any], **values: Any) -> None:
        """Write the next version into the locked row of the run."""
        connection.execute(_NEXT_VERSION, {"run": run.id, "version": run.version + 1, **values})

    def _key(self, name: str) -> str:
        return artifact_key("runs", self.cluster, self.run_id, name)

    @contextmanager
    def _writing(self) -> Iterator[tuple[Connection, Row[Any]]]:
        """Open a transaction and lock the row of the run, so that only one process writes to a run at a time."""
        with self._database.begin() as connection:
            while (row := connection.execute(_RUN_FOR_UPDATE, self._this).one_or_none()) is None:
                self._create(connection)  # not if another process has created a run of the cluster at the same time
            yield connection, row

    def _create(self, connection: Connection) -> None:
        now = self._database.now(connection)
        values = {"created_at": now, "updated_at": now, "event_count": 0, "version": 0}
        newest = connection.execute(_NEWEST_NUMBER, self._this).scalar_one()
        row = {"cluster": self.cluster, "run_id": self.run_id, "number": newest + 1, "cluster_id": "", **values}
        if self._database.is_sqlite:
            connection.execute(insert(runs).values(**row))
            return
        from sqlalchemy.dialects import postgresql

        connection.execute(postgresql.insert(runs).values(**row).on_conflict_do_nothing())

    def _event(self, row: Row[Any]) -> Event:
        try:
            body = json.loads(row.body)
            if body["kind"] != row.kind:
                raise ValueError("another kind")
            return decode(row.kind, float(body["at"]), dict(body["data"]))
        except (ValueError, TypeError, KeyError):
            raise FatalError(
                f"Event {row.number} of run {self.number} of cluster {self.cluster} is damaged.",
                remedy="Restore the database from a backup.",
            ) from None


def canonical_json(event: Mapping[str, Any]) -> str:
    """Return the canonical JSON of an event: sorted keys, no spaces."""
    return json.dumps(event, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


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
    query = select(runs).where(runs.c.cluster == cluster, runs.c.event_count > 0).order_by(*_NEWEST_FIRST)
    rows = database.read(query.limit(at_most))
    return {row.run_id: f"{row.id}-{row.version}-{row.updated_at}" for row in rows}


def list_changed_runs(database: Database, cluster: str, since: float) -> tuple[str, ...]:
    """Return the ids of the cluster's runs with an event after `since` (epoch seconds), the last changed first."""
    query = select(runs.c.run_id).where(runs.c.cluster == cluster, runs.c.updated_at > since, runs.c.event_count > 0)
    return tuple(row.run_id for row in database.read(query.order_by(*_NEWEST_FIRST)))


def list_asking_runs(database: Database, cluster: str) -> tuple[str, ...]:
    """Return the ids of the cluster's runs whose newest events have a request, the last changed first.

    A run that waits for an answer records nothing else. Read its events to know whether it waits. A
    process searches all runs once, later those that asked and those with events since.
    """
    newest = and_(events.c.run == runs.c.id, events.c.number > runs.c.event_count - _NEWEST)
    asks = exists().where(newest, events.c.kind == Asked.kind)
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
