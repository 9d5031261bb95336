"""Task ids, trigger rules and edges of every DAG of a small cluster, as recorded in golden/.

A running DAG, its report and its approvals are addressed by these ids: a change is an interface change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_rollout.airflow.common.links import SCAN_DAG_PREFIX
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.procedure.kinds import KINDS
from tests.dags.conftest import spec_with_homes
from tests.golden import assert_same_as_recorded

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow
GOLDEN = Path(__file__).parent / "golden"
PREFIXES = (*(kind.dag_prefix for kind in KINDS.values()), SCAN_DAG_PREFIX)


def test_tasks_rules_and_edges_stay_as_recorded(load_dags: Callable[[], dict[str, DAG]], inventory: Path) -> None:
    """Of a cluster that only this test uses: two nodes of each role, which is enough for an order among them."""
    (inventory / "small.yaml").write_text(dump_cluster(spec_with_homes("small", controllers=2, brokers=2)))
    dags = load_dags()
    for prefix in PREFIXES:
        dag = dags[f"{prefix}small"]
        assert not dag.has_task("read_inventory"), dag.doc_md  # the DAG that shows why this one cannot be built
        assert_same_as_recorded(GOLDEN / f"{prefix.removesuffix('_')}.txt", describe_graph(dag))


def describe_graph(dag: DAG) -> list[str]:
    """Each task with its trigger rule and what it comes after, in the order of the graph; then what a task skips."""
    lines = []
    for task in dag.topological_sort():
        rule = str(getattr(task.trigger_rule, "value", task.trigger_rule))
        lines.append(f"{task.task_id} [{rule}] <- {', '.join(sorted(task.upstream_task_ids)) or '-'}")
    for task in dag.tasks:
        if skipped := getattr(task, "skipped", ()):
            lines.append(f"{task.task_id} may skip {', '.join(sorted(skipped))}")
    return lines
