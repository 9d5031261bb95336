"""Other DAGs that are scheduled on what a run proved, started by Airflow's scheduler."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tests.dags.conftest import FakeRuns
from tests.dags.runs.dag_run import publish

if TYPE_CHECKING:
    from airflow.sdk import DAG, Asset

pytestmark = pytest.mark.airflow

_NUMBERS = itertools.count()


def waiting_dag(asset: Asset) -> DAG:
    """A DAG of a user that waits for the asset, known to Airflow and not paused."""
    from airflow.models.dag import DagModel
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import DAG
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    with DAG(f"waits_{next(_NUMBERS)}", schedule=[asset], catchup=False) as dag:
        EmptyOperator(task_id="start_clients")
    publish(LazyDeserializedDAG.from_dag(dag))
    with create_session() as session:
        model = session.get(DagModel, dag.dag_id)
        assert model is not None
        model.is_paused = False
    return dag


def started_by(dag: DAG) -> list[dict[str, Any]]:
    """Let the scheduler create the runs that are due; return the extras of the events that started runs of the DAG."""
    from airflow.jobs.job import Job
    from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.sqlalchemy import prohibit_commit
    from sqlalchemy import select

    with create_session() as session:
        runner = SchedulerJobRunner(job=Job())
        with prohibit_commit(session) as guard:
            runner._create_dagruns_for_dags(guard, session)
        runs = session.scalars(select(DagRun).where(DagRun.dag_id == dag.dag_id)).all()
        return [dict(event.extra or {}) for run in runs for event in run.consumed_asset_events]


@pytest.mark.usefixtures("combined")
def test_dags_start_when_the_release_is_rolled_and_the_levels_are_finalized(runs: FakeRuns) -> None:
    from kafka_rollout.airflow.common.assets import levels_asset, release_asset

    wait_for_release, wait_for_levels = waiting_dag(release_asset("fake")), waiting_dag(levels_asset("fake"))
    state, states, record = runs.run(finalize="later")
    assert state == "success", states
    (rolled,) = started_by(wait_for_release)
    assert (rolled["from"], rolled["to"]) == ("3.9.1", "4.3.1")
    assert rolled["run_id"] == record.run_id
    assert started_by(wait_for_levels) == []

    state, states, _ = runs.run(finalize="later")
    assert state == "success", states
    (finalized,) = started_by(wait_for_levels)
    assert finalized["levels"]["metadata.version"] == 30
    assert len(started_by(wait_for_release)) == 1, "the second run moved no node"


def test_a_run_that_ends_otherwise_starts_no_dag(runs: FakeRuns) -> None:
    from kafka_rollout.airflow.common.assets import levels_asset, release_asset

    waiting = [waiting_dag(release_asset("fake")), waiting_dag(levels_asset("fake"))]
    assert runs.run(dry_run=True)[0] == "success"
    runs.answers["approve_plan"] = ["Reject"]
    assert runs.run()[0] == "failed"
    assert [started_by(dag) for dag in waiting] == [[], []]
