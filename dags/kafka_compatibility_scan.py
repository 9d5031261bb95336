"""One Airflow DAG per cluster of the inventory: scans its coordinator logs on schedule."""

from kafka_rollout.airflow.graphs.compatibility_scan import compatibility_scan_dags
from kafka_rollout.base.system.settings import Settings

globals().update(compatibility_scan_dags(Settings.from_environment()))
