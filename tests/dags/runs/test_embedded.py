"""An upgrade in a user's own DAG: it begins only after the user's task before it has succeeded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.dags.conftest import FakeRuns
from tests.dags.runs.dag_run import clear_and_continue, run_dag
from tests.records import change_lock, run_history

pytestmark = pytest.mark.airflow

FORM = {"target_release": "4.3.1", "pace": "fast"}


def own_dag(window: Callable[[], None]) -> Any:
    from airflow.sdk import DAG, task

    from kafka_rollout.airflow.graphs.embedded import KafkaUpgradeTaskGroup

    with DAG(dag_id="maintenance", schedule=None) as dag:
        before, after = task(task_id="window")(window), task(task_id="after")(lambda: None)
        before() >> KafkaUpgradeTaskGroup("fake") >> after()
    return dag


def states_of(run: Any) -> dict[str, str]:
    return {one.task_id: one.state for one in run.get_task_instances()}


@pytest.mark.usefixtures("combined")
@pytest.mark.parametrize("fails", [True, False], ids=["failed", "skipped"])
def test_nothing_begins_after_a_task_before_the_group_that_failed_or_was_skipped(runs: FakeRuns, fails: bool) -> None:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    def window() -> None:
        raise (AirflowFailException if fails else AirflowSkipException)("no change tonight")

    run = run_dag(own_dag(window), FORM)
    states = states_of(run)
    assert run.state == ("failed" if fails else "success")
    assert states["plan"] == ("failed" if fails else "skipped")
    assert {task for task, state in states.items() if state == "failed"} == (
        {"window", "plan", "outcome"} if fails else set()
    )
    assert run_history(runs.home, "fake", run.run_id).events() == ()
    assert change_lock(runs.home).holder("fake") is None
    assert (runs.asked, runs.world.stops) == ([], [])


@pytest.mark.usefixtures("combined")
def test_a_cleared_run_whose_task_before_the_group_fails_now_changes_nothing(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from kafka_rollout.airflow.operators.ask_approval import ApprovalOperator

    is_open, act = [True], ApprovalOperator.act

    def window() -> None:
        if not is_open[0]:
            raise AirflowFailException("outside of the change window")

    def without_answer(self: ApprovalOperator, *given: Any) -> Any:
        if is_open[0]:
            raise AirflowFailException("no answer in time")
        return act(self, *given)

    monkeypatch.setattr(ApprovalOperator, "act", without_answer)
    dag = own_dag(window)
    run = run_dag(dag, FORM)
    assert states_of(run)["approve_plan"] == "failed"
    is_open[0] = False
    runs.asked.clear()
    run = clear_and_continue(dag, run, "window")
    states = states_of(run)
    assert states["window"] == "failed"
    assert (states["plan"], states["approve_plan"]) == ("failed", "upstream_failed")
    assert (runs.asked, runs.world.stops) == ([], [])
