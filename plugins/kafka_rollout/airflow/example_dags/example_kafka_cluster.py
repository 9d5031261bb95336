"""Before an application is deployed that needs transactions of version 2: wait until its cluster can serve it.

The Connection `kafka_cluster_default` of type *Kafka cluster* names a broker. Nothing is changed.
"""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG

from kafka_rollout.airflow.operators.kafka_cluster import KafkaFeaturesOperator, KafkaReleaseCheckOperator
from kafka_rollout.airflow.operators.kafka_coordinator_log_scan import KafkaCoordinatorLogScanOperator
from kafka_rollout.airflow.sensors.kafka_cluster import (
    KafkaClusterHealthySensor,
    KafkaFeatureLevelSensor,
    KafkaMetadataVersionSensor,
)

with DAG("example_kafka_cluster", schedule=None, start_date=datetime(2026, 1, 1), catchup=False, tags=["example"]):
    healthy = KafkaClusterHealthySensor(task_id="healthy", deferrable=True, poke_interval=30, timeout=3600)
    transactions = KafkaFeatureLevelSensor(
        task_id="transactions_v2", feature="transaction.version", level=2, deferrable=True, timeout=3600
    )
    same_version = KafkaMetadataVersionSensor(
        task_id="one_metadata_version", prometheus_url="http://{host}:7071/metrics", deferrable=True, timeout=3600
    )
    can_upgrade = KafkaReleaseCheckOperator(task_id="check_release", release="4.3.1", fails_on="blocker")
    features = KafkaFeaturesOperator(task_id="features", levels={"transaction.version": 2})
    way_back = KafkaCoordinatorLogScanOperator(task_id="way_back", must_load=["4.2.1"], conf={"spark.cores.max": "2"})

    healthy >> [transactions, same_version] >> can_upgrade >> features >> way_back
