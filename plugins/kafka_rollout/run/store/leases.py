"""One change at a time per cluster, as a lease in the database (port ChangeLock).

The lease is a row, because a run has many short processes and can wait for an approval for days. `acting` holds a
second lock that ends with its process: a file lock next to a SQLite file, or an advisory lock of a PostgreSQL
connection. A process that acts takes the next fencing token of the cluster. An earlier process of the same run, or a
run whose lease has expired, no longer has the newest token and is rejected before its next action. Times are from the
database's clock.

A call is what a person begins: a command, a DAG run, each clear of its tasks. The log of the lock has each command and
each clear from when the person makes it. `break_` fences all but those that the log has after it, until `admit`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from secrets import token_hex
from threading import Event, RLock, Thread
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from kafka_rollout.base.errors import (
    FatalError,
    LockBrokenError,
    LockHeldError,
    RefusedError,
    RolloutError,
    TransientError,
    UserError,
)
from kafka_rollout.base.lease import NEWEST_CALL, ActingProcess, CallState, Lock, is_clear
from kafka_rollout.base.system.files import make_private, private_lock_file, safe_name
from kafka_rollout.base.time_limits import CHANGE_WITHIN_S, LEASE_S, RENEW_EVERY_S
from kafka_rollout.run.store.claims import CLAIMED, TAKEN_OVER, read_known_claims
from kafka_rollout.run.store.database import Database, put
from kafka_rollout.run.store.run_names import name_run
from kafka_rollout.run.store.tables import lease_log, leases

log = logging.getLogger(__name__)

ANSWER_S = 10.0  # a database that does not answer a check in this time has lost its connection
_JOIN_S = ANSWER_S
CALLED, BROKEN, ADMITTED = "called", "broken", "admitted"
BEGAN, ENDED = "call began", "call ended"
_SESSION_S = 5.0
# Built once: building a statement takes longer than executing it.
_LEASE = select(leases).where(leases.c.cluster == bindparam("cluster"))
_FENCES = (
    select(lease_log)
    .where(lease_log.c.cluster == bindparam("cluster"), lease_log.c.what.in_([BROKEN, ADMITTED]))
    .order_by(lease_log.c.id)
)
_CALL = (
    select(lease_log.c.id)
    .where(
        lease_log.c.cluster == bindparam("cluster"), lease_log.c.what == CALLED, lease_log.c.body == bindparam("body")
    )
    .order_by(lease_log.c.id.desc())
    .limit(1)
)
_CALLED_AFTER = select(lease_log.c.body).where(
    lease_log.c.cluster == bindparam("cluster"), lease_log.c.what == CALLED, lease_log.c.id > bindparam("number")
)
_CALLS = (
    select(lease_log.c.what)
    .where(
        lease_log.c.cluster == bindparam("cluster"),
        lease_log.c.what.in_([BEGAN, ENDED]),
        lease_log.c.body == bindparam("body"),
    )
    .order_by(lease_log.c.id.desc())
    .limit(1)
)
_TWINS = (
    select(leases)
    .where(
        leases.c.cluster != bindparam("cluster"),
        leases.c.cluster_id == bindparam("cluster_id"),
        leases.c.holder != "",
        leases.c.expires_at > bindparam("now"),
    )
    .order_by(leases.c.cluster)
)


@dataclass(slots=True, kw_only=True)
class _Act:
    """The current action of this process. `connection` holds the advisory lock; None with SQLite."""

    cluster: str
    holder: str
    token: int
    connection: Connection | None
    guard: RLock
    nonce: str = ""
    """Empty before it claims a node."""


class SqlChangeLock:
    """Leases in a database. One instance is for one process; its threads can share it.

    `call`: of this process, for the calls of several processes (`call_of_clear`); NEWEST_CALL if it is not known. By
    default, each instance is a call.
    """

    def __init__(
        self, database: Database, *, call: str = "", renew_every_s: float = RENEW_EVERY_S, answer_s: float = ANSWER_S
    ) -> None:
        self._database = database
        self._call = call or token_hex(8)
        self._renew_every_s, self._answer_s = renew_every_s, answer_s
        self._taken: dict[str, int] = {}  # cluster → token of the lease that this process acquired last
        self._acts: dict[str, _Act] = {}

    def acquire(
        self, cluster: str, holder: str, purpose: str, *, for_s: float, shorten: bool = False, cluster_id: str = ""
    ) -> Lock:
        with self._database.serialized() as connection:
            now = self._database.now(connection)
            row = _row(connection, cluster)
            if broken := self._find_fence(connection, cluster, holder):
                raise _fenced(cluster, *broken)
            current = None if row is None else _lock(row)
            ours = None
            if current is not None and current.holder and current.expires_at > now:
                if current.holder != holder:
                    raise LockHeldError(
                        f"Run {name_run(connection, cluster, current.holder)} holds the lock of cluster {cluster} "
                        f"{_describe_lease(current)}",
                        remedy="Try again when that run has ended (in a DAG: clear this task and all downstream "
                        "tasks). If that run was killed, wait until its lease expires, or let an approver break the "
                        f"lock: kafka-rollout unlock --cluster {cluster} --as NAME",
                    )
                ours = current
                cluster_id = cluster_id or current.cluster_id
            if (twin := _twin(connection, cluster, cluster_id, now)) is not None:
                other = name_run(connection, twin.cluster, twin.holder)
                raise LockHeldError(
                    f"Run {other} holds the lock of cluster {cluster} under its other name {twin.cluster} "
                    f"{_describe_lease(twin)}",
                    remedy=f"Wait until that run has ended. Remove one of the inventory files {cluster} and "
                    f"{twin.cluster}: both describe the cluster {cluster_id}.",
                )
            newest = 0 if row is None else int(row.token)
            lock = Lock(
                cluster=cluster,
                holder=holder,
                purpose=purpose,
                acquired_at=ours.acquired_at if ours else now,
                expires_at=max(ours.expires_at, now + for_s) if ours and not shorten else now + for_s,
                cluster_id=cluster_id,
                token=ours.token if ours else newest + 1,
            )
            values = {**asdict(lock), "token": max(newest, lock.token), "lease_token": lock.token}
            put(connection, leases, {"cluster": cluster}, values)
            if current is not None and current.holder not in {"", holder}:
                _log(connection, now, "taken over", lock, taken_from=current.holder, expired_at=current.expires_at)
            elif ours is None:
                _log(connection, now, "acquired", lock)
        self._taken[cluster] = lock.token
        return lock

    def is_fenced(self, cluster: str, holder: str) -> bool:
        with self._database.reading() as connection:
            return self._find_fence(connection, cluster, holder) is not None

    def refuse_fenced(self, cluster: str, holder: str) -> None:
        with self._database.reading() as connection:
            fence = self._find_fence(connection, cluster, holder)
        if fence is not None:
            raise _fenced(cluster, *fence)

    def log_call(self, cluster: str, holder: str) -> None:
        """Log that a person has made this call of the run now. A repeated call logs it again."""
        with self._database.begin() as connection:
            _log(connection, self._database.now(connection), CALLED, _of_run(cluster, holder), call=self._call)

    def has_logged_call(self, cluster: str, holder: str) -> bool:
        """Return whether this call of the run was logged."""
        with self._database.reading() as connection:
            return self._find_call(connection, cluster, holder) is not None

    def admit(self, cluster: str, holder: str, by: str) -> None:
        with self._database.begin() as connection:
            _log(connection, self._database.now(connection), ADMITTED, _of_run(cluster, holder), by=by)

    def _find_fence(self, connection: Connection, cluster: str, holder: str) -> tuple[str, float] | None:
        """Return why the run lost the lock, and when; None if this call was logged or admitted after it."""
        of_run = [
            (int(row.id), row.what, float(row.at), json.loads(row.body))
            for row in connection.execute(_FENCES, {"cluster": cluster})
        ]
        of_run = [one for one in of_run if one[3]["lock"]["holder"] == holder]
        if not of_run or of_run[-1][1] == ADMITTED:
            return None
        number, _, at, body = of_run[-1]
        if self._call == NEWEST_CALL:
            after = connection.execute(_CALLED_AFTER, {"cluster": cluster, "number": number}).scalars()
            clears = (json.loads(one) for one in after)
            is_later = any(one["lock"]["holder"] == holder and is_clear(one["call"]) for one in clears)
        else:
            logged = self._find_call(connection, cluster, holder)
            is_later = logged is not None and logged > number
        return None if is_later else (body["why"], at)

    def _find_call(self, connection: Connection, cluster: str, holder: str) -> int | None:
        """Return the number of the newest entry of this call in the log."""
        entry = json.dumps({"lock": asdict(_of_run(cluster, holder)), "call": self._call}, ensure_ascii=False)
        return connection.execute(_CALL, {"cluster": cluster, "body": entry}).scalars().first()

    @contextmanager
    def acting(self, cluster: str, holder: str, what: str) -> Iterator[None]:
        with self._process_lock(cluster, what) as connection:
            token = self._begin(cluster, holder, what)
            act = _Act(cluster=cluster, holder=holder, token=token, connection=connection, guard=RLock())
            self._acts[cluster] = act
            try:
                mine = (leases.c.cluster == cluster, leases.c.token == token)
                with self._repeat(lambda: self._renew(self._connection_of(act), *mine)):
                    yield
            finally:
                del self._acts[cluster]

    def check_acting(self, cluster: str) -> None:
        act = self._acts.get(cluster)
        if act is None:
            raise _acts_not(cluster)
        with self._database.reading() if act.connection is None else self._connection_of(act) as connection:
            row, now = _row(connection, cluster), self._database.now(connection)
            valid_until = now + CHANGE_WITHIN_S
            if row is not None and row.holder == act.holder and row.token == act.token and row.expires_at > valid_until:
                return
            raise _lease_lost(connection, cluster, act.holder, row, valid_until)

    def acting_process(self, cluster: str) -> ActingProcess:
        act = self._acts.get(cluster)
        if act is None:
            raise _acts_not(cluster)
        with act.guard:
            if not act.nonce:
                nonce = token_hex(16)
                with self._database.serialized() as connection:
                    row = _row(connection, cluster)
                    if row is not None:
                        _log(connection, self._database.now(connection), CLAIMED, _lock(row), nonces=[nonce])
                act.nonce = nonce
        return ActingProcess(nonce=act.nonce, database=self._database.name)

    def has_claimed(self, cluster: str, holder: str) -> bool:
        return any(one["what"] == CLAIMED and one["lock"]["holder"] == holder for one in self.history(cluster))

    def take_over_claims(self, cluster: str, nonces: Collection[str], by: str) -> frozenset[str]:
        """Record that an approver takes over the claims that other databases have left on hosts; return the new ones.

        They count as those of this database from then on.
        """
        new = frozenset(nonces) - read_known_claims(self._database)
        if new:
            with self._database.begin() as connection:
                now = self._database.now(connection)
                _log(connection, now, TAKEN_OVER, _of_run(cluster, ""), by=by, nonces=sorted(new))
        return new

    @contextmanager
    def renewing(self, cluster: str, holder: str) -> Iterator[None]:
        mine = (leases.c.cluster == cluster, leases.c.holder == holder)
        with self._repeat(lambda: self._renew(self._database.begin(), *mine)):
            yield

    def release(self, cluster: str, holder: str) -> None:
        """Release the lease if there is one, and not of a later call. Raises RefusedError if another run holds it."""
        with self._database.serialized() as connection:
            row = _row(connection, cluster)
            if row is None or not row.holder or self._find_fence(connection, cluster, holder):
                return
            if row.holder != holder:
                other, ours = (name_run(connection, cluster, one) for one in (row.holder, holder))
                raise RefusedError(
                    f"Run {other} holds the lock of cluster {cluster}, not run {ours}.",
                    remedy=f"Only run {other} can release the lock. An approver can break it.",
                )
            _remove_lease(connection, cluster)
            _log(connection, self._database.now(connection), "released", _lock(row))

    def holder(self, cluster: str) -> Lock | None:
        """Return the valid lease; None if there is none or it has expired."""
        with self._database.reading() as connection:
            row = _row(connection, cluster)
            if row is None or not row.holder or row.expires_at <= self._database.now(connection):
                return None
            return _lock(row)

    def break_(self, cluster: str, by: str) -> Lock | None:
        """As in ChangeLock. Raises UserError without a name."""
        if not by.strip():
            raise UserError("A lock can only be broken with the name of an approver.", remedy="Give your name.")
        try:
            with self._process_lock(cluster, "Breaking the lock"), self._database.serialized() as connection:
                now = self._database.now(connection)
                try:
                    row = _row(connection, cluster)
                except FatalError as error:
                    holder = str(connection.execute(_LEASE, {"cluster": cluster}).one().holder)
                    _repair(connection, cluster)
                    why = f"{by} broke the lock of run {name_run(connection, cluster, holder)}"
                    _log(connection, now, BROKEN, _of_run(cluster, holder), by=by, why=why, damaged=error.sentence)
                    return None
                if row is None or not row.holder:
                    return None
                _remove_lease(connection, cluster)
                why = f"{by} broke the lock of run {name_run(connection, cluster, row.holder)}"
                _log(connection, now, BROKEN, _lock(row), by=by, why=why)
                return _lock(row)
        except _ActsNowError as error:
            with self._database.reading() as connection:
                row = _row(connection, cluster)
                name = f"run {name_run(connection, cluster, row.holder)}" if row and row.holder else "a run"
            raise RefusedError(
                f"The lock of cluster {cluster} cannot be broken now: {name} is changing the cluster.",
                remedy="Wait until this change ends, or stop the process of the run (the task or the command). Then "
                "break the lock.",
            ) from error

    def stop(self, cluster: str, holder: str, by: str) -> None:
        try:
            with self._process_lock(cluster, "The stop"), self._database.serialized() as connection:
                self._end(connection, cluster, holder, f"{by} stopped run {name_run(connection, cluster, holder)}")
        except _ActsNowError as error:
            with self._database.reading() as connection:
                name = name_run(connection, cluster, holder)
            raise RefusedError(f"Run {name} is changing cluster {cluster}.", remedy="It stops after it.") from error

    def end_run(self, cluster: str, holder: str, why: str) -> None:
        with self._database.serialized() as connection:
            self._end(connection, cluster, holder, why)

    def _end(self, connection: Connection, cluster: str, holder: str, why: str) -> None:
        row = _row(connection, cluster)
        is_held = row is not None and row.holder == holder
        if is_held:
            _remove_lease(connection, cluster)
        lock = _lock(row) if row is not None and is_held else _of_run(cluster, holder)
        _log(connection, self._database.now(connection), BROKEN, lock, why=why)

    @contextmanager
    def calling(self, cluster: str, holder: str) -> Iterator[None]:
        shown = self._call_session if self._database.file is None else self._call_file
        with shown(cluster, holder):
            self.log_call(cluster, holder)
            self._log_process(BEGAN, cluster, holder)
            try:
                yield
            finally:
                with suppress(RolloutError):  # then it looks as if it was killed
                    self._log_process(ENDED, cluster, holder)

    def find_call(self, cluster: str, holder: str) -> CallState:
        which = {"cluster": cluster, "body": json.dumps({"lock": asdict(_of_run(cluster, holder))}, ensure_ascii=False)}
        with self._database.reading() as connection:
            newest = connection.execute(_CALLS, which).scalars().first()
        if newest != BEGAN:
            return CallState.NONE
        return CallState.RUNS if self._is_calling(cluster, holder) else CallState.KILLED

    def _log_process(self, what: str, cluster: str, holder: str) -> None:
        with self._database.begin() as connection:
            _log(connection, self._database.now(connection), what, _of_run(cluster, holder))

    def _is_calling(self, cluster: str, holder: str) -> bool:
        if self._database.file is None:
            with self._database.session() as connection:
                key = {"key": _key(f"call {cluster} {holder}")}
                if not connection.execute(text("SELECT pg_try_advisory_lock(:key)"), key).scalar_one():
                    return True
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), key)
                return False
        path = self._call_path(cluster, holder)
        if not path.exists():
            return False
        with private_lock_file(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @contextmanager
    def _call_file(self, cluster: str, holder: str) -> Iterator[None]:
        """Hold a lock that all calls of the run share, and that ends with the process."""
        path, is_held = self._call_path(cluster, holder), False
        while not is_held:
            with private_lock_file(path) as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                with suppress(FileNotFoundError):  # an earlier call has just removed it
                    is_held = path.stat().st_ino == os.fstat(file.fileno()).st_ino
                if not is_held:
                    continue
                try:
                    yield
                finally:
                    with suppress(OSError):  # another call of the run has it
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        path.unlink()

    @contextmanager
    def _call_session(self, cluster: str, holder: str) -> Iterator[None]:
        """Do the same with an advisory lock, in a session that is opened again if it is lost."""
        key, ended, held = {"key": _key(f"call {cluster} {holder}")}, Event(), Event()

        def hold() -> None:
            while not ended.is_set():
                with suppress(SQLAlchemyError, RolloutError), self._database.session() as connection:
                    connection.execute(text("SELECT pg_advisory_lock_shared(:key)"), key)
                    held.set()
                    while not ended.wait(_SESSION_S):
                        with self._database.closed_after(connection, self._answer_s):
                            connection.execute(text("SELECT 1"))
                ended.wait(1.0)

        thread = Thread(target=hold, name="call", daemon=True)
        thread.start()
        held.wait(self._answer_s)
        try:
            yield
        finally:
            ended.set()
            thread.join(_JOIN_S)

    def _call_path(self, cluster: str, holder: str) -> Path:
        return self._locks(self._database.file) / f"{safe_name(cluster)}-{_key(holder):016x}.call"

    def _locks(self, file: Path | None) -> Path:
        """Return the folder of the kernel's locks next to a SQLite file."""
        if file is None:
            raise ValueError("PostgreSQL has advisory locks.")
        folder = file.parent / "locks"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_private(folder)
        return folder

    def history(self, cluster: str) -> tuple[dict[str, Any], ...]:
        """Return the log of the cluster's lock, oldest first: `at`, `what`, `lock` and further details."""
        query = select(lease_log).where(lease_log.c.cluster == cluster).order_by(lease_log.c.id)
        rows = self._database.read(query)
        return tuple({"at": row.at, "what": row.what, **json.loads(row.body)} for row in rows)

    def _begin(self, cluster: str, holder: str, what: str) -> int:
        """Take the next token for this process."""
        with self._database.serialized() as connection:
            row, now = _row(connection, cluster), self._database.now(connection)
            if broken := self._find_fence(connection, cluster, holder):
                raise _fenced(cluster, *broken)
            seen = self._taken.get(cluster, None if row is None else int(row.lease_token))
            if row is None or row.holder != holder or row.expires_at <= now or row.lease_token != seen:
                raise _lease_lost(connection, cluster, holder, row, now, what=what)
            token = int(row.token) + 1
            connection.execute(update(leases).where(leases.c.cluster == cluster).values(token=token))
            return token

    def _renew(self, opened: AbstractContextManager[Connection], *which: Any) -> None:
        with opened as connection:
            now = self._database.now(connection)
            in_force = (leases.c.expires_at > now, leases.c.expires_at < now + LEASE_S)
            connection.execute(update(leases).where(*which, *in_force).values(expires_at=now + LEASE_S))

    @contextmanager
    def _connection_of(self, act: _Act) -> Iterator[Connection]:
        """Yield the connection with the advisory lock. If it is lost, another process can already act."""
        if act.connection is None:
            with self._database.begin() as connection:
                yield connection
        else:
            with (
                act.guard,
                self._database.convert_errors(),
                self._database.closed_after(act.connection, self._answer_s),
            ):
                yield act.connection

    @contextmanager
    def _repeat(self, renew: Callable[[], None]) -> Iterator[None]:
        """Call `renew` repeatedly in a thread, also after an error; the next action checks the lease."""
        ended = Event()

        def repeat() -> None:
            while not ended.wait(self._renew_every_s):
                try:
                    renew()
                except RolloutError as error:
                    log.warning("The lease was not renewed: %s", error)

        thread = Thread(target=repeat, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_JOIN_S)

    @contextmanager
    def _process_lock(self, cluster: str, what: str) -> Iterator[Connection | None]:
        """Hold the lock that ends with this process. Raises _ActsNowError if another process holds it."""
        busy = _ActsNowError(
            f"{what} must wait: another process changes cluster {cluster} now.",
            remedy="Repeat the command when that process has ended. Check whether a task or a command runs twice.",
        )
        if self._database.file is not None:
            with private_lock_file(self._locks(self._database.file) / f"{safe_name(cluster)}.acting") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise busy from None
                yield None
            return
        with self._database.session() as connection:
            key = _key(f"acting {cluster}")
            if not connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": key}).scalar_one():
                raise busy
            try:
                yield connection
            finally:  # the server ends a closed session a moment later; the next action must not wait for that
                with suppress(SQLAlchemyError, TransientError), self._database.closed_after(connection, self._answer_s):
                    connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": key})


def _key(name: str) -> int:
    """Return the key of an advisory lock."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)


class _ActsNowError(TransientError):
    """Another process acts on the cluster."""


def _row(connection: Connection, cluster: str) -> Row[Any] | None:
    """Return the row of the cluster. Raises FatalError if it is damaged, because SQLite does not check types."""
    row = connection.execute(_LEASE, {"cluster": cluster}).one_or_none()
    if row is not None and not _is_whole(row):
        raise FatalError(
            f"The lock of cluster {cluster} is damaged in the database, so its holder is unknown.",
            remedy="Check that no run changes the cluster. Then let an approver break the lock: "
            f"kafka-rollout unlock --cluster {cluster} --as NAME",
        )
    return row


def _is_whole(row: Row[Any]) -> bool:
    numbers = (row.acquired_at, row.expires_at, row.token, row.lease_token)
    return all(isinstance(number, (int, float)) for number in numbers)


def _lock(row: Row[Any]) -> Lock:
    known = {one.name: row._mapping[one.name] for one in fields(Lock)}
    return Lock(**{**known, "token": int(row.lease_token)})


def _twin(connection: Connection, cluster: str, cluster_id: str, now: float) -> Lock | None:
    """Return a valid lease of the same cluster under another name."""
    if not cluster_id:
        return None
    which = {"cluster": cluster, "cluster_id": cluster_id, "now": now}
    found = [row for row in connection.execute(_TWINS, which) if _is_whole(row)]
    return _lock(found[0]) if found else None


def _remove_lease(connection: Connection, cluster: str) -> None:
    """Remove the lease. The row keeps its token and increases it, so no process of the former holder has the newest."""
    values = {"holder": "", "purpose": "", "expires_at": 0.0, "token": leases.c.token + 1}
    connection.execute(update(leases).where(leases.c.cluster == cluster).values(**values))


def _repair(connection: Connection, cluster: str) -> None:
    """Replace a damaged row by one without a lease, with a token above all logged tokens."""
    logged = [json.loads(body)["lock"]["token"] for body in connection.execute(select(lease_log.c.body)).scalars()]
    token = max(logged, default=0) + 1_000_000
    values = {"holder": "", "purpose": "", "acquired_at": 0.0, "expires_at": 0.0, "token": token, "lease_token": token}
    put(connection, leases, {"cluster": cluster}, values)


def _log(connection: Connection, at: float, what: str, lock: Lock, **more: Any) -> None:
    body = json.dumps({"lock": asdict(lock), **more}, ensure_ascii=False)
    connection.execute(insert(lease_log).values(cluster=lock.cluster, at=at, what=what, body=body))


def _of_run(cluster: str, holder: str) -> Lock:
    """Return what an entry of the log has that is about a run, or a cluster, and about no lease."""
    return Lock(cluster=cluster, holder=holder, purpose="", acquired_at=0.0, expires_at=0.0)


def _fenced(cluster: str, why: str, at: float) -> LockBrokenError:
    return LockBrokenError(
        f"{why} of cluster {cluster} at {_time_of_day(at)}, so this run does nothing more.",
        remedy="Continue it with a new call: its command with --run, `kafka-rollout resume`, or a clear of its failed "
        "task in Airflow.",
    )


def _acts_not(cluster: str) -> RefusedError:
    return RefusedError(
        f"Nothing was changed: this process does not hold the lock of cluster {cluster} for an action.",
        remedy="Report this as a bug of kafka-rollout.",
    )


def _lease_lost(
    connection: Connection, cluster: str, holder: str, row: Row[Any] | None, now: float, *, what: str = ""
) -> RefusedError:
    if row is not None and row.holder and row.holder != holder and row.expires_at > now:
        why = f"run {name_run(connection, cluster, row.holder)} holds it"
    elif row is not None and row.holder == holder and row.expires_at <= now:
        why = f"its lease expired at {_time_of_day(row.expires_at)}"
    else:
        why = "it was released, or another process of this run acts"
    doing = f"{what} was rejected. " if what else ""
    return RefusedError(
        f"{doing}Run {name_run(connection, cluster, holder)} no longer holds the lock of cluster "
        f"{cluster}: {why}. The run stops.",
        remedy="Check the releases of the nodes. Then continue the run, which acquires the lock again.",
    )


def _describe_lease(lock: Lock) -> str:
    purpose = lock.purpose.rstrip(".")
    return f"({purpose}). Its lease expires at {_time_of_day(lock.expires_at)} unless the run renews it."


def _time_of_day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
