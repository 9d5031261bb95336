"""Access to the database: opened once per process. Checks the revision, and raises errors of this project.

SQLite is the default, for one machine. The first process that opens its file upgrades it, under a file lock.
PostgreSQL is for several machines; only `kafka-rollout db` upgrades it. The password is read from a file
(KAFKA_ROLLOUT_DATABASE_PASSWORD_FILE), or by libpq (PGPASSFILE, a service file).
"""

from __future__ import annotations

import atexit
import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from threading import Lock as ThreadLock
from threading import Timer
from typing import Any
from weakref import WeakSet

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    QueuePool,
    Row,
    Select,
    Table,
    Update,
    bindparam,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from kafka_rollout.base.errors import FatalError, RolloutError, TransientError, UserError
from kafka_rollout.base.system.file_systems import shared_file_system
from kafka_rollout.base.system.files import make_private, private_lock_file, read_regular
from kafka_rollout.base.system.links import shut_after
from kafka_rollout.run.store.tables import REVISION

_KEPT_S = 1.0  # SQLite: time that a connection stays open after a transaction
_BUSY_S = 30.0  # SQLite: time that a writer waits for another writer
_CONNECT_S = 10  # PostgreSQL: connection timeout
# PostgreSQL: a connection counts as lost after about 25 s without an answer, also while data was sent (milliseconds).
# The server ends the session of a lost host after the same time: until then it keeps the host's locks.
_KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
_SERVER_KEEPALIVE = (
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
    "SET tcp_user_timeout = 25000"
)
_SERIAL = 7_305_113_001  # PostgreSQL: key of the advisory lock for serialized transactions

_READING: ContextVar[tuple[Database, Connection] | None] = ContextVar("reading", default=None)
_READS = "kafka_rollout_reads"  # execution option of a transaction that only reads

_UPGRADE = "Run `kafka-rollout db` with the setting of this database."
_FULL = ("disk is full", "no space left", "disk full")
_DAMAGED = ("malformed", "not a database", "disk i/o error")


_opened: WeakSet[Database] = WeakSet()


def close_idle_connections() -> None:
    """Close the connections to SQLite files that no thread of this process uses."""
    for database in tuple(_opened):
        database._close_idle()


def _forget_threads() -> None:
    for database in tuple(_opened):
        database._guard, database._closer = ThreadLock(), None


# In a child, SQLite would count the locks of the parent's connections as its own, and it has none of them ("How To
# Corrupt An SQLite Database File", 2.6, on sqlite.org). The threads of the parent do not exist there.
os.register_at_fork(before=close_idle_connections, after_in_child=_forget_threads)
atexit.register(close_idle_connections)


class Database:
    """A database by its URL. Threads can share an instance; after a fork it opens new connections.

    `clock` (epoch seconds) replaces the clock of the database, only for tests.
    """

    def __init__(
        self, url: str, *, password_file: Path | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        self._url = _parse_url(url)
        self._password_file = password_file
        self._clock = clock
        self._guard = ThreadLock()
        self._file = Path(str(self._url.database)) if self.is_sqlite else None
        self._engine: Engine | None = None
        self._reader: Engine | None = None  # the same, for transactions that only read
        self._pid = 0
        self._checked = False
        self._used_at = 0.0
        self._closer: Timer | None = None
        _opened.add(self)

    @property
    def is_sqlite(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    @property
    def file(self) -> Path | None:
        """Return the file of SQLite; None for PostgreSQL."""
        return self._file

    @property
    def name(self) -> str:
        """Return the name for messages, without user and password."""
        if self.is_sqlite:
            return str(self.file)
        return f"{self._url.database} on {self._url.host or 'the local socket'}"

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Run one transaction: commit at the end, roll back on an error. Raises errors of this project."""
        self._check_once()
        with self.convert_errors(), self._used(), self._engine_of_process().begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Run one transaction that only reads; within `read_together`, the one of that block."""
        known = _READING.get()
        if known is not None and known[0] is self:
            yield known[1]
            return
        self._check_once()
        with (
            self.convert_errors(),
            self._used(),
            self._engine_of_process(reads=True).begin() as connection,
        ):
            yield connection

    def read(self, query: Select[Any], values: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """Return all rows of a query, as `reading`. `values`: of its parameters, by their names."""
        with self.reading() as connection:
            return connection.execute(query, values).all()

    @contextmanager
    def read_together(self) -> Iterator[None]:
        """Let all reads of the block see one state of a SQLite file."""
        if not self.is_sqlite:
            yield
            return
        with self.reading() as connection:
            token = _READING.set((self, connection))
            try:
                yield
            finally:
                _READING.reset(token)

    @contextmanager
    def serialized(self) -> Iterator[Connection]:
        """Run one transaction. Only one transaction of this method runs at a time, for decisions about several rows."""
        with self.begin() as connection:
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SERIAL})
            yield connection

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """Open a separate connection in autocommit mode, for locks that end with the connection."""
        self._check_once()
        with self.convert_errors():
            engine = self._engine_of_process()
            with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
                connection.detach()
                yield connection

    @contextmanager
    def closed_after(self, connection: Connection, seconds: float) -> Iterator[None]:
        """Close a session of PostgreSQL if the block lasts longer, which ends a query in it with an error.

        A server that is paused answers no query, while its host acknowledges every packet. Raises TransientError for a
        session that was closed before, and never opens it again.
        """
        driver: Any = None if connection.invalidated else connection.connection.dbapi_connection
        if driver is None or driver.closed:
            raise TransientError(
                f"The connection to the database {self.name} was lost, and with it the right to act.",
                remedy="Check the database, then repeat the command.",
            )
        with shut_after(driver.fileno(), seconds):
            yield

    def now(self, connection: Connection) -> float:
        """Return the time of the database's clock (epoch seconds). For SQLite this is the clock of this machine."""
        if self._clock is not None:
            return self._clock()
        query = "SELECT (julianday('now') - 2440587.5) * 86400.0" if self.is_sqlite else _POSTGRES_NOW
        return float(connection.execute(text(query)).scalar_one())

    def revision(self) -> str | None:
        """Return the revision of the schema; None without a schema."""
        with self.convert_errors():
            if self.file is not None and not self.file.exists():
                return None
            with self._engine_of_process().connect() as connection:
                return _revision(connection)

    def upgrade(self) -> None:
        """Upgrade the schema to this version's revision. A repeated call changes nothing."""
        found = self.revision()
        if found == REVISION:
            return
        self._refuse_newer(found)
        from kafka_rollout.run.store.migrations import upgrade

        with self.convert_errors(), self._upgrade_guard():
            if self.file is not None and not self.file.exists():
                self.file.touch(mode=0o600)
            with self._engine_of_process().begin() as connection:
                if not self.is_sqlite:
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SERIAL})
                if _revision(connection) != REVISION:
                    upgrade(connection)

    def check(self) -> None:
        """Raise UserError unless the schema has this version's revision."""
        found = self.revision()
        self._refuse_newer(found)
        if found != REVISION:
            has = "has no tables" if found is None else f"has revision {found}"
            raise UserError(f"The database {self.name} {has}, but this version needs {REVISION}.", remedy=_UPGRADE)

    def _check_once(self) -> None:
        if self._checked:
            return
        if self.file is not None:
            self._refuse_shared(self.file)
            self.upgrade()
        self.check()
        self._checked = True

    def _refuse_shared(self, file: Path) -> None:
        """The index of the write-ahead log is memory of one kernel (sqlite.org/wal.html), and so are its locks."""
        if found := shared_file_system(file.parent):
            raise UserError(
                f"The database {self.name} is a SQLite file on a file system of type {found}, which other machines can "
                "share without seeing its locks.",
                remedy="Set KAFKA_ROLLOUT_HOME to a local folder, or KAFKA_ROLLOUT_DATABASE to a PostgreSQL database.",
            )

    def _refuse_newer(self, found: str | None) -> None:
        if found is not None and found > REVISION:
            raise UserError(
                f"The database {self.name} has revision {found}, but this version supports only {REVISION}.",
                remedy="Install the version of kafka-rollout that upgraded the database, on every machine.",
            )

    def _engine_of_process(self, *, reads: bool = False) -> Engine:
        """Return the engine of this process. After a fork, connections of the parent process must not be used."""
        with self._guard:
            if self._engine is None or self._reader is None or self._pid != os.getpid():
                if self._engine is not None:
                    self._engine.dispose(close=False)
                self._engine, self._pid = self._create(), os.getpid()
                self._reader = self._engine.execution_options(**{_READS: True})
            return self._reader if reads else self._engine

    def _create(self) -> Engine:
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            name = self.file.name
            for one in (name, f"{name}-wal", f"{name}-shm", f".{name}.upgrade"):
                make_private(self.file.with_name(one))
            engine = create_engine(
                self._url, poolclass=QueuePool, pool_size=2, max_overflow=-1, connect_args={"timeout": _BUSY_S}
            )
            event.listen(engine, "connect", _sqlite_settings)
            event.listen(engine, "connect", self._note_file)
            event.listen(engine, "checkout", self._refuse_replaced_file)
            event.listen(engine, "begin", _sqlite_begin)
            return engine
        options: dict[str, Any] = {"connect_timeout": _CONNECT_S, "application_name": "kafka-rollout", **_KEEPALIVE}
        if self._password_file is not None:
            options["password"] = _password(self._password_file)
        engine = create_engine(
            self._url, pool_size=2, max_overflow=8, pool_pre_ping=True, pool_recycle=300, connect_args=options
        )
        event.listen(engine, "connect", _postgres_settings)
        return engine

    def _note_file(self, _connection: Any, record: ConnectionPoolEntry) -> None:
        record.info["file"] = self._identify_file()

    def _refuse_replaced_file(self, _connection: Any, record: ConnectionPoolEntry, _proxy: Any) -> None:
        """Let the pool connect again if another file has this name, for example a restored backup."""
        if record.info["file"] != self._identify_file():
            raise DisconnectionError

    def _identify_file(self) -> tuple[int, int] | None:
        try:
            found = os.stat(str(self.file))
        except OSError:  # SQLite tells what is wrong when it opens the file
            return None
        return found.st_dev, found.st_ino

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Keep the connections to a SQLite file for the transactions that follow at once, and no longer.

        While none is open, SQLite has no other files, so an operator can copy or replace the file.
        """
        try:
            yield
        finally:
            if self.is_sqlite:
                self._used_at = time.monotonic()
                with self._guard:
                    if self._closer is None:
                        self._close_later(_KEPT_S)

    def _close_later(self, seconds: float) -> None:
        closer = Timer(seconds, self._close_unless_used)
        closer.daemon = True
        try:
            closer.start()
        except RuntimeError:  # no thread can be started; the transaction is committed all the same
            self._closer = None
            self._close_idle()
        else:
            self._closer = closer

    def _close_unless_used(self) -> None:
        with self._guard:
            left = self._used_at + _KEPT_S - time.monotonic()
            if left > 0:
                self._close_later(left)
                return
            self._closer = None
        self._close_idle()

    def _close_idle(self) -> None:
        # Only a pool that keeps a connection: to replace an empty one takes as long as a transaction.
        if self.is_sqlite and self._engine is not None and self._engine.pool.checkedin():  # type: ignore[attr-defined]
            self._engine.dispose()

    @contextmanager
    def _upgrade_guard(self) -> Iterator[None]:
        """Let one process at a time create the tables of a SQLite file."""
        if self.file is None:
            yield
            return
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with private_lock_file(self.file.with_name(f".{self.file.name}.upgrade")) as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            yield

    @contextmanager
    def convert_errors(self) -> Iterator[None]:
        """Convert errors of the database to errors of this project."""
        try:
            yield
        except RolloutError:
            raise
        except SQLAlchemyError as error:
            raise self._translate(error) from None
        except OSError as error:
            if self.file is None:
                raise
            raise FatalError(
                f"The folder of the database {self.name} cannot be used: {error.strerror}.",
                remedy="Check its owner, its permissions and the free space.",
            ) from None

    def _translate(self, error: SQLAlchemyError) -> RolloutError:
        """Return the error without SQL and parameters, which can contain data of the run history."""
        original = error.orig if isinstance(error, DBAPIError) else None
        message = " ".join(str(original).split())[:300] if original is not None else type(error).__name__
        lower = message.lower()
        if any(words in lower for words in _FULL):
            return FatalError(
                f"The database {self.name} cannot be written: {message}.",
                remedy="Free disk space, then continue the same run: all earlier entries are saved.",
            )
        if any(words in lower for words in _DAMAGED) or "readonly" in lower:
            return FatalError(
                f"The database {self.name} cannot be used: {message}.",
                remedy="Check its disk and the permissions of its file. If it is damaged, restore it from a backup.",
            )
        return TransientError(
            f"The database {self.name} did not respond: {message}.",
            remedy="Check the database, then repeat the command. Without the run history, nothing is changed.",
        )


_POSTGRES_NOW = "SELECT extract(epoch FROM clock_timestamp())"


def put(connection: Connection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Update the row with this key, or insert it."""
    found = {f"found_{name}": value for name, value in key.items()}
    if not connection.execute(_update_by(table, tuple(key)), {**found, **values}).rowcount:
        connection.execute(insert(table), {**key, **values})


