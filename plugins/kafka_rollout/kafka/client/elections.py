"""Elections of preferred leaders (ElectLeaders)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from kafka.protocol.admin import ElectLeadersRequest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.kafka.client.requests import ClusterConnections, Target, error_name, raise_for_error
from kafka_rollout.model.state import PartitionState

_PREFERRED = 0  # election type
# Results that need no repetition: the leader is elected already, or the partition was deleted.
_SETTLED = frozenset({"NONE", "ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_OR_PARTITION"})


def elect_preferred_leaders(
    nodes: ClusterConnections, partitions: Sequence[PartitionState], *, timeout_s: float
) -> None:
    """ElectLeaders in one request; raises TransientError with the partitions that got none."""
    if not partitions:
        return
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(partition.partition)

    def request() -> Any:
        return ElectLeadersRequest(
            election_type=_PREFERRED,
            topic_partitions=[
                ElectLeadersRequest.TopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in by_topic.items()
            ],
            timeout_ms=int(timeout_s * 1000),
            min_version=1,
        )

    def accept(response: Any, target: Target) -> list[str]:
        allowed = {"what": "ElectLeaders", "who": target.who, "right": "ALTER on CLUSTER"}
        raise_for_error(response.error_code, **allowed)
        refused = []
        for result in response.replica_election_results:
            for partition in result.partition_result:
                name = error_name(partition.error_code)
                if name.endswith("AUTHORIZATION_FAILED"):
                    raise_for_error(partition.error_code, **allowed)
                if name not in _SETTLED:
                    refused.append(f"{result.topic}-{partition.partition_id} ({name})")
        return refused

    refused = nodes.first_answer(nodes.brokers, request, accept)
    if refused:
        raise TransientError(
            f"The preferred leader could not be elected for {', '.join(sorted(refused))}.",
            remedy="It may be possible once the preferred replica is back in sync.",
        )
