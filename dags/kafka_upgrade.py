"""One Airflow DAG per cluster of the inventory: upgrades it."""

from kafka_rollout.airflow.graphs.changes import upgrade_dags
from kafka_rollout.base.system.settings import Settings

globals().update(upgrade_dags(Settings.from_environment()))