@cache
def _update_by(table: Table, key: tuple[str, ...]) -> Update:
    """Return the statement that updates the row whose columns `key` have the values of the parameters `found_…`."""
    return update(table).where(*(table.c[name] == bindparam(f"found_{name}") for name in key))


def _parse_url(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise UserError(
            "KAFKA_ROLLOUT_DATABASE is not a database URL.",
            remedy="Write sqlite:////folder/file.db or postgresql://user@host/database.",
        ) from None
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        raise UserError(
            f"KAFKA_ROLLOUT_DATABASE is a URL of the database type {parsed.get_backend_name()}.",
            remedy="Use SQLite or PostgreSQL.",
        )
    if parsed.password is not None or "password" in parsed.query:
        raise UserError(
            "KAFKA_ROLLOUT_DATABASE contains a password.",
            remedy="Remove it from the URL. Put it into a file with mode 0600 and set "
            "KAFKA_ROLLOUT_DATABASE_PASSWORD_FILE to this file, or use PGPASSFILE.",
        )
    if parsed.get_backend_name() == "sqlite" and not parsed.database:
        raise UserError("KAFKA_ROLLOUT_DATABASE contains no file name.", remedy="Write sqlite:////folder/file.db.")
    return parsed.set(drivername="postgresql+psycopg") if parsed.get_backend_name() == "postgresql" else parsed


def _password(path: Path) -> str:
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise UserError(f"The password file {path} can be read by other users.", remedy=f"Run chmod 600 {path}.")
        return read_regular(path).decode().strip()
    except OSError as error:
        raise UserError(
            f"The password file {path} cannot be read: {error.strerror}.",
            remedy="Correct KAFKA_ROLLOUT_DATABASE_PASSWORD_FILE.",
        ) from None


def _sqlite_settings(connection: Any, _record: Any) -> None:
    if not isinstance(connection, sqlite3.Connection):
        return
    connection.isolation_level = None  # _sqlite_begin begins transactions
    # A connection stays open for a while, but a copy of the file must have the newest transactions, not the log alone.
    for setting in ("journal_mode = WAL", "wal_autocheckpoint = 1", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {setting}")


def _postgres_settings(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_SERVER_KEEPALIVE)
    connection.commit()


def _sqlite_begin(connection: Connection) -> None:
    """Acquire the write lock at the start of a transaction that writes.

    A transaction that begins as a reader cannot wait for another writer later.
    """
    reads = connection.get_execution_options().get(_READS)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(select(text("version_num")).select_from(text("alembic_version"))).scalar_one_or_none()


_databases: dict[tuple[str, Path | None], Database] = {}


def open_database(url: str, *, password_file: Path | None = None) -> Database:
    """Return the database of a URL. A process creates it once; after a fork it opens new connections."""
    key = (url, password_file)
    if key not in _databases:
        _databases[key] = Database(url, password_file=password_file)
    return _databases[key]
