"""The downgrade DAG where Kafka refuses the level and the controllers are separate, over a fake cluster."""

from __future__ import annotations

import pytest

from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.events import has
from kafka_rollout.run.step_events import LiveLowered, OfflineUndone
from tests.dags.conftest import FakeRuns
from tests.dags.runs.test_downgrade_run import outcome, releases, run, sent
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.metadata_logs import FakePrepared
from tests.unit.lowering.test_offline import R421

pytestmark = pytest.mark.airflow


@pytest.fixture
def world(runs: FakeRuns) -> FakeCluster:
    from tests.dags.conftest import spec_with_homes

    runs.world = FakeCluster(R431, spec=spec_with_homes(), finalized={METADATA_VERSION: 30})
    runs.world.clock.sleep(1000)  # every node has run for some time
    return runs.world


def test_one_approval_that_lists_what_is_unavailable_then_the_controllers_then_one_node_after_the_other(
    runs: FakeRuns, world: FakeCluster
) -> None:
    state, states, record = run(runs, "4.2.1", lowering="live")
    assert state == "success", states
    assert (runs.asked, sent(world)) == (["approve_roll"], [])
    for part in ("Expected time without an active controller", "no partition leader is elected", "one node at a time"):
        assert part in runs.bodies["approve_roll"]
    assert {task: found for task, found in states.items() if task.startswith("live.")} == {
        "live.begin": "success",
        "live.gate_controllers": "success",
        "live.lower_level": "success",
        "live.gate_level": "success",
    }
    assert (releases(world), world.finalized[METADATA_VERSION]) == ({R421}, 29)
    assert sorted(world.stops[:3]) == [1, 2, 3], "the controllers first, for the level"
    assert world.stops[3:6] == [11, 12, 13], "then the brokers, for the release"
    assert has(record.events(), LiveLowered)
    assert outcome(record) == "finished"


@pytest.mark.full
def test_a_failure_leaves_the_cluster_as_it_was_and_the_report_shows_why(
    runs: FakeRuns, world: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_rollout.base.errors import UserError

    def fails(*given: object, **more: object) -> None:
        raise UserError("The disk is full.")

    monkeypatch.setattr(FakePrepared, "write", fails)
    state, states, record = run(runs, "4.2.1", lowering="offline")
    assert (state, states["live.lower_level"], states["live.gate_level"]) == ("failed", "failed", "upstream_failed")
    assert (releases(world), world.finalized[METADATA_VERSION]) == ({R431}, 30)
    assert has(record.events(), OfflineUndone)
    report = record.attachment("report.json")
    assert "The disk is full. The controllers run on their old logs again." in report["sentence"]
