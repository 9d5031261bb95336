"""Tag of the DAGs, the id of the sender of notifications, and the id prefix of the scans (then the cluster's name)."""

from __future__ import annotations

TAG = "kafka-rollout"  # also of a DAG that embeds an upgrade
SCAN_DAG_PREFIX = "kafka_compatibility_scan_"
NOTIFICATIONS_DAG = "kafka_notifications"
