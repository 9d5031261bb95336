"""Nodes that the cluster knows and the inventory does not: registered long ago, scaled away, still counted."""

from __future__ import annotations

from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.model.topology import ClusterSpec


def find_unlisted_brokers(cluster: ClusterSpec, state: ClusterState) -> frozenset[int]:
    """Brokers registered with the cluster, fenced ones included, that the inventory has not."""
    registered = state.registered.brokers | (state.registered.fenced or frozenset())
    return registered - {node.node_id for node in cluster.brokers}


def find_unlisted_controllers(cluster: ClusterSpec, state: ClusterState) -> frozenset[int]:
    """Registered controllers (KIP-919) and voters of the quorum that the inventory has not."""
    voters = {voter.replica_id for voter in state.quorum.voters} if state.quorum else set()
    registered = (state.registered.controllers or frozenset()) | voters
    return registered - {node.node_id for node in cluster.controllers}
