"""Kafka's internal topics: names (org.apache.kafka.common.internals.Topic), and the partition of an id."""

from __future__ import annotations

GROUPS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"
COORDINATOR_TOPICS = (GROUPS_TOPIC, TRANSACTIONS_TOPIC, SHARE_TOPIC)
METADATA_TOPIC = "__cluster_metadata"
METADATA_LOG = f"{METADATA_TOPIC}-0"  # name of its folder in metadata.log.dir


def coordinator_partition(name: str, partitions: int) -> int:
    """Return the partition number of a group or a transactional id among `partitions`.

    Source: GroupMetadataManager.partitionFor, `Utils.abs(name.hashCode) % partitions`.
    """
    code = 0
    data = name.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        code = (31 * code + int.from_bytes(data[position : position + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code & 0x80000000 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions
