"""A tab that refreshes the page reads only runs that changed since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.airflow.views import records
from kafka_rollout.airflow.views.drawings import Drawings
from kafka_rollout.airflow.views.records import ShownRun
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.run.background import (
    BackgroundKey,
    BackgroundKind,
    BackgroundProcess,
    BackgroundState,
    series_of,
)
from kafka_rollout.run.events import Begun
from kafka_rollout.run.store.history import ReadHistory, SqlRunStore
from kafka_rollout.run.traffic import Leadership, TrafficSample, TrafficSeries
from kafka_rollout.wiring import runs as run_status
from tests.console_scenes import cluster_of
from tests.records import failed_step, run_history

IDS = [f"run-{number}" for number in range(5)]


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[list[str], list[dict[str, Any]]]]:
    """Ask as the page does: (ids of the runs whose events were read, the cards)."""
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    records.read_run.cache_clear()
    monkeypatch.setattr(run_status, "_READ", run_status.ReadRuns(most_events=100))
    read: list[str] = []
    read_history = SqlRunStore.read_history

    def counted(self: SqlRunStore, known: ReadHistory | None = None) -> ReadHistory:
        read.append(self.run_id)
        return read_history(self, known)

    monkeypatch.setattr(SqlRunStore, "read_history", counted)
    for run_id in IDS:
        run_history(tmp_path, "fake", run_id).record(Begun(dag_id="kafka_upgrade_fake"))

    def ask() -> tuple[list[str], list[dict[str, Any]]]:
        read.clear()
        clusters = {"fake": cluster_of(3)}
        (cluster,) = records.runs_of(clusters, Settings.from_environment(), may_read=lambda dag_id: True)
        return sorted(read), list(cluster["runs"])

    return ask


def test_a_second_poll_reads_no_history(show: Any) -> None:
    read, cards = show()
    assert read == IDS
    read, again = show()
    assert read == []
    assert [card["run_id"] for card in again] == [card["run_id"] for card in cards]


def test_a_run_with_a_new_event_or_report_is_read_again_and_no_other(tmp_path: Path, show: Any) -> None:
    show()
    run = run_history(tmp_path, "fake", IDS[2])
    run.record(failed_step("plan", "No broker responds."))
    read, cards = show()
    assert read == [IDS[2]]
    assert (cards[0]["run_id"], cards[0]["state"]) == (IDS[2], "ended without a report")
    assert not cards[0]["has_report"]
    run.write_report("", {"outcome": "failed", "ended_at": 9e9})
    read, cards = show()
    assert read == [IDS[2]]
    assert (cards[0]["has_report"], cards[0]["outcome"]) == (True, "failed")


def test_a_damaged_run_is_read_again_so_that_a_restored_document_is_seen(tmp_path: Path, show: Any) -> None:
    run = run_history(tmp_path, "fake", IDS[0])
    run.write_report("", {"outcome": "finished", "ended_at": 9e9})
    file = Path(run.location("report.json"))
    content = file.read_bytes()
    file.write_text('{"outcome": "failed", "ended_at": 9e9}')
    _, cards = show()
    assert {card["run_id"]: card["state"] for card in cards}[IDS[0]] == "damaged history"
    file.write_bytes(content)
    read, cards = show()
    assert read == [IDS[0]]
    assert {card["run_id"]: card["outcome"] for card in cards}[IDS[0]] == "finished"


def test_the_elapsed_time_of_a_run_in_progress_is_not_the_one_that_was_read() -> None:
    read = ShownRun(shown={"run_id": "r", "began_at": 1_000.0}, last_at=1_010.0)
    for now, elapsed, state in ((1_050.0, 50, "in progress"), (9_000.0, 10, "ended without a report")):
        card = read.card(holder="", now=now)
        assert (card["elapsed_s"], card["state"]) == (elapsed, state)
    assert read.card(holder="r", now=9_000.0)["elapsed_s"] == 8_000


def test_the_status_reads_no_history_that_the_cards_have_read(show: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    show()
    monkeypatch.setattr(SqlRunStore, "read_history", None)
    status = run_status.read_status("fake", Settings.from_environment())
    assert status is not None
    assert status.run == IDS[-1]


def test_the_runs_that_were_read_have_a_limit_of_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    settings, runs = Settings.from_environment(), run_status.ReadRuns(most_events=3)
    for run_id in IDS[:3]:
        for _ in range(2):
            run_history(tmp_path, "fake", run_id).record(Begun(dag_id="kafka_upgrade_fake"))
    read = [runs.get("fake", run_id, settings, "1")[0].view for run_id in (*IDS[:3], IDS[2])]
    assert read[2] is read[3]
    assert runs.get("fake", IDS[0], settings, "1")[0].view is not read[0]


def test_the_page_plans_its_next_refresh_after_the_answer() -> None:
    """An interval begins a request while the last one is still under way."""
    script = (Path(records.__file__).parent / "static" / "page.js").read_text()
    assert "setInterval" not in script
    assert "document.hidden" in script


def test_a_plot_is_drawn_at_most_once_in_ten_seconds_for_each_run() -> None:
    now, drawn = [100.0], list[str]()

    def get(name: str) -> str:
        def draw() -> str:
            drawn.append(name)
            return f"{name}{len(drawn)}"

        return drawings.get(name, draw)

    drawings = Drawings(clock=lambda: now[0])
    assert [get("a"), get("a"), get("b")] == ["a1", "a1", "b2"]
    now[0] += 10
    assert get("a") == "a3"


def test_the_samples_of_a_running_and_of_an_ended_traffic_have_all_periods() -> None:
    first, second = TrafficSample(1_000.0, 1.0), TrafficSample(2_000.0, 1.0)
    led, led_later = Leadership("p", 1, 1_000.0, 1_001.0), Leadership("p", 2, 2_000.0, 2_001.0)

    def process(state: BackgroundState, result: Any, before: Any = None) -> BackgroundProcess:
        key = BackgroundKey(cluster="c", run_id="r", kind=BackgroundKind.TRAFFIC)
        rest = {
            "instance": "i",
            "stop_requested": False,
            "host": "h",
            "pid": 1,
            "folder": "",
            "age_s": 1.0,
            "status": {},
        }
        return BackgroundProcess(key=key, state=state, result=result, settings={"before": before}, **rest)

    before = {"acknowledged": 1, "series": [first], "leaderships": [led]}
    running = process(BackgroundState.RUNNING, {"series": [second], "leaderships": [led_later]}, before)
    ended = process(BackgroundState.STOPPED, {"series": [first, second], "leaderships": [led_later, led]}, before)
    assert series_of(running) == series_of(ended)
    assert series_of(ended) == TrafficSeries(series=(first, second), leaderships=(led_later, led))
    assert series_of(process(BackgroundState.STARTING, None)) == series_of(None) == TrafficSeries()
