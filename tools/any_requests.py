"""Connections for tests and benchmarks, which also send requests that the product never sends."""

from __future__ import annotations

from kafka_rollout.client.requests import ClusterConnections


class AnyRequests(ClusterConnections):
    """ClusterConnections that send every request."""

    granted = None
