"""One Airflow DAG per cluster of the inventory: changes its feature levels."""

from kafka_rollout.airflow.graphs.changes import features_dags
from kafka_rollout.base.system.settings import Settings

globals().update(features_dags(Settings.from_environment()))
