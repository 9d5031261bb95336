"""The path under which Airflow's database has gates that an earlier version deferred. Nothing else imports it."""

from kafka_rollout.airflow.gates.trigger import GateTrigger

__all__ = ["GateTrigger"]
