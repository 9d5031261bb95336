"""DAG files of an existing Airflow: all clusters by three lines, and an upgrade inside a user's own DAG."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.dag import DagModel, DagTag
from airflow.sdk import DAG, TaskGroup, task

from kafka_rollout.airflow.graphs.all_clusters import all_dags
from kafka_rollout.airflow.graphs.embedded import KafkaUpgradeTaskGroup
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.run.events import Begun
from tests.paths import INCLUDE
from tests.records import change_lock, run_history

pytestmark = pytest.mark.airflow
THREE_LINES = """\
from kafka_rollout.airflow.graphs.all_clusters import all_dags

globals().update(all_dags())
"""


@pytest.fixture(autouse=True)
def _example_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(INCLUDE / "clusters"))


def test_a_dag_file_of_three_lines_has_the_dags_of_all_inventories(tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    (tmp_path / "kafka.py").write_text(THREE_LINES)
    bag = DagBag(tmp_path)
    assert bag.import_errors == {}
    kinds = (*RunOf, "compatibility_scan")
    assert set(bag.dags) == {*(f"kafka_{kind}_local" for kind in kinds), "kafka_notifications"}


def own_dag() -> DAG:
    with DAG(dag_id="own", schedule=None) as dag:

        @task
        def before() -> None: ...

        @task
        def after() -> None: ...

        before() >> KafkaUpgradeTaskGroup("local") >> after()
    return dag


def test_an_embedded_upgrade_has_the_tasks_and_edges_of_the_clusters_own_dag() -> None:
    ours, own = all_dags()["kafka_upgrade_local"], own_dag()

    def edges(dag: Any) -> dict[str, set[str]]:
        return {found.task_id: set(found.upstream_task_ids) for found in dag.tasks}

    embedded = edges(own)
    assert embedded.pop("after") >= {"outcome"}
    assert embedded.pop("before") == set()
    assert {task_id: found - {"before"} for task_id, found in embedded.items()} == edges(ours)
    assert [task_id for task_id, found in embedded.items() if "before" in found] == ["observe"]
    assert set(own.params) == set(ours.params)
    assert own.tags == {"kafka-rollout"}


def test_an_embedded_upgrade_keeps_its_task_ids_inside_another_group() -> None:
    with DAG(dag_id="own", schedule=None) as dag, TaskGroup("outer"):
        KafkaUpgradeTaskGroup("local")
    assert set(dag.task_ids) == set(all_dags()["kafka_upgrade_local"].task_ids)


@pytest.mark.parametrize(("tag", "is_released"), [("kafka-rollout", True), ("other", False)])
@pytest.mark.usefixtures("inventory")
def test_a_run_of_an_embedding_dag_releases_the_lock_when_it_ends(tmp_path: Path, tag: str, is_released: bool) -> None:
    from kafka_rollout.airflow.common.outbox import OUTBOX
    from kafka_rollout.airflow.run_listener import on_dag_run_failed

    home, lock = tmp_path / "home", change_lock(tmp_path / "home")
    for cluster, dag_id in (("another", "other"), ("fake", "own")):
        run_history(home, cluster, "run-1").record(Begun(dag_id=dag_id))
        lock.acquire(cluster, "run-1", "Stop node 2.", for_s=600)
    dag_run: Any = SimpleNamespace(
        dag_id="own", run_id="run-1", state="failed", dag_model=DagModel(tags=[DagTag(name=tag)]), clear_number=0
    )
    on_dag_run_failed(dag_run, "")
    assert OUTBOX.wait_until_empty(60)
    assert (lock.holder("fake") is None) is is_released
    assert lock.holder("another") is not None, "it is locked by a run of another DAG"
