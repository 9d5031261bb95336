"""The state of clusters for all tabs: at most one query at a time, none that blocks, and a reason without an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowNotFoundException

from kafka_rollout.airflow.common.cluster_access import ClusterAccess
from kafka_rollout.airflow.views.live import LiveStates
from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.console.run_console import ClusterNow, summarize
from kafka_rollout.model.topology import ClusterSpec
from tests.console_scenes import cluster_of
from tests.dags.pages.page_client import PREFIX, serve_page, sign_in

pytestmark = pytest.mark.airflow

CLUSTER = cluster_of(1)


class Later:
    """A pool whose work is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def submit(self, work: Callable[..., object], *arguments: object) -> Future[object]:
        self.waiting.append(lambda: work(*arguments))
        return Future()

    def work(self) -> int:
        done, self.waiting = self.waiting, []
        for one in done:
            one()
        return len(done)


class World:
    """What the tests change: the time, and what a query does."""

    def __init__(self) -> None:
        self.now = 100.0
        self.takes_s = 1.0
        self.fails: Exception | None = None
        self.pool = Later()
        self.live = LiveStates(read=self.read, clock=lambda: self.now, pool=self.pool)  # type: ignore[arg-type]

    def read(self, cluster: ClusterSpec) -> ClusterNow:
        self.now += self.takes_s
        if self.fails is not None:
            raise self.fails
        return summarize(observed_at=self.now, partitions=(), quorum=None, registered=None, levels={})


def test_a_state_is_returned_at_once_and_read_once_for_all_tabs() -> None:
    world = World()
    assert [world.live.get(CLUSTER) for _ in range(3)] == [(None, "")] * 3
    assert world.pool.work() == 1
    state, problem = world.live.get(CLUSTER)
    assert state is not None
    assert (state.observed_at, problem, world.pool.waiting) == (101.0, "", [])
    world.now = 109.9
    assert (world.live.get(CLUSTER)[0], world.pool.work()) == (state, 0)
    world.now = 110.0
    assert (world.live.get(CLUSTER)[0], world.pool.work()) == (state, 1)


def test_a_slow_cluster_is_asked_less_often() -> None:
    world = World()
    world.takes_s = 5.0
    world.live.get(CLUSTER)
    world.pool.work()
    world.now = 149.9
    world.live.get(CLUSTER)
    assert world.pool.work() == 0
    world.now = 150.0
    world.live.get(CLUSTER)
    assert world.pool.work() == 1


def test_a_failed_query_keeps_the_last_state_with_the_reason_and_no_text_of_a_foreign_error() -> None:
    world = World()
    world.live.get(CLUSTER)
    world.pool.work()
    world.now, world.fails = 200.0, TransientError("No broker responds.", remedy="Check the listener.")
    world.live.get(CLUSTER)
    world.pool.work()
    state, problem = world.live.get(CLUSTER)
    assert state is not None
    assert "No broker responds." in problem
    world.now, world.fails = 300.0, ValueError("password=secret")
    world.live.get(CLUSTER)
    world.pool.work()
    problem = world.live.get(CLUSTER)[1]
    assert "ValueError" in problem
    assert "secret" not in problem


def test_a_connection_that_does_not_exist_is_named_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    from kafka_rollout.airflow.views import live

    def missing(hook: object) -> ClientSecurity:
        raise AirflowNotFoundException("The conn_id `orders-kafka` isn't defined")

    monkeypatch.setattr(ClusterAccess, "security", missing)
    later = Later()
    states = LiveStates(read=live._read, pool=later)  # type: ignore[arg-type]
    cluster = replace(CLUSTER, connection_id="orders-kafka")
    states.get(cluster)
    later.work()
    assert states.get(cluster) == (
        None,
        "The API server of Airflow cannot find the Connection orders-kafka of cluster orders. Create it in Airflow "
        "(Admin, Connections), or correct connection_id in the inventory.",
    )


@pytest.fixture
def client(tmp_path: Path, inventory: Path, database: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with serve_page(tmp_path, monkeypatch, dags="kafka_upgrade_fake") as client:
        yield client


def test_only_who_can_read_a_dag_of_the_cluster_gets_its_state(
    client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from kafka_rollout.airflow.views import app

    world = World()
    monkeypatch.setattr(app, "LIVE", world.live)
    ask = {"url": f"{PREFIX}/kafka", "params": {"cluster": "fake"}, "headers": sign_in(client)}
    assert client.get(**ask).json() == {"state": None, "problem": ""}
    world.pool.work()
    assert client.get(**ask).json()["state"]["partitions"] == 0
    monkeypatch.setenv("TEST_READABLE_DAGS", "kafka_upgrade_other")
    refused = client.get(**ask)
    missing = client.get(**{**ask, "params": {"cluster": "none"}})
    assert (refused.status_code, refused.text) == (404, missing.text)
    monkeypatch.setenv("TEST_READABLE_DAGS", "kafka_upgrade_fake")
    monkeypatch.setenv("KAFKA_ROLLOUT_LIVE_STATE", "0")
    off = client.get(**ask).json()
    assert (off["state"], "KAFKA_ROLLOUT_LIVE_STATE" in off["problem"]) == (None, True)
    assert client.get(f"{PREFIX}/kafka", params={"cluster": "fake"}).status_code == 401
