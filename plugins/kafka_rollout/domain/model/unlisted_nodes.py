"""Unlisted nodes: registered in the cluster, missing in the inventory. They may still run."""

from __future__ import annotations

from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.model.topology import ClusterSpec


def find_unlisted_brokers(cluster: ClusterSpec, state: ClusterState) -> frozenset[int]:
    """Return the registered brokers, fenced brokers included, that the inventory does not list."""
    registered = state.registered.brokers | (state.registered.fenced or frozenset())
    return registered - {node.node_id for node in cluster.brokers}


def find_unlisted_controllers(cluster: ClusterSpec, state: ClusterState) -> frozenset[int]:
    """Return the registered controllers (KIP-919) and the voters of the quorum that the inventory does not list."""
    voters = {voter.replica_id for voter in state.quorum.voters} if state.quorum else set()
    registered = (state.registered.controllers or frozenset()) | voters
    return registered - {node.node_id for node in cluster.controllers}
