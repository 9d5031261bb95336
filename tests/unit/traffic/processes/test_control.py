"""A background process is controlled through the database; one whose host does not answer never passes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pydantic import TypeAdapter
from sqlalchemy import update

from kafka_rollout.base.errors import FatalError, TransientError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.run.background import BackgroundKey, BackgroundKind, BackgroundProcess, BackgroundState
from kafka_rollout.run.store.background import SqlBackground
from kafka_rollout.run.store.tables import background
from kafka_rollout.run.traffic import Leadership, TrafficSample, TrafficVerdict
from kafka_rollout.traffic.processes import of_run
from kafka_rollout.traffic.processes.of_run import (
    ALONE_S,
    LOG,
    SO_FAR,
    BackgroundControl,
    Heartbeat,
    Life,
    check_traffic,
    host_name,
    life_of,
    start_traffic,
    stop_traffic,
)
from tests.fakes.cluster import make_spec
from tests.records import change_lock, database_of

KEY = BackgroundKey(cluster="demo", run_id="run-1", kind=BackgroundKind.TRAFFIC)
SETTINGS = {
    "period": 1, "before": None, "group": "g",
    "leased": True, "unlocked_s": 900.0, "lowered": {}, "together": [],
}  # fmt: skip
PASSED = TrafficVerdict(
    acknowledged=5, stored=5, transactions={"committed": 1}, consumed={"classic": 5}, redelivered={}, unavailable_s={},
    discrepancies=(),
)  # fmt: skip


SPEC = make_spec(controllers=1, brokers=1, name="demo")


def stop(control: BackgroundControl) -> TrafficVerdict | None:
    return stop_traffic(SPEC, "run-1", security=None, settings=control.settings)


@pytest.fixture(autouse=True)
def _has_all_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_run, "refuse_without_traffic_rights", lambda *_: None)


@pytest.fixture
def record(tmp_path: Path) -> SqlBackground:
    return SqlBackground(database_of(tmp_path))


@pytest.fixture
def control(tmp_path: Path, record: SqlBackground) -> BackgroundControl:
    return BackgroundControl(key=KEY, settings=replace(Settings.from_environment(), home=tmp_path, database=""))


def registered(
    record: SqlBackground,
    host: str,
    *,
    pid: int,
    folder: str,
    age_s: float = 0.0,
    settings: Mapping[str, Any] = SETTINGS,
) -> BackgroundProcess:
    """A running process that reported `age_s` ago."""
    assert record.register(KEY, replaces="", host=host, folder=folder, settings=settings, stop=False)
    found = record.read(KEY)
    assert found is not None
    record.report(found, BackgroundState.RUNNING, pid=pid, status={"acknowledged": 5, "consumed": {"classic": 5}})
    with record._database.begin() as connection:
        connection.execute(update(background).values(reported_at=background.c.reported_at - age_s))
    found = record.read(KEY)
    assert found is not None
    return found


def ended_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    return ended.pid


@pytest.mark.parametrize(("age_s", "life"), [(1, Life.ALIVE), (30, Life.UNSURE), (70, Life.DEAD)])
def test_on_another_host_a_process_lives_as_long_as_it_reports(record: SqlBackground, age_s: int, life: Life) -> None:
    assert life_of(registered(record, "elsewhere", pid=os.getpid(), folder="/f", age_s=age_s)) is life


@pytest.mark.parametrize(("age_s", "life"), [(1, Life.UNSURE), (10, Life.DEAD)])
def test_on_this_host_a_process_is_dead_without_its_process_id(record: SqlBackground, age_s: int, life: Life) -> None:
    assert life_of(registered(record, host_name(), pid=ended_pid(), folder="/f", age_s=age_s)) is life


def test_another_process_with_its_process_id_is_not_the_process(record: SqlBackground) -> None:
    assert life_of(registered(record, host_name(), pid=os.getpid(), folder="/f", age_s=10)) is Life.DEAD


def test_a_host_that_does_not_answer_gives_an_unknown_result_that_does_not_pass(
    control: BackgroundControl, record: SqlBackground
) -> None:
    registered(record, "elsewhere", pid=1, folder="/journals", age_s=3600)
    result = stop(control)
    assert result is not None
    assert not result.is_clean
    (unknown,) = result.discrepancies
    assert unknown.kind == "unknown"
    assert "unknown: host elsewhere did not answer (last report 3600 s ago)" in unknown.sentence
    assert "/journals on host elsewhere" in unknown.sentence


def test_a_result_from_another_host_is_returned_as_often_as_it_is_asked_for(
    control: BackgroundControl, record: SqlBackground
) -> None:
    process = registered(record, "elsewhere", pid=1, folder="/journals")
    record.report(process, BackgroundState.STOPPED, pid=1, status={}, result=asdict(PASSED))
    assert stop(control) == stop(control) == PASSED


@pytest.mark.parametrize("gets_on", [True, False])
def test_a_comparison_of_a_long_run_is_waited_for_as_long_as_it_gets_on(
    control: BackgroundControl, record: SqlBackground, gets_on: bool
) -> None:
    process, now = registered(record, "elsewhere", pid=1, folder="/journals"), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 100.0
        ends = now[0] >= 900
        state = BackgroundState.STOPPED if ends else BackgroundState.COMPARING
        status = {"read_again": int(now[0]) if gets_on else 0}
        record.report(process, state, pid=1, status=status, result=asdict(PASSED) if ends else None)

    control = replace(control, clock=lambda: now[0], sleep=sleep)
    if gets_on:
        ended = control.wait_for_end(180.0)
        assert ended is not None
        assert ended.state is BackgroundState.STOPPED
    else:
        with pytest.raises(FatalError, match="did not end in 180 s"):
            control.wait_for_end(180.0)


def test_a_failed_comparison_on_another_host_is_an_error_that_names_the_host(
    control: BackgroundControl, record: SqlBackground
) -> None:
    process = registered(record, "elsewhere", pid=1, folder="/journals")
    record.report(process, BackgroundState.FAILED, pid=1, status={"error": "it did not reach the end"})
    with pytest.raises(FatalError, match="ended without a comparison: it did not reach the end") as error:
        stop(control)
    assert "on host elsewhere" in error.value.remedy


def check(control: BackgroundControl) -> TrafficVerdict | None:
    return check_traffic(SPEC, "run-1", settings=control.settings)


SAMPLE = TrafficSample(1.0, 1.0, 30)
LED = Leadership("producer-plain", 3, 1.0, 2.0)
SEEN: dict[str, Any] = {"series": (SAMPLE,), "leaderships": (LED,)}


def answer_checks(record: SqlBackground, monkeypatch: pytest.MonkeyPatch, **answer: Any) -> list[str]:
    """The process reports a sample and answers each request; return the requests."""
    requests: list[str] = []
    real = SqlBackground.request_check

    def request_check(self: SqlBackground, key: BackgroundKey) -> str:
        requests.append(real(self, key))
        process = record.read(key)
        assert process is not None
        assert process.asked == requests[-1]
        status = {SO_FAR: {"asked": process.asked, **answer}}
        record.report(process, BackgroundState.RUNNING, pid=1, status=status, result=SEEN)
        return requests[-1]

    monkeypatch.setattr(SqlBackground, "request_check", request_check)
    return requests


def test_running_traffic_compares_its_records_so_far_as_often_as_it_is_asked(
    control: BackgroundControl, record: SqlBackground, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(record, "elsewhere", pid=1, folder="/journals")
    requests = answer_checks(record, monkeypatch, result=asdict(PASSED))
    assert check(control) == check(control) == replace(PASSED, **SEEN), "they show which node steps it covers"
    assert len(set(requests)) == 2
    process = record.read(KEY)
    assert process is not None
    assert not process.stop_requested, "the traffic goes on"


def test_records_so_far_that_cannot_be_compared_are_no_result(
    control: BackgroundControl, record: SqlBackground, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(control) is None, "the run never had traffic"
    registered(record, "elsewhere", pid=1, folder="/journals")
    answer_checks(record, monkeypatch, error="classic did not reach the end.")
    with pytest.raises(TransientError, match="could not be compared: classic did not reach the end"):
        check(control)
    monkeypatch.undo()
    with pytest.raises(TransientError, match="did not compare its records in 0 s"):
        check_traffic(SPEC, "run-1", settings=control.settings, within_s=0.0)
    record.request_stop("demo", "run-1", BackgroundKind.TRAFFIC)
    with pytest.raises(TransientError, match="The test traffic does not run"):
        check(control)
    process = record.read(KEY)
    assert process is not None
    record.report(process, BackgroundState.STOPPED, pid=1, status={}, result=asdict(PASSED))
    assert check(control) == PASSED


def test_a_run_without_traffic_has_no_result(control: BackgroundControl) -> None:
    assert stop(control) is None


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch, record: SqlBackground) -> list[BackgroundProcess]:
    """Processes that were started; each has its first records at once."""
    found: list[BackgroundProcess] = []

    def spawn(self: BackgroundControl, instance: str, folder: Path, *_: Any) -> None:
        process = record.read(self.key)
        assert process is not None
        found.append(process)
        record.report(process, BackgroundState.RUNNING, pid=1, status={"acknowledged": 1, "consumed": {"classic": 1}})

    monkeypatch.setattr(BackgroundControl, "_spawn", spawn)
    return found


def start(control: BackgroundControl, folder: Path) -> BackgroundProcess:
    return start_traffic(SPEC, "run-1", security=None, folder=folder, settings=control.settings)


def test_a_worker_uses_the_traffic_that_runs_on_another_host(
    control: BackgroundControl, record: SqlBackground, spawned: list[BackgroundProcess], tmp_path: Path
) -> None:
    running = registered(record, "elsewhere", pid=1, folder="/journals")
    assert start(control, tmp_path).instance == running.instance
    assert spawned == []


def test_traffic_after_an_unknown_period_never_passes(
    control: BackgroundControl, record: SqlBackground, spawned: list[BackgroundProcess], tmp_path: Path
) -> None:
    first = registered(record, "elsewhere", pid=1, folder="/journals", age_s=3600)
    record.report(first, BackgroundState.FAILED, pid=1, status={}, result=SEEN)
    second = start(control, tmp_path)
    assert (second.folder, second.settings["group"]) == (str(tmp_path / "period-2"), "kafka-rollout-run-1-2")
    before = TypeAdapter(TrafficVerdict).validate_python(second.settings["before"])
    assert [each.kind for each in before.discrepancies] == ["unknown"]
    assert replace(before, **SEEN) == before, "what it had acknowledged is known"
    assert second.settings["brokers"] == [SPEC.brokers[0].node_id]


@pytest.mark.parametrize("host", [host_name(), "elsewhere"])
def test_traffic_that_was_killed_continues_where_its_journals_can_be_read(
    control: BackgroundControl,
    record: SqlBackground,
    spawned: list[BackgroundProcess],
    tmp_path: Path,
    host: str,
) -> None:
    """On its host, or on another host that shares the folder."""
    (tmp_path / LOG).touch()
    registered(record, host, pid=ended_pid(), folder=str(tmp_path), age_s=3600)
    again = start(control, tmp_path / "other")
    assert (again.folder, again.settings) == (str(tmp_path), SETTINGS)
    assert len(spawned) == 1


def test_the_credentials_go_to_the_addresses_of_the_inventory(
    control: BackgroundControl, record: SqlBackground, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A user who can write into the database could otherwise name the address that gets them."""
    (tmp_path / LOG).touch()
    settings = {**SETTINGS, "bootstrap_servers": "mallory:9092"}  # also in the records of older versions
    registered(record, host_name(), pid=ended_pid(), folder=str(tmp_path), age_s=3600, settings=settings)
    started: list[list[str]] = []

    def start_process(words: list[str], *_: Any, **__: Any) -> None:
        started.append(words)
        process = record.read(KEY)
        assert process is not None
        record.report(process, BackgroundState.FAILED, pid=1, status={})

    monkeypatch.setattr(of_run, "start_session", start_process)
    with pytest.raises(FatalError):
        start(control, tmp_path)
    assert started[0][started[0].index("--bootstrap-servers") + 1] == SPEC.bootstrap_servers


