"""The offline group's tasks over a fake cluster: the way down, the way back, and runs that do not go offline."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from kafka_rollout.domain.downgrade_planning import WhereRefused
from kafka_rollout.domain.metadata_losses import Loss
from kafka_rollout.domain.releases import METADATA_VERSION, Release
from kafka_rollout.steps.approval import APPROVED, ApprovalOf, record_approval
from kafka_rollout.steps.downgrade_plan import plan_downgrade
from tests.dags.conftest import FakeRuns, spec_with_homes
from tests.fake_cluster import R431, FakeCluster
from tests.fakes import fake_bench

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow

NEW, OLD = R431, Release(4, 2, 1)


@pytest.fixture
def world(runs: FakeRuns) -> FakeCluster:
    runs.world = FakeCluster(NEW, spec=spec_with_homes())
    runs.world.java = 17
    return runs.world


def known_to_airflow(dag: DAG) -> None:
    """A DAG of no file of the DAG folder runs only if it stands in the database."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(os.devnull)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)


def run_group(runs: FakeRuns, *, level: int | None = None) -> tuple[str, dict[str, str | None]]:
    """(the run's state, states by task) of a DAG with the group alone; its plan is made, and approved, by a task."""
    from airflow.providers.standard.operators.python import PythonOperator
    from airflow.sdk import DAG, Param, timezone
    from airflow.sdk.bases.operator import chain

    from kafka_rollout.operators.offline_groups import offline_group

    def plan(of_run: str) -> dict[str, str]:
        bench = fake_bench(runs.world, runs.home, run_id=of_run)
        made = plan_downgrade(bench, OLD, level=level, where_refused=WhereRefused.OFFLINE)
        record_approval(bench, ApprovalOf.ROLL, "alice", APPROVED, "a test")
        return {"plan_hash": made.hash}

    params = {
        "approval_timeout_hours": Param(1),
        "gate_timeout_minutes": Param(2),
        "looks": Param(1),
        "soak_seconds": Param(0),
        "approvers": Param([], type="array"),
    }
    with DAG("offline_group", schedule=None, params=params) as dag:
        planned = PythonOperator(task_id="plan", python_callable=plan, op_args=["{{ run_id }}"])
        group = offline_group(runs.world.spec)
        chain(planned, group.first)
    known_to_airflow(dag)
    run = dag.test(logical_date=timezone.utcnow())
    return str(run.state), {one.task_id: one.state for one in run.get_task_instances()}


def test_all_nodes_end_on_the_older_release_at_the_lower_level(runs: FakeRuns, world: FakeCluster) -> None:
    state, tasks = run_group(runs)
    assert (state, runs.asked) == ("success", [])
    assert {str(node.running) for node in world.nodes.values()} == {"4.2.1"}
    assert world.finalized[METADATA_VERSION] == 29
    back = {task for task in tasks if "gate_back" in task}
    assert {task for task, found in tasks.items() if found == "skipped"} == back


def test_a_person_has_everything_taken_back_when_a_step_cannot_go_on(runs: FakeRuns, world: FakeCluster) -> None:
    world.losses = [Loss(kind="cordoned log directories", subject="broker 11", sentence="Broker 11 loses them.")]
    runs.answers["offline.write_snapshot"] = ["Retry", "Roll back"]
    state, tasks = run_group(runs)
    assert state == "failed" or tasks["offline.write_snapshot"] == "failed"
    assert "Broker 11 loses them" in runs.bodies["offline.write_snapshot"]
    assert tasks["offline.undo.put_back"] == "success"
    assert {str(node.running) for node in world.nodes.values()} == {"4.3.1"}
    assert world.finalized[METADATA_VERSION] == 30
    assert {tasks[task] for task in tasks if "gate_back" in task} == {"success"}


def test_where_kafka_goes_the_way_by_itself_no_node_is_stopped(runs: FakeRuns, world: FakeCluster) -> None:
    world.finalized[METADATA_VERSION] = 29
    state, tasks = run_group(runs)
    assert state == "success"
    assert world.stops == []
    done: set[Any] = {task for task, found in tasks.items() if found == "success"}
    assert done == {"plan", "offline.begin", "offline.passed", "offline.undo.put_back", "offline.undo.done"}
