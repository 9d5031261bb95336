"""One Airflow DAG per cluster of the inventory: downgrades it."""

from kafka_rollout.airflow.graphs.changes import downgrade_dags
from kafka_rollout.base.system.settings import Settings

globals().update(downgrade_dags(Settings.from_environment()))
