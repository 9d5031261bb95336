"""Replicas that move: reassignments between brokers, and moves between directories of one broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka.protocol.admin import DescribeLogDirsRequest, ListPartitionReassignmentsRequest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.kafka.client.requests import ClusterConnections, Target, raise_for_error
from kafka_rollout.model.state import Movements


def read_movements(nodes: ClusterConnections, brokers: Iterable[Target], *, timeout_s: float) -> Movements:
    """All movements in progress.

    Raises TransientError if a broker or the active controller does not respond, RefusedError without the right to ask.
    """
    directories = [
        name for moving in nodes.from_each(brokers, lambda one: list(_moving(nodes, one))) for name in moving
    ]
    return Movements(reassigned=_reassigned(nodes, timeout_s), directories=tuple(sorted(directories)))


def _reassigned(nodes: ClusterConnections, timeout_s: float) -> tuple[str, ...]:
    def request() -> Any:
        return ListPartitionReassignmentsRequest(timeout_ms=int(timeout_s * 1000), topics=None)

    def accept(response: Any, target: Target) -> tuple[str, ...]:
        raise_for_error(
            response.error_code,
            what="ListPartitionReassignments",
            who=target.who,
            right="DESCRIBE on CLUSTER",
            message=response.error_message,
        )
        found = ((topic.name, partition.partition_index) for topic in response.topics for partition in topic.partitions)
        return tuple(sorted(f"{name}-{partition}" for name, partition in found))

    reassigned: tuple[str, ...] = nodes.first_answer(nodes.brokers, request, accept)
    return reassigned


def _moving(nodes: ClusterConnections, broker: Target) -> list[str]:
    """A replica that is copied to another directory is a future replica there (KIP-113)."""
    response = nodes.ask(broker, DescribeLogDirsRequest(topics=None))
    raise_for_error(response.error_code, what="DescribeLogDirs", who=broker.who, right="DESCRIBE on CLUSTER")
    if not response.results:  # the response of an older version to a user without the right
        raise RefusedError(
            f"{broker.who} lists no log directory.", remedy="Grant DESCRIBE on CLUSTER to the user of this tool."
        )
    # An offline directory lists no replicas; its partitions are not in sync.
    return [
        f"{topic.name}-{partition.partition_index} on broker {broker.node_id}"
        for directory in response.results
        for topic in directory.topics
        for partition in topic.partitions
        if partition.is_future_key
    ]
