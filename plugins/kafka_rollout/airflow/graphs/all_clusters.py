"""The DAGs of all clusters of the inventory, for a DAG file of three lines:

from kafka_rollout.airflow.graphs.all_clusters import all_dags

globals().update(all_dags())
"""

from __future__ import annotations

from airflow.sdk import DAG

from kafka_rollout.airflow.graphs.cluster_dags import dags_of_changes
from kafka_rollout.airflow.graphs.compatibility_scan import compatibility_scan_dags
from kafka_rollout.airflow.graphs.notifications import notification_dags
from kafka_rollout.base.system.settings import Settings


def all_dags(settings: Settings | None = None) -> dict[str, DAG]:
    """DAG id → DAG: every kind of change and the scheduled scan of every inventory file, and the notifications."""
    settings = settings or Settings.from_environment()
    return {**dags_of_changes(settings), **compatibility_scan_dags(settings), **notification_dags()}
