"""Connections to a SQLite file stay open for the transactions that follow at once."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import psutil
import pytest
from sqlalchemy import text

from kafka_rollout.base.errors import UserError
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.run.store.database import Database, close_idle_connections
from tests.fakes.cluster import make_spec
from tests.waiting import wait_until


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(f"sqlite:///{tmp_path}/kafka-rollout.db")


def open_files(path: Path) -> int:
    """Number of descriptors of this process for the file."""
    found = [os.path.realpath(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")]
    return found.count(str(path))


def names(database: Database) -> list[str]:
    with database.reading() as connection:
        return list(connection.execute(text("SELECT name FROM notes ORDER BY name")).scalars())


def add(database: Database, name: str) -> None:
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS notes (name TEXT)"))
        connection.execute(text("INSERT INTO notes VALUES (:name)"), {"name": name})


@pytest.mark.parametrize(
    ("mounted", "is_refused"),
    [("nfs4", True), ("fuse.ceph-fuse", True), ("virtiofs", True), ("unheard-of", True), ("ext4", False)],
)
def test_a_file_on_a_file_system_that_machines_can_share_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: str, is_refused: bool
) -> None:
    """WAL needs memory that all processes share, and each machine would get the lease of a cluster."""
    mounts = [SimpleNamespace(mountpoint="/", fstype="ext4"), SimpleNamespace(mountpoint=str(tmp_path), fstype=mounted)]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)
    database = Database(f"sqlite:///{tmp_path}/home/kafka-rollout.db")
    if is_refused:
        with pytest.raises(UserError, match=rf"is a SQLite file on a file system of type {mounted}, "):
            add(database, "first")
        assert not (tmp_path / "home").exists()
    else:
        add(database, "first")
        assert names(database) == ["first"]


def test_a_restored_backup_is_read_without_a_restart(database: Database, tmp_path: Path) -> None:
    assert database.file is not None
    add(database, "first")
    with closing(sqlite3.connect(database.file)) as connection:
        connection.execute("VACUUM INTO ?", [str(tmp_path / "backup.db")])
    add(database, "second")
    assert names(database) == ["first", "second"]

    for suffix in ("", "-wal", "-shm"):
        database.file.with_name(database.file.name + suffix).unlink()
    shutil.move(tmp_path / "backup.db", database.file)
    assert names(database) == ["first"]
    add(database, "third")
    assert names(Database(f"sqlite:///{database.file}")) == ["first", "third"]


def test_a_child_gets_no_connection_of_its_parent(database: Database) -> None:
    """SQLite would count the parent's locks as the child's."""
    assert database.file is not None
    add(database, "parent")
    assert open_files(database.file) == 1
    child = os.fork()
    if child == 0:
        has_none = open_files(database.file) == 0
        add(database, "child")
        os._exit(0 if has_none else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert names(database) == ["child", "parent"]


def test_a_transaction_counts_although_no_thread_can_close_its_connection_later(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    assert database.file is not None
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", no_thread)
        add(database, "first")
        assert open_files(database.file) == 0
    assert names(database) == ["first"]


def test_a_connection_is_closed_although_no_second_thread_can_wait_for_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_once(thread: Thread) -> None:
        if threads:
            raise RuntimeError("can't start new thread")
        threads.append(thread)
        start(thread)

    start, threads = Thread.start, list[Thread]()
    assert database.file is not None
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", start_once)
        add(database, "first")
        (closer,) = threads

        def use() -> bool:
            add(database, "again")
            return not closer.is_alive()

        wait_until(use, 60, every_s=0.05)
        wait_until(lambda: open_files(database.file) == 0, 60)


def test_threads_and_transactions_share_one_connection(database: Database) -> None:
    assert database.file is not None
    for number in range(5):
        add(database, f"note {number}")
        assert open_files(database.file) == 1


def test_an_unused_file_is_closed_and_has_no_other_files(database: Database, tmp_path: Path) -> None:
    """So an operator can replace it, also by `mv` or `cp`, which leave the files of an open connection."""
    assert database.file is not None
    for copy in (shutil.copy, shutil.move):
        add(database, "first")
        shutil.copy(database.file, tmp_path / "backup.db")
        before = names(database)
        add(database, "second")
        # SQLite removes its other files before it closes this one.
        wait_until(lambda: open_files(database.file) == 0, 10)
        assert not list(tmp_path.glob("kafka-rollout.db-*"))
        copy(tmp_path / "backup.db", database.file)
        assert names(database) == before
        add(database, "third")
        with closing(sqlite3.connect(database.file)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert names(Database(f"sqlite:///{database.file}")) == [*before, "third"]


def test_a_copy_of_the_file_has_every_transaction(database: Database, tmp_path: Path) -> None:
    assert database.file is not None
    add(database, "first")
    add(database, "second")
    assert open_files(database.file) == 1
    shutil.copy(database.file, tmp_path / "copy.db")
    assert names(Database(f"sqlite:///{tmp_path}/copy.db")) == ["first", "second"]


WRITES_AND_EXITS = """
import sys
from sqlalchemy import text
from kafka_rollout.run.store.database import Database, close_idle_connections
with Database(sys.argv[1]).begin() as connection:
    connection.execute(text("CREATE TABLE notes (name TEXT)"))
"""
ENDS_AS_A_TASK = """
import os
from kafka_rollout.run.events import StepEnded, StepOutcome
from kafka_rollout.wiring.cluster_ports import open_cluster_ports
with open_cluster_ports("fake", "run-1") as ports:
    ports.run.record(StepEnded(step="plan", outcome=StepOutcome.FAILED, reason="It failed."))
os._exit(0)
"""


@pytest.mark.parametrize("program", [WRITES_AND_EXITS, ENDS_AS_A_TASK])
def test_a_process_that_ends_leaves_no_other_files(program: str, tmp_path: Path) -> None:
    """SQLite would apply the files of an open connection to whatever is restored in the place of this one."""
    spec = make_spec(name="fake")
    nodes = tuple(replace(node, directory=f"/nowhere/{node.name}") for node in spec.nodes)
    (tmp_path / "fake.yaml").write_text(dump_cluster(replace(spec, nodes=nodes)))
    file = tmp_path / "kafka-rollout.db"
    environment = {"KAFKA_ROLLOUT_CLUSTERS": str(tmp_path), "KAFKA_ROLLOUT_HOME": str(tmp_path)}
    words = [sys.executable, "-c", program, f"sqlite:///{file}"]
    subprocess.run(words, env={**os.environ, **environment}, check=True, timeout=120)
    assert [found.name for found in tmp_path.glob("kafka-rollout.db*")] == [file.name]


def test_closing_leaves_a_pool_that_keeps_no_connection(database: Database) -> None:
    add(database, "first")
    close_idle_connections()
    assert database.file is not None
    assert open_files(database.file) == 0
    empty = database._engine_of_process().pool
    close_idle_connections()
    assert database._engine_of_process().pool is empty
    assert names(database) == ["first"]
    assert database._engine_of_process().pool is empty
    close_idle_connections()
    assert open_files(database.file) == 0
