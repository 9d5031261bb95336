"""The downgrade DAG where Kafka refuses the level, over a fake cluster: offline down, and back from the backups."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.lowering import offline
from kafka_rollout.metadata_log.losses import Loss
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import OfflineLeftBehind
from tests.dags.conftest import FakeRuns
from tests.dags.runs.test_downgrade_run import outcome, releases, run, sent
from tests.fakes.cluster import R431, FakeCluster
from tests.integration.harness.faults.without_live import stage_no_live
from tests.unit.lowering.test_offline import R421

pytestmark = pytest.mark.airflow

CORDONED = Loss(kind="cordoned log directories", subject="broker 11", sentence="Broker 11 loses /data/2.")


@pytest.fixture
def world(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    from tests.dags.conftest import spec_with_homes

    stage_no_live(monkeypatch)

    runs.world = FakeCluster(R431, spec=spec_with_homes(), finalized={METADATA_VERSION: 30})
    return runs.world


def test_one_approval_that_names_the_outage_and_the_last_moment_then_all_nodes_at_once(
    runs: FakeRuns, world: FakeCluster
) -> None:
    state, states, record = run(runs, "4.2.1", lowering="offline")
    assert state == "success", states
    assert (runs.asked, sent(world)) == (["approve_roll"], [])
    for told in (
        "Expected outage of the whole cluster",
        "The downgrade can be undone from the backups until",
        "rollback",
    ):
        assert told in runs.bodies["approve_roll"]
    assert (releases(world), world.finalized[METADATA_VERSION]) == ({R421}, 29)
    assert set(world.stops[:3]) == {11, 12, 13}
    assert {found for task, found in states.items() if task.startswith("roll.")} == {"skipped"}
    assert outcome(record) == "finished"


@pytest.mark.full
def test_a_real_loss_needs_unsafe_and_is_named_in_the_approval(runs: FakeRuns, world: FakeCluster) -> None:
    world.losses = [CORDONED]
    state, _, _ = run(runs, "4.2.1", lowering="offline")
    assert (state, runs.asked, world.stops) == ("failed", [], [])
    state, states, _ = run(runs, "4.2.1", lowering="offline", downgrade_type="UNSAFE")
    assert state == "success", states
    assert "Broker 11 loses /data/2." in runs.bodies["approve_roll"]
    assert world.finalized[METADATA_VERSION] == 29


@pytest.mark.full
def test_when_a_step_cannot_go_on_a_person_has_everything_taken_back(
    runs: FakeRuns, world: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_before = offline._record_before

    def and_somebody_cordons_a_directory(*given: object) -> None:
        record_before(*given)  # type: ignore[arg-type]
        world.losses = [CORDONED]

    monkeypatch.setattr(offline, "_record_before", and_somebody_cordons_a_directory)
    runs.answers["offline.write_snapshot"] = ["Retry", "Roll back"]
    state, states, record = run(runs, "4.2.1", lowering="offline")
    assert (state, states["offline.write_snapshot"], states["offline.undo.restore"]) == ("failed", "failed", "success")
    assert "Restore every node's metadata log from its backup" in runs.bodies["offline.write_snapshot"]
    assert (releases(world), world.finalized[METADATA_VERSION]) == ({R431}, 30)
    assert {states[task] for task in states if "undo.nodes.gate_after" in task} == {"success"}
    assert outcome(record) == "rolled_back"


def lose_the_first_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first attempt of *Retry* at a gate fail."""
    start_again, lost = offline.start_again, list[TransientError]()

    def lose_it_once(*given: Any) -> None:
        if not lost:
            lost.append(TransientError("The host did not respond."))
            raise lost[0]
        start_again(*given)

    monkeypatch.setattr(offline, "start_again", lose_it_once)


def test_a_controller_whose_disk_is_lost_is_started_by_retry_at_its_gate_once_it_is_mended(
    runs: FakeRuns, world: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, failed = FakeCluster.start, []

    def starts_once_its_disk_is_new(world: FakeCluster, node_id: int) -> None:
        world.cannot_start = set() if failed else {(1, R421)}
        start(world, node_id)
        if node_id == 1:
            failed.append(node_id)

    monkeypatch.setattr(FakeCluster, "start", starts_once_its_disk_is_new)
    world.no_log = {1}
    lose_the_first_connection(monkeypatch)
    gate = "offline.nodes.gate_after[0]"
    runs.answers[gate] = ["Retry"]
    state, states, record = run(runs, "4.2.1", lowering="offline")
    assert state == "success", states
    assert runs.asked == ["approve_roll", gate]
    assert "Start the node again" in runs.bodies[gate]
    (left,) = events_of(record.events(), OfflineLeftBehind)
    assert left.node_id == 1
    assert (releases(world), outcome(record)) == ({R421}, "finished")
