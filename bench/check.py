"""Duration of `kafka-rollout check` for a large cluster, without the network: observed values come from memory.

Real: all decisions, the grouping, the page, and Kafka's own classes with the configuration of each node. Simulated: the
answers of the brokers. With `--latency-ms`, each answer takes that time.

    python -m bench.check --brokers 200 --topics 1250 --partitions 16
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_rollout.base.system.clock import SystemClock
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.control.lock import fence_cluster_ports
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
from kafka_rollout.model.configs import DynamicConfigs
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.nodes.metrics import NodeMetricsReader
from kafka_rollout.nodes.runtimes.no_runtime import NoRuntime
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.report.check_registry import CHECKED_KINDS, check_release, checks_of
from kafka_rollout.report.page.pages import render_check
from kafka_rollout.run.memory import MemoryRunStore, NoLock
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import FakeAdmin, fake_ports

SOURCE, TARGET = Release(3, 9, 1), Release(4, 3, 1)
_CONFIG = {
    "num.network.threads": "8",
    "num.io.threads": "16",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.quorum.voters": ",".join(f"{number}@10.1.0.{number}:9093" for number in range(1, 6)),
}


def large_cluster(brokers: int, topics: int, partitions: int, alone: int) -> FakeCluster:
    """A cluster with five controllers, in which the first `alone` topics have one replica."""
    controllers = [
        NodeSpec(
            node_id=number,
            name=f"controller-{number}",
            roles=frozenset({Role.CONTROLLER}),
            controller_address=f"10.1.0.{number}:9093",
        )
        for number in range(1, 6)
    ]
    others = [
        NodeSpec(
            node_id=100 + number,
            name=f"broker-{100 + number}",
            roles=frozenset({Role.BROKER}),
            broker_address=f"10.2.{number // 250}.{number % 250}:9092",
        )
        for number in range(1, brokers + 1)
    ]
    world = FakeCluster(SOURCE, spec=ClusterSpec(name="large", runtime="none", nodes=(*controllers, *others)))
    world.topics.clear()
    ids = [node.node_id for node in others]
    for topic in range(topics):
        for number in range(partitions):
            first = (topic * partitions + number) % brokers
            count = 1 if topic < alone else 3
            replicas = [ids[(first + step) % brokers] for step in range(count)]
            world.add_partition(f"topic-{topic}", number, replicas, min_isr=min(2, count))
    for node in world.spec.nodes:
        role = "broker" if node.is_broker else "controller"
        listener = "PLAINTEXT" if node.is_broker else "CONTROLLER"
        world.nodes[node.node_id].config = {
            **_CONFIG,
            "node.id": str(node.node_id),
            "process.roles": role,
            "log.dirs": f"/data/{node.node_id}",
            "listeners": f"{listener}://:{9092 if node.is_broker else 9093}",
        }
    world.dynamic_configs = DynamicConfigs(
        topics={f"topic-{topic}": {"retention.ms": "86400000"} for topic in range(topics)}
    )
    world.small_scan = ScanResult(cluster="large", scanned_at=0.0, logs=(), classes=(), verdicts=())
    return world


class _SlowAdmin(FakeAdmin):
    """An admin client whose answers about one node take some time."""

    def __init__(self, cluster: FakeCluster, latency_s: float) -> None:
        super().__init__(cluster)
        self._latency_s = latency_s

    def features(self, node: NodeSpec) -> Any:
        time.sleep(self._latency_s)
        return super().features(node)

    def node_config(self, node: NodeSpec) -> Any:
        time.sleep(self._latency_s)
        return super().node_config(node)


def measure(brokers: int, topics: int, partitions: int, alone: int, latency_s: float) -> dict[str, Any]:
    """Check a simulated cluster; return seconds, the peak of the memory (MB), and the slowest checks."""
    world = large_cluster(brokers, topics, partitions, alone)
    with tempfile.TemporaryDirectory() as folder:
        admin, agents = _SlowAdmin(world, latency_s), NodeMetricsReader()
        ports = replace(
            fake_ports(world, Path(folder)),
            admin=admin,
            metrics=agents,
            runtime=NoRuntime(world.spec, admin, agents),
            classes=JvmKafkaClasses(ReleaseCache.from_settings(Settings.from_environment())),
            run=MemoryRunStore(),
            lock=NoLock(),
            clock=SystemClock(),
        )
        began = time.monotonic()
        report = check_release(fence_cluster_ports(ports), TARGET, checks_of(CHECKED_KINDS), complete_with="")
        checked = time.monotonic()
        page = render_check(report)
        document = json.dumps(report.document())
        rendered = time.monotonic()
    slowest = sorted(report.entries, key=lambda entry: -entry.seconds)[:6]
    return {
        "brokers": brokers,
        "partitions": topics * partitions,
        "latency_ms": latency_s * 1000,
        "check_s": round(checked - began, 2),
        "page_and_json_s": round(rendered - checked, 2),
        "page_kb": len(page) // 1000,
        "json_kb": len(document) // 1000,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "totals": report.totals_text,
        "slowest": {entry.check.id: round(entry.seconds, 2) for entry in slowest},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=200)
    parser.add_argument("--topics", type=int, default=1250)
    parser.add_argument("--partitions", type=int, default=16, help="of each topic")
    parser.add_argument("--alone", type=int, default=300, help="topics with one replica")
    parser.add_argument("--latency-ms", type=float, default=5.0)
    given = parser.parse_args()
    print(
        json.dumps(
            measure(given.brokers, given.topics, given.partitions, given.alone, given.latency_ms / 1000), indent=2
        )
    )
