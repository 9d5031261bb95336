"""The downgrade options of a cluster for their page. Read-only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_rollout.airflow.common.dag_ids import SCAN_DAG_PREFIX
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.steps.procedures.kinds import KINDS


def options_of(
    cluster: ClusterSpec,
    settings: Settings,
    *,
    may_read: Callable[[str], bool],
    may_trigger: Callable[[str], bool],
) -> dict[str, Any] | None:
    """Return the options with the ids of the DAGs; None for a reader without any right to the cluster.

    `may_read`: whether the user can read the runs of a DAG. `may_trigger`: whether the user can start runs of it.
    """
    from kafka_rollout.wiring.downgrade_options import read_options

    scan_dag = f"{SCAN_DAG_PREFIX}{cluster.name}"
    found = read_options(cluster, settings, may_read=may_read, sees_scans=may_read(scan_dag))
    if found is None:
        return None
    dag_id = f"{KINDS[RunOf.DOWNGRADE].dag_prefix}{cluster.name}"
    return {**to_json(found), "dag_id": dag_id, "scan_dag_id": scan_dag, "can_start": may_trigger(dag_id)}
