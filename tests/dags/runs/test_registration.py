"""The second restarts of nodes that an old controller registered."""

from __future__ import annotations

import pytest

from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.releases.facts import Release
from tests.dags.conftest import FakeRuns, combined_spec
from tests.dags.runs.test_upgrade_run import node_steps, one_by_one, outcome
from tests.fakes.cluster import R431, FakeCluster

pytestmark = pytest.mark.airflow

R381 = Release(3, 8, 1)
FIRST, AGAIN = "3.8.1-to-4.3.1", "4.3.1-to-4.3.1"


@pytest.fixture
def runs(runs: FakeRuns, combined: None) -> FakeRuns:
    """Three combined nodes on 3.8.1; node 1 is the active controller."""
    runs.world = FakeCluster(R381, spec=combined_spec())
    runs.world.java = 17
    runs.world.registrations = MetadataRegistrations()
    return runs


def test_nodes_that_lack_ranges_restart_once_more_before_the_levels_are_raised(runs: FakeRuns) -> None:
    state, states, record = runs.run(finalize="after_approval")
    assert state == "success", states
    assert node_steps(record) == one_by_one(FIRST, [2, 3, 1]) + one_by_one(AGAIN, [2, 3])
    assert runs.asked == ["approve_plan", "approve_finalize"]
    assert "At most 2 more restarts" in runs.bodies["approve_plan"]
    assert {states[f"roll.gate_after[{index}]"] for index in range(5)} == {"success"}
    assert runs.world.finalized["group.version"] == 1
    assert outcome(record) == "finished"


@pytest.mark.full
def test_a_run_that_finalizes_later_restarts_no_node_twice_and_the_next_run_does(runs: FakeRuns) -> None:
    state, states, record = runs.run(finalize="later", pause_after="first-node")
    assert state == "success", states
    assert "roll.gate_after[3]" not in states
    assert "SECOND-RESTART-LATER" in {finding.code for finding in record.load_plan().findings}
    assert outcome(record) == "rolled_not_finalized"
    runs.asked.clear()

    state, states, record = runs.run(finalize="later", pause_after="first-node")
    assert state == "success", states
    assert node_steps(record) == one_by_one(AGAIN, [2, 3])
    assert runs.asked == ["approve_plan", "roll.gate_before[1]", "approve_finalize"]
    assert "Roll back" not in runs.offered["approve_finalize"], "no node moved to another release"
    assert outcome(record) == "finished"


@pytest.mark.full
def test_a_node_that_fails_in_its_second_restart_is_rolled_back_first(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = FakeCluster.start

    def fail_once(world: FakeCluster, node_id: int) -> None:
        if len(world.nodes[node_id].starts) == 1 and node_id == 2:
            world.cannot_start.add((2, R431))
        start(world, node_id)

    monkeypatch.setattr(FakeCluster, "start", fail_once)
    runs.answers = {"roll.gate_after[3]": ["Roll back"]}
    state, states, record = runs.run(finalize="after_approval")
    assert state == "failed", states
    assert [node for _, what, node in node_steps(record) if what == "started"] == [2, 3, 1, 2, 2, 1, 3]
    assert {node.running for node in runs.world.nodes.values()} == {R381}
    assert outcome(record) == "rolled_back"
