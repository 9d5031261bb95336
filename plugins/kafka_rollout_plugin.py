"""The only file that Airflow's plugin scanner runs in a checkout."""

from kafka_rollout.airflow.plugin import KafkaRolloutPlugin

__all__ = ["KafkaRolloutPlugin"]
