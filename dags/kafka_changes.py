"""Airflow DAGs of each cluster of the inventory: one of each kind of run that changes it."""

from kafka_rollout.airflow.graphs.cluster_dags import dags_of_changes
from kafka_rollout.base.system.settings import Settings

globals().update(dags_of_changes(Settings.from_environment()))
