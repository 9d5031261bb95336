"""Tag of the DAGs, and the id prefix of the scans; the rest of an id is the name of the cluster."""

from __future__ import annotations

TAG = "kafka-rollout"  # also of a DAG that embeds an upgrade
SCAN_DAG_PREFIX = "kafka_compatibility_scan_"
