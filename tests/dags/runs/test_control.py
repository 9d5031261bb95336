"""Pauses between the node steps of a DAG run: the tasks wait in the triggerer, without a worker."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kafka_rollout.base.json_forms import from_json
from kafka_rollout.gates.check import GateKind, GateRef
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Stopping
from tests.dags.conftest import FakeRuns
from tests.fakes.cluster import FakeCluster
from tests.records import change_lock

pytestmark = pytest.mark.airflow

NIGHTS = "Mo-Fr 22:00-04:00 Europe/Berlin; Tu 04:10-06:00 Europe/Berlin"  # a short pause has few checks
ORDER = [2, 3, 1, 11, 12, 13]


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[GateRef]:
    """The gates that the triggerer checked."""
    from kafka_rollout.airflow.gates.trigger import GateTrigger

    run_trigger, gates = GateTrigger.run, list[GateRef]()

    def run(trigger: GateTrigger) -> Any:
        gates.append(from_json(GateRef, trigger.gate))
        return run_trigger(trigger)

    monkeypatch.setattr(GateTrigger, "run", run)
    return gates


def close_after(monkeypatch: pytest.MonkeyPatch, node_id: int, now: str) -> None:
    """The clock shows `now` when the node has started."""
    start = FakeCluster.start

    def start_late(world: FakeCluster, started: int) -> None:
        start(world, started)
        if started == node_id:
            world.clock.set(at(now), reading_s=0.001)

    monkeypatch.setattr(FakeCluster, "start", start_late)


@pytest.mark.parametrize("group_up_to", [12, 5])  # tasks for each node; one task for all nodes
def test_a_run_waits_for_the_next_window_in_the_triggerer(
    runs: FakeRuns, watched: list[GateRef], monkeypatch: pytest.MonkeyPatch, group_up_to: int
) -> None:
    monkeypatch.setattr("kafka_rollout.airflow.graphs.procedure.NODE_GROUPS_UP_TO", group_up_to)
    runs.world.clock.set(at("2026-12-01 02:00"), reading_s=0.001)
    close_after(monkeypatch, 1, "2026-12-01 04:01")
    state, states, record = runs.run(window=NIGHTS, freeze_days=["2026-12-02"])
    assert state == "success", states
    stops = {event.node_id: event.at for event in events_of(record.events(), Stopping)}
    assert list(stops) == ORDER
    assert stops[1] < at("2026-12-01 04:00")
    assert stops[11] >= at("2026-12-01 04:10")
    assert GateRef(kind=GateKind.BEFORE_STOP, release_step="3.9.1-to-4.3.1", node_id=11) in watched
    assert runs.asked == ["approve_plan"]
    assert change_lock(runs.home).holder("fake") is None


def test_an_invalid_window_fails_the_first_task_with_one_sentence(runs: FakeRuns) -> None:
    state, states, _ = runs.run(window="Mo-Fr 22:00-04:00 Europe/Berln")
    assert state == "failed"
    assert states["roll.begin"] != "success"
    assert runs.asked == []
