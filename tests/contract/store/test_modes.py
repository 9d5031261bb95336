"""Other users of the machine can neither read what is recorded nor keep the locks of a cluster."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_rollout.run.store.artifacts import Artifacts
from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.history import SqlRunStore
from kafka_rollout.run.store.leases import SqlChangeLock


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def record(home: Path) -> None:
    """What a run leaves in the home folder, with a process that acts."""
    database = Database(f"sqlite:///{home}/kafka-rollout.db")
    run = SqlRunStore(database, Artifacts(str(home)), home / "private", "orders", "run-1")
    run.write_report("<p>min.insync.replicas</p>", {})
    lock = SqlChangeLock(database)
    lock.acquire("orders", "run-1", "upgrade", for_s=600)
    with lock.acting("orders", "run-1", "Replacing node 1"):
        assert {"locks", "runs", "kafka-rollout.db"} <= {path.name for path in home.iterdir()}


def open_to_others(home: Path) -> list[str]:
    return [str(path) for path in (home, *home.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_a_new_home_folder_and_everything_in_it_belong_to_one_user(tmp_path: Path) -> None:
    record(tmp_path / "new" / "home")
    assert open_to_others(tmp_path / "new" / "home") == []


def test_the_files_of_an_earlier_version_become_private_and_its_folder_stays(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    Database(f"sqlite:///{home}/kafka-rollout.db").upgrade()
    (home / "locks").mkdir()
    for path in (home / "kafka-rollout.db", home / ".kafka-rollout.db.upgrade", home / "locks" / "orders.acting"):
        path.touch()
        path.chmod(0o644)
    (home / "locks").chmod(0o755)
    record(home)
    assert open_to_others(home) == [str(home)]


def test_the_files_next_to_a_database_are_private(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/kafka-rollout.db")
    with database.begin():
        for path in tmp_path.glob("kafka-rollout.db*"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert (tmp_path / "kafka-rollout.db-wal").exists()


def test_who_can_read_a_shared_folder_is_decided_by_the_umask(tmp_path: Path) -> None:
    Artifacts(str(tmp_path / "shared"), shared=True).write("runs/orders/report.html", b"x")
    assert stat.S_IMODE((tmp_path / "shared" / "runs" / "orders" / "report.html").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "shared" / "runs").stat().st_mode) == 0o755
