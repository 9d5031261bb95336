"""Names of Kafka's internal topics (org.apache.kafka.common.internals.Topic)."""

from __future__ import annotations

GROUPS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"
COORDINATOR_TOPICS = (GROUPS_TOPIC, TRANSACTIONS_TOPIC, SHARE_TOPIC)
METADATA_TOPIC = "__cluster_metadata"
METADATA_LOG = f"{METADATA_TOPIC}-0"  # name of its folder in metadata.log.dir
