"""The two worlds that one contract is held against: the cluster in memory and a real one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.adapters.kafka.admin import KafkaAdmin
from kafka_rollout.domain.model.errors import TransientError
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.state import PartitionState
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.ports.cluster import ClusterAdmin, NodeRuntime
from tests.fake_cluster import FakeCluster
from tests.fakes import FakeAdmin, FakeRuntime
from tests.integration.conftest import MakeCluster, class_archives, make_shared_cluster, release_cache

__all__ = ["class_archives", "make_shared_cluster", "release_cache"]

RELEASE = Release.parse("4.3.1")
TOPIC = "orders"


@dataclass(frozen=True, kw_only=True)
class World:
    """3 controllers and 3 brokers on `RELEASE`, with topic `orders`: 3 partitions, 3 replicas, min ISR 2."""

    spec: ClusterSpec
    admin: ClusterAdmin
    runtime: NodeRuntime
    patience_s: float

    def orders(self) -> tuple[PartitionState, ...]:
        return tuple(partition for partition in self.admin.partitions() if partition.topic == TOPIC)

    def until(self, what: Callable[[], bool]) -> bool:
        """Look until something holds; False when patience is over. No answer is "not yet"."""
        deadline = time.monotonic() + self.patience_s
        while True:
            try:
                if what():
                    return True
            except TransientError:
                pass
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.2 if self.patience_s > 1 else 0)


@pytest.fixture(scope="module", params=["fake", pytest.param("real", marks=pytest.mark.integration)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "fake":
        cluster = FakeCluster(RELEASE)
        yield World(spec=cluster.spec, admin=FakeAdmin(cluster), runtime=FakeRuntime(cluster), patience_s=0.5)
        return
    make: MakeCluster = request.getfixturevalue("make_shared_cluster")
    real = make(str(RELEASE), name="contract")
    admin = AdminClient({"bootstrap.servers": real.spec.bootstrap_servers})
    topic = NewTopic(TOPIC, num_partitions=3, replication_factor=3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(60)
    with KafkaAdmin(real.spec) as ours:
        yield World(spec=real.spec, admin=ours, runtime=real.runtime, patience_s=180)
