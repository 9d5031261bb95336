"""The restart DAG in one process, over a fake cluster of combined nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_rollout.run.store.history import SqlRunStore
from tests.dags.conftest import FakeRuns, spec_with_homes
from tests.dags.runs.dag_run import run_dag
from tests.fakes.cluster import R431, FakeCluster
from tests.records import change_lock, run_history

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow

DAG_ID = "kafka_restart_fake"


@pytest.fixture
def world(runs: FakeRuns) -> FakeCluster:
    runs.world = FakeCluster(R431, spec=spec_with_homes())
    return runs.world


def run(runs: FakeRuns, **conf: Any) -> tuple[str, dict[str, str | None], SqlRunStore]:
    """(state of the run, states by task, the run's record)."""
    started = run_dag(runs.load()[DAG_ID], {"pace": "fast", **conf})
    states = {ti.task_id: ti.state for ti in started.get_task_instances()}
    return str(started.state), states, run_history(runs.home, "fake", started.run_id)


def test_the_named_nodes_are_restarted_after_an_approval(runs: FakeRuns, world: FakeCluster) -> None:
    state, states, record = run(runs, nodes=["2", "12"])
    assert state == "success", states
    assert runs.asked == ["approve_plan"]
    assert "Restart on 4.3.1, one node at a time" in runs.bodies["approve_plan"]
    assert {node_id: len(node.starts) for node_id, node in world.nodes.items() if node.starts} == {2: 1, 12: 1}
    report = record.attachment("report.json")
    assert (report["outcome"], report["sentence"]) == ("finished", "2 nodes restarted on 4.3.1.")
    assert "fake: all nodes stay on 4.3.1" in record.page("report.html")
    assert change_lock(runs.home).holder("fake") is None


def test_a_dry_run_stops_no_node(runs: FakeRuns, world: FakeCluster) -> None:
    state, states, record = run(runs, dry_run=True)
    assert state == "success", states
    assert (runs.asked, record.attachment("report.json")["outcome"]) == ([], "dry_run")
    assert not any(node.starts for node in world.nodes.values())


def test_the_form_has_no_release_and_no_rehearsal(runs: FakeRuns) -> None:
    dag: DAG = runs.load()[DAG_ID]
    fields = set(dag.params)
    assert {"nodes", "dry_run", "pause_after", "pace", "accept_unavailable", "traffic"} <= fields
    assert not {"target_release", "rehearse", "finalize"} & fields
