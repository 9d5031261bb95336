"""What every DAG and every task of ours must have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_rollout.clusters.inventory import dump_cluster
from tests.dags.conftest import DAG_ID, spec_with_homes

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow

# Tasks that run also after a failure. Each of them looks for itself what there is to do.
ALSO_AFTER_A_FAILURE = {"plan", "begin_roll_back", "stop_traffic", "report", "outcome"}


@pytest.fixture
def dags(inventory: Path, load_dags: Callable[[], dict[str, DAG]]) -> dict[str, DAG]:
    (inventory / "unread.yaml").write_text("name: unread\nnodes: 3\n")
    (inventory / "second.yaml").write_text(dump_cluster(spec_with_homes("second", controllers=1, brokers=1)))
    return load_dags()


def test_every_cluster_has_its_dag_and_an_unreadable_inventory_takes_none_away(dags: dict[str, DAG]) -> None:
    for kind in ("kafka_upgrade", "kafka_downgrade", "kafka_compatibility_scan", "kafka_features"):
        of_kind = {dag_id.removeprefix(f"{kind}_") for dag_id in dags if dag_id.startswith(kind)}
        assert of_kind == {"fake", "second", "unread_unreadable"}
        assert "unread.yaml is wrong" in str(dags[f"{kind}_unread_unreadable"].description)


def test_every_dag_says_whose_it_is_and_what_it_does(dags: dict[str, DAG]) -> None:
    for dag in dags.values():
        assert dag.owner == "kafka-platform"
        assert dag.description
        assert dag.doc_md
        assert {"kafka", "kafka-rollout"} <= set(dag.tags)
        assert dag.max_active_runs == 1
        assert not dag.catchup


def test_every_task_is_documented_retried_and_bounded(dags: dict[str, DAG]) -> None:
    for dag in dags.values():
        for task in dag.tasks:
            assert task.owner == "kafka-platform", task.task_id
            assert task.doc_md, task.task_id
            if not task.start_from_trigger:  # a sensor waits as long as its gate does
                assert task.retries >= 1, task.task_id
                assert task.execution_timeout is not None, task.task_id


def test_nothing_goes_on_after_a_failure_but_what_ends_the_run(dags: dict[str, DAG]) -> None:
    for dag in (dags[DAG_ID], dags["kafka_upgrade_second"]):
        rules = {task.task_id: str(getattr(task.trigger_rule, "value", task.trigger_rule)) for task in dag.tasks}
        assert {task_id for task_id, rule in rules.items() if rule == "all_done"} == ALSO_AFTER_A_FAILURE
        waits_by_itself = {task_id for task_id, rule in rules.items() if rule == "one_success"}
        parts = ("replace", "gate_after")
        assert waits_by_itself == {f"{group}.{part}" for group in ("roll", "roll_back") for part in parts}
        assert set(rules.values()) == {"all_success", "none_failed", "all_done", "one_success"}


def test_a_dry_run_skips_all_between_plan_and_report(dags: dict[str, DAG]) -> None:
    dag = dags[DAG_ID]
    kept = {"observe", "scan_before_roll", "plan", "rehearse", "dry_run", "report", "outcome"}
    assert set(dag.get_task("dry_run").skipped) == set(dag.task_ids) - kept


def test_the_form_refuses_what_makes_no_sense(dags: dict[str, DAG]) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    params = dags[DAG_ID].params
    for name, value in (
        ("target_release", "9.9.9"),
        ("target_release", "latest"),
        ("finalize", "now"),
        ("pace", "slow"),
        ("max_batch_size", 0),
        ("dry_run", "yes"),
    ):
        with pytest.raises(ParamValidationError):
            params.get_param(name).resolve(value)
    assert params.get_param("finalize").resolve() == "later", "nothing is finalized when nothing is said"
    assert params.get_param("target_release").resolve("3.4.1") == "3.4.1"
