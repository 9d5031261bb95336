"""One Airflow DAG for all clusters: sends notifications about runs and scans."""

from kafka_rollout.airflow.graphs.notifications import notification_dags

globals().update(notification_dags())
