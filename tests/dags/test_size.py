"""The number of tasks of a DAG does not grow with the nodes of a large cluster, and its size stays small."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_rollout.airflow.graphs.cluster_dags import dags_of_changes
from kafka_rollout.airflow.graphs.procedure import IN_BATCHES, NODE_GROUPS_UP_TO
from kafka_rollout.airflow.operators.nodes import WORKS_S
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.topology import HostCommand, ServiceSpec
from tests.dags.conftest import spec_with_homes
from tests.fakes.cluster import make_spec

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow

KINDS = ("downgrade", "features", "restart", "upgrade")
TOGETHER = ("first_node", "approve_canary", "first_batch", "approve_first_batch", "other_nodes")
SIZE_LIMIT = 2 * 2**20  # bytes of a serialized DAG


def dags_with(inventory: Path, nodes: int) -> Mapping[str, DAG]:
    (inventory / "fake.yaml").write_text(dump_cluster(spec_with_homes(controllers=3, brokers=nodes - 3)))
    found = dags_of_changes(Settings.from_environment())
    assert set(found) == {f"kafka_{kind}_fake" for kind in KINDS}
    assert not [dag_id for dag_id, dag in found.items() if "broken inventory" in dag.tags]
    return found


def follow_each_other(dag: DAG, group: str) -> list[str]:
    """A task that acts waits for all tasks before it: a skipped approval ends before the nodes are replaced."""
    first_node, approve_canary, first_batch, approve_first_batch, others = order = [
        f"{group}.{one}" for one in TOGETHER
    ]
    assert dag.get_task(first_node).upstream_task_ids == {"roll.begin"}
    assert dag.get_task(approve_canary).upstream_task_ids == {first_node}
    assert dag.get_task(first_batch).upstream_task_ids == {first_node, approve_canary}
    assert dag.get_task(approve_first_batch).upstream_task_ids == {first_batch}
    assert dag.get_task(others).upstream_task_ids == set(order[:-1])
    return order


def test_the_form_of_a_dag_is_not_copied_for_each_task(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.definitions.param import ParamsDict

    copy, copied = ParamsDict.__deepcopy__, list[int]()

    def counted(form: ParamsDict, memo: dict[int, object]) -> ParamsDict:
        copied.append(len(form))
        return copy(form, memo)

    monkeypatch.setattr(ParamsDict, "__deepcopy__", counted)
    assert all(dag.params for dag in dags_with(inventory, 6).values())
    assert set(copied) == {0}


def test_a_thousand_nodes_have_as_many_tasks_as_thirteen(inventory: Path) -> None:
    from airflow.serialization.serialized_objects import LazyDeserializedDAG

    small, large = (dags_with(inventory, nodes) for nodes in (NODE_GROUPS_UP_TO + 1, 1000))
    assert {dag_id: dag.task_ids for dag_id, dag in small.items()} == {
        dag_id: dag.task_ids for dag_id, dag in large.items()
    }
    for dag_id, dag in large.items():
        size = len(json.dumps(LazyDeserializedDAG.from_dag(dag).data))
        assert size < SIZE_LIMIT, dag_id


def test_a_cluster_up_to_the_limit_has_a_task_group_for_each_node(inventory: Path) -> None:
    upgrade = dags_with(inventory, NODE_GROUPS_UP_TO)["kafka_upgrade_fake"]
    groups = {task_id.split(".")[1] for task_id in upgrade.task_ids if task_id.startswith("roll.")}
    assert len(groups - {"begin", "active_controller", IN_BATCHES}) == NODE_GROUPS_UP_TO


def test_a_small_cluster_with_three_brokers_has_the_tasks_of_batches_next_to_the_groups(inventory: Path) -> None:
    dag = dags_with(inventory, 6)["kafka_upgrade_fake"]
    follow_each_other(dag, "roll.in_batches")
    ends = {"roll.broker-13.passed", "roll.in_batches.other_nodes"}
    assert dag.get_task("register_again.begin").upstream_task_ids == ends
    registered = {"register_again.begin", "register_again.nodes"}
    assert dag.get_task("compare_after_roll").upstream_task_ids == registered
    begin = dag.get_task("roll_back.begin")
    assert begin.upstream_task_ids >= registered
    assert {"roll.in_batches.other_nodes", "register_again.nodes"} < set(begin.deciders)
    assert dag.get_task("roll_back.in_batches.nodes").upstream_task_ids == {"roll_back.begin"}
    assert "roll_back.in_batches.nodes" in dag.get_task("stop_traffic").upstream_task_ids
    without = dags_with(inventory, 5)["kafka_upgrade_fake"]
    assert not [task_id for task_id in without.task_ids if IN_BATCHES in task_id]


def test_a_large_cluster_has_a_rollback_after_each_decision(inventory: Path) -> None:
    dag = dags_with(inventory, NODE_GROUPS_UP_TO + 1)["kafka_upgrade_fake"]
    order = follow_each_other(dag, "roll")
    assert dag.get_task("register_again.begin").upstream_task_ids == {"roll.other_nodes"}
    begin = dag.get_task("roll_back.begin")
    assert "register_again.nodes" in begin.upstream_task_ids
    assert {*order, "register_again.nodes"} < set(begin.deciders)
    assert dag.get_task("roll_back.nodes").upstream_task_ids == {"roll_back.begin"}


def test_an_embedded_upgrade_of_a_large_cluster_has_the_tasks_of_its_own_dag(inventory: Path) -> None:
    from airflow.sdk import DAG

    from kafka_rollout.airflow.graphs.embedded import KafkaUpgradeTaskGroup

    own = dags_with(inventory, NODE_GROUPS_UP_TO + 1)["kafka_upgrade_fake"]
    with DAG(dag_id="embedding", schedule=None) as embedding:
        KafkaUpgradeTaskGroup("fake")
    assert set(embedding.task_ids) == set(own.task_ids)


def test_a_task_has_no_copy_of_the_form(inventory: Path) -> None:
    """Airflow would check and store the copy for each task again."""
    dag = dags_with(inventory, NODE_GROUPS_UP_TO)["kafka_upgrade_fake"]
    assert len(dag.params) > 1
    assert not any(task.params for task in dag.tasks)


def test_a_task_has_time_for_the_commands_of_the_operator(inventory: Path) -> None:
    command = HostCommand(command="/opt/drain", timeout_s=1800)
    spec = make_spec(controllers=3, brokers=3)
    nodes = tuple(
        replace(node, service=ServiceSpec(host=f"kafka-{node.node_id}", before_stop=(command,))) for node in spec.nodes
    )
    (inventory / "fake.yaml").write_text(dump_cluster(replace(spec, runtime="ssh_service", nodes=nodes)))
    dag = dags_of_changes(Settings.from_environment())["kafka_restart_fake"]
    limits = {task.task_id: (task.execution_timeout or timedelta()).total_seconds() for task in dag.tasks}
    replaced = [limit for task_id, limit in limits.items() if task_id.endswith(".node_step")]
    assert set(replaced) == {2700.0 + WORKS_S}
    assert limits[next(task_id for task_id in limits if task_id.endswith(".other_nodes"))] >= 6 * 1800