def test_traffic_that_was_stopped_starts_a_new_period_with_the_result_so_far(
    control: BackgroundControl, record: SqlBackground, spawned: list[BackgroundProcess], tmp_path: Path
) -> None:
    process = registered(record, "elsewhere", pid=1, folder="/journals")
    record.report(process, BackgroundState.STOPPED, pid=1, status={}, result=asdict(PASSED))
    second = start(control, tmp_path)
    assert second.settings["period"] == 2
    assert TypeAdapter(TrafficVerdict).validate_python(second.settings["before"]) == PASSED


def test_traffic_without_a_first_record_is_stopped_and_its_log_is_shown(
    control: BackgroundControl, record: SqlBackground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spawn(self: BackgroundControl, instance: str, folder: Path, *_: Any) -> None:
        process = record.read(self.key)
        assert process is not None
        record.report(process, BackgroundState.FAILED, pid=1, status={"error": "no broker responded"})

    monkeypatch.setattr(BackgroundControl, "_spawn", spawn)
    with pytest.raises(FatalError, match="first record: no broker responded"):
        start(control, tmp_path)


def test_waiting_for_another_host_shows_progress(control: BackgroundControl, record: SqlBackground) -> None:
    registered(record, "elsewhere", pid=7, folder="/journals")
    lines: list[str] = []
    with pytest.raises(FatalError, match=r"process 7 on host elsewhere\) was requested to stop and did not end"):
        replace(control, on_progress=lines.append, progress_every_s=0.0).wait_for_end(0.5)
    assert "The test traffic (process 7 on host elsewhere) is running; last report 0 s ago." in lines


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def heartbeat(home: Path, record: SqlBackground, stop: Event, clock: Clock) -> Heartbeat:
    process = registered(record, host_name(), pid=1, folder="/f")
    return Heartbeat(record, change_lock(home), process, stop, clock=clock)


def test_a_process_stops_when_a_worker_requests_it(tmp_path: Path, record: SqlBackground) -> None:
    stop = Event()
    beat = heartbeat(tmp_path, record, stop, Clock())
    beat.beat()
    assert not stop.is_set()
    record.request_stop("demo", "run-1")
    beat.beat()
    assert stop.is_set()
    assert not beat.is_replaced


def test_a_replaced_process_stops_and_reports_nothing(tmp_path: Path, record: SqlBackground) -> None:
    stop = Event()
    beat = heartbeat(tmp_path, record, stop, Clock())
    before = record.read(KEY)
    assert before is not None
    record.register(KEY, replaces=before.instance, host="elsewhere", folder="/g", settings=SETTINGS, stop=False)
    beat.beat()
    assert stop.is_set()
    assert beat.is_replaced


def test_a_process_stops_when_its_run_has_not_held_the_lock_for_15_minutes(
    tmp_path: Path, record: SqlBackground
) -> None:
    stop, clock = Event(), Clock()
    beat = heartbeat(tmp_path, record, stop, clock)
    lock = change_lock(tmp_path)
    lock.acquire("demo", "run-1", "upgrade", for_s=3600)
    for _ in range(2):
        clock.now += ALONE_S + 20
        beat.beat()
        assert not stop.is_set()
    lock.release("demo", "run-1")
    clock.now += ALONE_S - 20
    beat.beat()
    assert not stop.is_set()
    clock.now += 40
    beat.beat()
    assert stop.is_set()


def test_a_process_without_its_database_stops_after_15_minutes(
    tmp_path: Path, record: SqlBackground, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_rollout.base.errors import TransientError

    stop, clock = Event(), Clock()
    beat = heartbeat(tmp_path, record, stop, clock)

    def lost(*_: Any, **__: Any) -> None:
        raise TransientError("The database did not answer.", remedy="Check it.")

    monkeypatch.setattr(SqlBackground, "report", lost)
    clock.now = ALONE_S
    beat.beat()
    assert not stop.is_set()
    clock.now += 1
    beat.beat()
    assert stop.is_set()


def test_a_process_that_starts_after_its_command_was_killed_stops_at_once(
    tmp_path: Path, record: SqlBackground
) -> None:
    stop = Event()
    process = registered(record, host_name(), pid=1, folder="/f")
    process = replace(process, settings={**SETTINGS, "only_with": ended_pid()})
    beat = Heartbeat(record, change_lock(tmp_path), process, stop, clock=Clock())
    assert stop.is_set()
    beat.start()
    beat.finish(BackgroundState.STOPPED, result={"groups": []})
    ended = record.read(KEY)
    assert ended is not None
    assert (ended.state, ended.result) == (BackgroundState.STOPPED, {"groups": []})


def test_no_process_that_got_the_id_of_another_one_is_killed(record: SqlBackground) -> None:
    words = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    process = registered(record, host_name(), pid=0, folder="/f")
    foreign, own = (subprocess.Popen([*words, *more], stdout=subprocess.PIPE) for more in ([], [process.instance]))
    try:
        for one in (foreign, own):
            assert one.stdout is not None
            one.stdout.readline()  # the kernel shows the arguments of a process only after exec has ended
            of_run._kill(replace(process, pid=one.pid))
        assert own.wait(10) < 0
        assert foreign.poll() is None
    finally:
        for one in (foreign, own):
            one.kill()
            one.communicate()
