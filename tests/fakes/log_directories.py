"""A FakeCluster whose brokers have several log directories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.model.state import NodeMetrics
from kafka_rollout.model.topology import NodeSpec
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import FakeMetrics

JBOD = (
    "[2026-11-24 02:14:07,123] ERROR Encountered metadata publishing fault: Broker configuration does not support the "
    "cluster MetadataVersion (org.apache.kafka.server.fault.LoggingFaultHandler)",
    "java.lang.IllegalArgumentException: Multiple log directories (aka JBOD) are not supported in the current "
    "MetadataVersion 3.6-IV2. Need 3.7-IV2 or higher",
)


def with_directories(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, *, errors: int) -> None:
    """Brokers with two log directories at a level that does not support them; broker 12 counts errors."""
    cluster.finalized = {"metadata.version": 14}
    for fake in cluster.nodes.values():
        fake.config["log.dirs"] = "/data/1,/data/2"
    read = FakeMetrics.read

    def with_counters(metrics: FakeMetrics, node: NodeSpec) -> NodeMetrics:
        none = dict.fromkeys(("metadata_load_errors", "metadata_errors", "offline_log_directories"), 0)
        counters = {**none, "metadata_apply_errors": errors if node.node_id == 12 else 0}
        return replace(read(metrics, node), counters=counters)

    monkeypatch.setattr(FakeMetrics, "read", with_counters)
