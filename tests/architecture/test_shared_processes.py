"""No thread that all DAGs and users of Airflow share waits for a database, cluster or host of this project."""

from __future__ import annotations

import ast
import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.routing import APIRoute

from kafka_rollout.airflow import run_listener
from kafka_rollout.airflow.common.links import TAG
from kafka_rollout.airflow.common.outbox import OUTBOX, HistoryUpdate
from kafka_rollout.airflow.own_threads import OwnThreads
from kafka_rollout.airflow.plugin import KafkaRolloutPlugin
from kafka_rollout.airflow.views import app as pages
from kafka_rollout.base.errors import TransientError
from tests.architecture.rooms import PACKAGE, nodes_of

pytestmark = pytest.mark.airflow

OF_OTHERS = {"to_thread", "run_in_executor", "sync_to_async", "run_in_threadpool", "ThreadPoolExecutor"}
OWN = {"own_threads.py", "views/live.py"}
"""Modules with a pool of this project."""
HOOKS = [name for name in vars(run_listener) if name.startswith("on_")]
TABLES = {"after_flush": run_listener._note, "after_commit": run_listener._put_noted}


@pytest.fixture
def held() -> Iterator[None]:
    """The thread of the outbox waits for a database that does not respond."""
    ends = threading.Event()
    OUTBOX.put(HistoryUpdate(what="The end of a run", apply=ends.wait))
    yield
    ends.set()
    assert OUTBOX.wait_until_empty(60)


def test_a_call_that_blocks_waits_in_a_thread_of_this_project() -> None:
    found = {
        str(path.relative_to(PACKAGE / "airflow")): names
        for path in (PACKAGE / "airflow").rglob("*.py")
        if (
            names := {
                ast.unparse(node).rpartition(".")[2]
                for node in nodes_of(path.read_text())
                if isinstance(node, ast.Attribute | ast.Name)
            }
            & OF_OTHERS
        )
    }
    assert found.keys() == OWN


def test_every_listener_is_known_here() -> None:
    assert KafkaRolloutPlugin.listeners == [run_listener]
    assert sorted(HOOKS) == ["on_dag_run_failed", "on_dag_run_running", "on_dag_run_success"]


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("name", HOOKS)
def test_a_listener_returns_while_the_database_does_not_respond(name: str, no_database: None) -> None:
    model = SimpleNamespace(tags=[SimpleNamespace(name=TAG)])
    hook: Callable[..., Any] = getattr(run_listener, name)
    hook(SimpleNamespace(dag_id="d", run_id="r", dag_model=model, state="failed", clear_number=0), "")


@pytest.mark.usefixtures("held")
def test_a_transaction_of_airflow_ends_while_the_database_does_not_respond(no_database: None) -> None:
    deleted = type("DagRun", (), {"dag_id": "d", "run_id": "r"})()
    session: Any = SimpleNamespace(deleted=[deleted], dirty=[], info={})
    run_listener._note(session, None)
    run_listener._put_noted(session)
    assert session.info == {}


@pytest.fixture
def no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail in a thread that asks for the database, except in that of the outbox, which waits."""

    def refuse(*_: Any) -> None:
        assert threading.current_thread().name == "kafka-rollout-outbox", "this thread is Airflow's"

    monkeypatch.setattr("kafka_rollout.run.store.opening.database_of", refuse)


def test_every_route_of_the_pages_is_called_in_a_thread_of_this_project(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[tuple[Any, Any]]()

    class Noted:
        async def run(self, route: Any, **given: Any) -> None:
            called.append((route, given))

    routes = [route for route in pages.app.routes if isinstance(route, APIRoute)]
    assert {"/", "/console", "/fleet/rows", "/dags/{dag_id}/control"} <= {route.path for route in routes}
    monkeypatch.setattr(pages, "OF_PAGES", Noted())
    for route in routes:
        asyncio.run(route.endpoint(one=1))
    assert [route.__name__ for route, _ in called] == [route.name for route in routes]
    assert all(given == {"one": 1} for _, given in called)


def test_what_waits_too_long_for_is_refused_and_holds_no_thread_of_airflow() -> None:
    ends, names = threading.Event(), list[str]()

    def wait() -> str:
        names.append(threading.current_thread().name)
        ends.wait()
        return "done"

    async def ask() -> list[Any]:
        own = OwnThreads("own", 2, at_most=3)
        waiting = [asyncio.create_task(own.run(wait)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(TransientError, match="3 requests wait for"):
            await own.run(wait)
        ends.set()
        return await asyncio.gather(*waiting, own_after(own, waiting))

    async def own_after(own: OwnThreads, waiting: list[Any]) -> Any:
        await asyncio.wait(waiting)
        return await own.run(wait)

    assert asyncio.run(ask()) == ["done"] * 4
    assert len(names) == 4
    assert all(name.startswith("own") for name in names)
