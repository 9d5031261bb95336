"""The number of tasks of a DAG does not depend on the number of nodes, and its size stays small."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_rollout.airflow.graphs.cluster_dags import dags_of_changes
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.topology import HostCommand, ServiceSpec
from kafka_rollout.run.projections.open_batches import BatchPart
from tests.dags.conftest import spec_with_homes
from tests.fakes.cluster import make_spec

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow

KINDS = ("downgrade", "features", "restart", "upgrade")
TURNS = ("downgrade", "restart", "upgrade")
SIZE_LIMIT = 2 * 2**20  # bytes of a serialized DAG


def dags_with(inventory: Path, nodes: int) -> Mapping[str, DAG]:
    (inventory / "fake.yaml").write_text(dump_cluster(spec_with_homes(controllers=3, brokers=nodes - 3)))
    found = dags_of_changes(Settings.from_environment())
    assert set(found) == {f"kafka_{kind}_fake" for kind in KINDS}
    assert not [dag_id for dag_id, dag in found.items() if "broken inventory" in dag.tags]
    return found


def test_the_form_of_a_dag_is_not_copied_for_each_task(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.definitions.param import ParamsDict

    copy, copied = ParamsDict.__deepcopy__, list[int]()

    def counted(form: ParamsDict, memo: dict[int, object]) -> ParamsDict:
        copied.append(len(form))
        return copy(form, memo)

    monkeypatch.setattr(ParamsDict, "__deepcopy__", counted)
    assert all(dag.params for dag in dags_with(inventory, 6).values())
    assert set(copied) == {0}


def test_a_thousand_nodes_have_as_many_tasks_as_three(inventory: Path) -> None:
    from airflow.serialization.serialized_objects import LazyDeserializedDAG

    small, large = (dags_with(inventory, nodes) for nodes in (4, 1000))
    assert {dag_id: dag.task_ids for dag_id, dag in small.items()} == {
        dag_id: dag.task_ids for dag_id, dag in large.items()
    }
    for dag_id, dag in large.items():
        size = len(json.dumps(LazyDeserializedDAG.from_dag(dag).data))
        assert size < SIZE_LIMIT, dag_id
    assert len(large["kafka_upgrade_fake"].task_ids) <= 40


def test_the_parts_of_a_batch_follow_each_other_and_the_rollback_follows_every_decision(inventory: Path) -> None:
    dag = dags_with(inventory, 6)["kafka_upgrade_fake"]
    for group, listed in (("roll", "batches"), ("roll_back", "begin_roll_back")):
        assert dag.get_task(f"{group}.gate_before").upstream_task_ids == {listed}
        assert dag.get_task(f"{group}.replace").upstream_task_ids == {listed, f"{group}.gate_before"}
        assert dag.get_task(f"{group}.gate_after").upstream_task_ids == {listed, f"{group}.replace"}
    # A gate after the start that is marked as successful while it waits lets nothing begin before the replacement.
    ends = {"roll.replace", "roll.gate_after"}
    assert dag.get_task("compare_after_roll").upstream_task_ids == ends
    decisions = {*ends, "approve_roll_differences", "approve_finalize"}
    assert dag.get_task("begin_roll_back").upstream_task_ids == decisions
    assert dag.get_task("compare_after_rollback").upstream_task_ids == {"roll_back.replace", "roll_back.gate_after"}
    assert "compare_after_rollback" in dag.get_task("stop_traffic").upstream_task_ids


def test_a_part_of_a_batch_begins_in_the_triggerer_and_has_no_limit(inventory: Path) -> None:
    """A limit of a task counts from its begin, and all parts begin when the plan is approved."""
    dags = dags_with(inventory, 6)
    gates = {
        ("kafka_downgrade_fake", "offline.nodes.gate_after"),
        ("kafka_downgrade_fake", "offline.undo.nodes.gate_after"),
        *((f"kafka_{kind}_fake", f"roll.{gate}") for kind in TURNS for gate in BatchPart),
    }
    for dag_id, task_id in gates:
        gate = dags[dag_id].get_task(task_id)
        assert gate.start_from_trigger
        assert gate.execution_timeout is None


def test_an_embedded_upgrade_of_a_large_cluster_has_the_tasks_of_its_own_dag(inventory: Path) -> None:
    from airflow.sdk import DAG

    from kafka_rollout.airflow.graphs.embedded import KafkaUpgradeTaskGroup

    own = dags_with(inventory, 100)["kafka_upgrade_fake"]
    with DAG(dag_id="embedding", schedule=None) as embedding:
        KafkaUpgradeTaskGroup("fake")
    assert set(embedding.task_ids) == set(own.task_ids)


def test_a_task_has_no_copy_of_the_form(inventory: Path) -> None:
    """Airflow would check and store the copy for each task again."""
    dag = dags_with(inventory, 6)["kafka_upgrade_fake"]
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
    replacement: Any = dag.get_task("roll.replace")
    assert replacement.limit_s >= 6 * 1800, "a batch can have all nodes"
