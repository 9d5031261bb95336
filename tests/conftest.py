"""Settings of all tests."""

import compileall
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from py4j import java_gateway
from py4j import protocol as py4j_protocol
from sqlalchemy import URL, Engine, create_engine

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.run.store import database
from tests import airflow_home  # noqa: F401 (sets the environment before Airflow is imported)
from tests.class_archives import ClassArchives
from tests.leftovers import pytest_unconfigure  # noqa: F401 (a hook)
from tests.paths import ROOT
from tests.postgres import Postgres, running_postgres
from tests.scheduling import pytest_collection_modifyitems, pytest_xdist_make_scheduler  # noqa: F401 (hooks)
from tests.unfinished import (  # noqa: F401 (hooks)
    pytest_runtest_logfinish,
    pytest_runtest_logstart,
    pytest_terminal_summary,
)

# No deadline for an example: the machine may be busy. `make test` tries the same examples in every run, so that a
# failure can be repeated; `make test-full` tries new ones.
settings.register_profile("exploring", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("exploring"), derandomize=True)
settings.load_profile("repeatable")

# The ports of a stopped node are free for a while: clusters of other workers must not take them.
if (worker := os.environ.get("PYTEST_XDIST_WORKER")) is not None:
    workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    share = 12_000 // workers
    first = 20_000 + share * (int(worker.removeprefix("gw")) % workers)  # gw4 replaces one of four
    os.environ["KAFKA_ROLLOUT_PORTS"] = f"{first}-{first + share - 1}"

# A run that makes copies of its cluster takes a minute longer; tests of rehearsals set it to 1.
os.environ.setdefault("KAFKA_ROLLOUT_REHEARSE", "0")


# Otherwise each worker compiles all tests again, and each process of a test what it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_configure(config: pytest.Config) -> None:
    """Compile the project once before the workers and the processes of the tests do it beside each other.

    What each worker imports and collects is no garbage: to search it for garbage took a third of this time.
    """
    gc.disable()
    if not hasattr(config, "workerinput"):
        for folder in ("plugins", "spark_jobs", "consumer", "tools"):
            compileall.compile_dir(ROOT / folder, quiet=1)


def pytest_itemcollected(item: pytest.Item) -> None:
    """End a hanging test without brokers after ten minutes. No such test takes half of that on a slow machine."""
    if not any(item.iter_markers("integration")) and not any(item.iter_markers("timeout")):
        item.add_marker(pytest.mark.timeout(600))


def pytest_collection_finish() -> None:
    """Collect garbage seldom, and not in what is imported: that took an eighth of the time of a test with Airflow."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


# py4j logs when Python exits, to a stream that pytest has closed already.
logging.getLogger("py4j").setLevel(logging.WARNING)

# A shell starts background processes with SIGINT ignored; the processes that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _errors_of_their_own_java(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the errors of a release's classes as py4j does.

    A Spark session of an earlier test makes pyspark convert the errors of every gateway of the process. It asks Spark's
    Java for the error, and another object can have the same number there.
    """
    if request.node.get_closest_marker("spark") is None:
        monkeypatch.setattr(java_gateway, "get_return_value", py4j_protocol.get_return_value)


@pytest.fixture(scope="session", autouse=True)
def _sqlite_without_flush() -> Iterator[None]:
    """SQLite does not wait for the disk: tests kill processes, and what a killed process wrote stays in the kernel."""
    apply = database._sqlite_settings

    def apply_without_flush(connection: Any, record: Any) -> None:
        apply(connection, record)
        connection.execute("PRAGMA synchronous = OFF")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_sqlite_settings", apply_without_flush)
        yield


@pytest.fixture(scope="session", autouse=True)
def _statements_compiled_once() -> Iterator[None]:
    """The SQLite files of all tests share the compiled statements: to compile them took a tenth of a plan's time."""
    shared = create_engine("sqlite://")
    shared.connect().close()  # the dialect learns the version of SQLite
    compiled: dict[Any, Any] = {}

    def create(url: URL, **options: Any) -> Engine:
        engine = create_engine(url, **options)
        if url.get_backend_name() == "sqlite":
            engine.dialect = shared.dialect  # a part of the key of a compiled statement
            engine.update_execution_options(compiled_cache=compiled)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "create_engine", create)
        yield


@pytest.fixture(autouse=True)
def _no_idle_connection() -> Iterator[None]:
    """Keep no connection to the SQLite file of a test that is over."""
    yield
    database.close_idle_connections()


@pytest.fixture(scope="session")
def class_archives() -> ClassArchives:
    settings = Settings.from_environment()
    archives = ClassArchives(ReleaseCache.from_settings(settings), settings.cache)
    archives.use()
    return archives


@pytest.fixture(scope="session")
def spark_archive(class_archives: ClassArchives) -> None:
    """Each Spark starts with half the CPU time."""
    class_archives.record_spark()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def each_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with SQLite, and in `make test-full` with PostgreSQL too (see tests/records.py)."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        monkeypatch.setenv("KAFKA_ROLLOUT_DATABASE", server.create_upgraded_database())
