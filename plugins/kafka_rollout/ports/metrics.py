"""Port for the metrics of one node."""

from __future__ import annotations

from typing import Protocol

from kafka_rollout.domain.model.state import NodeMetrics
from kafka_rollout.domain.model.topology import NodeSpec


class Metrics(Protocol):
    def read(self, node: NodeSpec) -> NodeMetrics:
        """All we use of a node's metrics, from both agents; raises TransientError when neither answers."""
        ...
