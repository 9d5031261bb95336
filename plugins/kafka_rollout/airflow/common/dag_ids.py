"""Tag and id prefixes of the DAGs; the rest of an id is the name of the cluster."""

from __future__ import annotations

from kafka_rollout.model.plan import RunOf

TAG = "kafka-rollout"  # also of a DAG that embeds an upgrade
DAG_PREFIX = "kafka_upgrade_"
DOWNGRADE_DAG_PREFIX = "kafka_downgrade_"
FEATURES_DAG_PREFIX = "kafka_features_"
SCAN_DAG_PREFIX = "kafka_compatibility_scan_"
_KINDS = {DAG_PREFIX: RunOf.UPGRADE, DOWNGRADE_DAG_PREFIX: RunOf.DOWNGRADE, FEATURES_DAG_PREFIX: RunOf.FEATURES}


def run_of_dag(dag_id: str) -> RunOf:
    """Return what the runs of a DAG change: an upgrade for the DAG of a user, which embeds one."""
    return next((kind for prefix, kind in _KINDS.items() if dag_id.startswith(prefix)), RunOf.UPGRADE)
