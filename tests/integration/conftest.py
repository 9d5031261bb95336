"""Real brokers for tests: started on request, stopped by process id and removed afterwards."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_rollout.cli import app as cli
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import keep_jvms
from tests.class_archives import ClassArchives
from tests.integration.harness.airflow.server import PrivateAirflow
from tests.integration.harness.feature_harness import Command
from tests.scheduling import needs_airflow
from tools.demo.local_cluster import LocalCluster

if TYPE_CHECKING:
    from playwright.sync_api import Page

MakeCluster = Callable[..., LocalCluster]
_AIRFLOW = pytest.StashKey[tuple[ExitStack, PrivateAirflow]]()


@pytest.fixture(scope="session")
def release_cache(class_archives: ClassArchives) -> ReleaseCache:
    return class_archives.cache


@pytest.fixture(scope="module")
def one_java_per_release(class_archives: ClassArchives) -> Iterator[None]:
    """The tests of a module share what a plan or check shares. Not for tests of what the process inherits."""
    with keep_jvms():
        yield


@pytest.fixture
def make_cluster(tmp_path: Path, release_cache: ReleaseCache, class_archives: ClassArchives) -> Iterator[MakeCluster]:
    """`make_cluster("3.9.1", layout="combined", …)`: LocalCluster.create in the folder of the test."""
    numbers = count(1)
    made: list[Path] = []

    def make(release: str, *, name: str | None = None, **options: Any) -> LocalCluster:
        folder = tmp_path / f"cluster-{next(numbers)}"
        made.append(folder)  # before the start: a cluster that fails to start is stopped too
        name = name or f"test-{next(numbers)}"
        class_archives.record_if_often(Release.parse(release))
        return LocalCluster.create(folder, name, Release.parse(release), cache=release_cache, **options)

    yield make
    for folder in made:
        end_cluster(folder)


@pytest.fixture(scope="module")
def make_shared_cluster(
    tmp_path_factory: pytest.TempPathFactory, release_cache: ReleaseCache, class_archives: ClassArchives
) -> Iterator[MakeCluster]:
    """As make_cluster, for a cluster that the tests of a module share."""
    made: list[Path] = []

    def make(release: str, *, name: str = "shared", **options: Any) -> LocalCluster:
        folder = tmp_path_factory.mktemp(name)
        made.append(folder)
        class_archives.record_if_often(Release.parse(release))
        return LocalCluster.create(folder, name, Release.parse(release), cache=release_cache, **options)

    yield make
    for folder in made:
        end_cluster(folder)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is bound, so that no process listens on it or can start to."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `kafka-rollout` in this process, on a cluster, with the home folder of one test."""

    def run(cluster: LocalCluster, words: str) -> tuple[int, str, str]:
        monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(cluster.inventory_path.parent))
        monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
        code = cli.run_main([*words.split(), "--cluster", cluster.spec.name])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def end_cluster(folder: Path) -> None:
    """Kill the nodes of a cluster and remove its data; no node waits for a controlled shutdown."""
    import shutil

    from tools.demo.local_cluster import stop_nodes

    stop_nodes(folder, deadline_s=0.0)
    shutil.rmtree(folder / "nodes", ignore_errors=True)


@pytest.fixture(scope="session")
def airflow_closed_at_the_end(pytestconfig: pytest.Config) -> Iterator[None]:
    yield
    _close_airflow(pytestconfig)


@pytest.fixture
def airflow(
    airflow_closed_at_the_end: None,
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    release_cache: ReleaseCache,
) -> PrivateAirflow:
    """The shared Airflow server; each test adds its own cluster."""
    stash = pytestconfig.stash
    if _AIRFLOW not in stash:
        release_cache.agents()  # downloaded before a process waits for them
        server = ExitStack()
        stash[_AIRFLOW] = (server, server.enter_context(PrivateAirflow.open(tmp_path_factory.mktemp("airflow"))))
    return stash[_AIRFLOW][1]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the shared Airflow server after its last test: its idle scheduler slows down the tests that follow."""
    if not (nextitem and needs_airflow(nextitem.path)):
        _close_airflow(item.config)


def _close_airflow(config: pytest.Config) -> None:
    if _AIRFLOW in config.stash:
        server, _ = config.stash[_AIRFLOW]
        del config.stash[_AIRFLOW]
        server.close()


@pytest.fixture
def page() -> Iterator[Page]:
    """A page of a new browser."""
    from tests.integration.harness.airflow.pages import open_page

    with open_page() as opened:
        yield opened
