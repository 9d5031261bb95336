"""SqlBackground: any worker starts, queries and stops a background process; only the newest process reports."""

from __future__ import annotations

import pytest

from kafka_rollout.run.background import BackgroundKey, BackgroundKind, BackgroundProcess, BackgroundState
from kafka_rollout.run.store.background import SqlBackground
from tests.contract.store.conftest import Store

KEY = BackgroundKey(cluster="demo", run_id="run-1", kind=BackgroundKind.TRAFFIC)


@pytest.fixture
def record(store: Store) -> SqlBackground:
    return store.background()


def register(record: SqlBackground, key: BackgroundKey = KEY, *, replaces: str = "") -> BackgroundProcess:
    settings = {"group": "g"}
    assert record.register(key, replaces=replaces, host="a", folder="/f", settings=settings, stop=False)
    return read(record, key)


def read(record: SqlBackground, key: BackgroundKey = KEY) -> BackgroundProcess:
    found = record.read(key)
    assert found is not None
    return found


def test_a_registered_process_is_seen_by_every_worker_with_its_host_and_age(store: Store) -> None:
    assert store.background().read(KEY) is None
    process = register(store.background())
    assert (process.state, process.host, process.folder, process.settings) == (
        BackgroundState.STARTING,
        "a",
        "/f",
        {"group": "g"},
    )
    store.clock.now += 30
    assert read(store.background()).age_s == 30
    report = store.background().report(process, BackgroundState.RUNNING, pid=7, status={"acknowledged": 3})
    assert report == read(store.background())
    assert (report.age_s, report.pid, report.status, report.result) == (0, 7, {"acknowledged": 3}, None)


def test_a_stop_request_reaches_the_processes_of_its_run_only(record: SqlBackground) -> None:
    keys = [KEY, BackgroundKey(cluster="demo", run_id="run-1", kind=BackgroundKind.GROUPS)]
    other = BackgroundKey(cluster="demo", run_id="run-2", kind=BackgroundKind.TRAFFIC)
    for key in (*keys, other):
        register(record, key)
    record.request_stop("demo", "run-1", BackgroundKind.TRAFFIC)
    assert [read(record, key).stop_requested for key in (*keys, other)] == [True, False, False]
    record.request_stop("demo", "run-1")
    assert [read(record, key).stop_requested for key in (*keys, other)] == [True, True, False]


def test_of_two_workers_that_start_at_the_same_time_one_registers(record: SqlBackground) -> None:
    first = register(record)
    assert record.register(KEY, replaces="", host="b", folder="/g", settings={}, stop=False) is None
    assert read(record).instance == first.instance


def test_a_replaced_process_cannot_report_over_its_successor(record: SqlBackground) -> None:
    first = register(record)
    second = register(record, replaces=first.instance)
    assert record.report(first, BackgroundState.STOPPED, pid=1, status={}, result={"ok": True}) is None
    assert read(record) == second


def test_the_result_stays_when_a_later_report_has_none(record: SqlBackground) -> None:
    process = register(record)
    record.report(process, BackgroundState.STOPPED, pid=1, status={}, result={"acknowledged": 5})
    assert read(record).result == {"acknowledged": 5}
    record.report(process, BackgroundState.STOPPED, pid=1, status={})
    assert read(record).result == {"acknowledged": 5}
