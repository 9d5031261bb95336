"""Tag and id prefixes of the DAGs; the rest of an id is the name of the cluster."""

from __future__ import annotations

TAG = "kafka-rollout"  # also of a DAG that embeds an upgrade
DAG_PREFIX = "kafka_upgrade_"
DOWNGRADE_DAG_PREFIX = "kafka_downgrade_"
FEATURES_DAG_PREFIX = "kafka_features_"
SCAN_DAG_PREFIX = "kafka_compatibility_scan_"
