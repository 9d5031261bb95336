"""Where the inventory says that Airflow runs the tasks of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_rollout.clusters.inventory import dump_cluster, load_cluster
from tests.dags.conftest import spec_with_homes

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow

TASKS = {"pool": "kafka", "queue": "close-to-kafka", "executor": "LocalExecutor", "priority_weight": 7}


def test_every_task_of_every_dag_has_them_and_scans_have_a_pool_and_a_spark_of_their_own(
    inventory: Path, load_dags: Callable[[], dict[str, DAG]]
) -> None:
    spec = replace(
        spec_with_homes(),
        tasks=TASKS,
        scan_pool="scans",
        spark_connection_id="our_spark",
        spark_conf={"spark.cores.max": "2"},
    )
    file = inventory / "fake.yaml"
    file.write_text(dump_cluster(spec))
    assert load_cluster(file) == spec
    tasks = [task for dag_id, dag in load_dags().items() if dag_id.endswith("_fake") for task in dag.tasks]
    scans = [task for task in tasks if "scan" in task.task_id and getattr(task, "spark_conn_id", None)]
    assert len(scans) > 1
    assert {task.pool for task in tasks if task not in scans} == {"kafka"}
    assert {task.pool for task in scans} == {"scans"}
    assert {(task.spark_conn_id, task.conf_of_user["spark.cores.max"]) for task in scans} == {("our_spark", "2")}
    for name in ("queue", "executor", "priority_weight"):
        assert {getattr(task, name) for task in tasks} == {TASKS[name]}, name


def test_without_them_a_task_runs_as_those_of_others(load_dags: Callable[[], dict[str, DAG]]) -> None:
    tasks = [task for dag in load_dags().values() for task in dag.tasks]
    assert {task.pool for task in tasks} == {"default_pool"}
    assert {task.executor for task in tasks} == {None}
