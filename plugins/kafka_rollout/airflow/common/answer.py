"""The path under which Airflow's database has readings of records that an earlier version deferred."""

from kafka_rollout.airflow.approvals.records import AnswerTrigger

__all__ = ["AnswerTrigger"]
