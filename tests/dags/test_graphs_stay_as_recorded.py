"""Task ids, trigger rules and edges of every DAG, as recorded in golden/.

A running DAG, its report and its approvals are addressed by these ids: a change is an interface change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.golden import assert_same_as_recorded
from tests.paths import INCLUDE

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow
GOLDEN = Path(__file__).parent / "golden"
KINDS = ("kafka_upgrade", "kafka_downgrade", "kafka_features", "kafka_compatibility_scan")


def test_tasks_rules_and_edges_of_the_example_inventory_stay_as_recorded(
    load_dags: Callable[[], dict[str, DAG]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(INCLUDE / "clusters"))
    dags = load_dags()
    for kind in KINDS:
        assert_same_as_recorded(GOLDEN / f"{kind}.txt", lines_of(dags[f"{kind}_local"]))


def lines_of(dag: DAG) -> list[str]:
    """Each task with its trigger rule and what it comes after, in the order of the graph; then what a task skips."""
    lines = []
    for task in dag.topological_sort():
        rule = str(getattr(task.trigger_rule, "value", task.trigger_rule))
        lines.append(f"{task.task_id} [{rule}] <- {', '.join(sorted(task.upstream_task_ids)) or '-'}")
    for task in dag.tasks:
        if skipped := getattr(task, "skipped", ()):
            lines.append(f"{task.task_id} may skip {', '.join(sorted(skipped))}")
    return lines
