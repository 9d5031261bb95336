"""The worlds that one contract is held against: the cluster in memory, one of local processes, one of hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.model.state import GroupState, PartitionState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import SshShell, connect_as_user
from kafka_rollout.ports.cluster import ClusterAdmin, NodeRuntime
from kafka_rollout.releases.facts import Release
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import FakeAdmin
from tests.fakes.runtime import FakeRuntime
from tests.integration.conftest import MakeCluster, make_shared_cluster, release_cache
from tests.integration.harness.groups.committing import commit
from tests.testbeds import open_testbeds

__all__ = ["make_shared_cluster", "release_cache"]

RELEASE = Release.parse("4.3.1")
TOPIC = "orders"


@dataclass(frozen=True, kw_only=True)
class World:
    """3 controllers and 3 brokers on `RELEASE`, with topic `orders`: 3 partitions, 3 replicas, min ISR 2."""

    spec: ClusterSpec
    admin: ClusterAdmin
    runtime: NodeRuntime
    patience_s: float
    use_group: Callable[[str], None]
    """Make a group exist, by a committed offset."""
    show_environment: Callable[[], None] = lambda: None
    """Let the SSH user read the environment of the units; else the options of a start are unknown in part."""

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


@pytest.fixture(
    scope="module",
    params=[
        "fake",
        pytest.param("real", marks=pytest.mark.integration),
        pytest.param("hosts", marks=[pytest.mark.integration, pytest.mark.full]),
    ],
)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "fake":
        cluster = FakeCluster(RELEASE)

        def use_group(name: str) -> None:
            brokers = [node.node_id for node in cluster.spec.brokers]
            for number in range(5):
                order = brokers[number % 3 :] + brokers[: number % 3]
                cluster.add_partition(GROUPS_TOPIC, number, order, min_isr=2)
            cluster.groups.append(GroupState(group_id=name, type="classic", state="Empty"))

        fake, runtime = FakeAdmin(cluster), FakeRuntime(cluster)
        yield World(spec=cluster.spec, admin=fake, runtime=runtime, patience_s=0.5, use_group=use_group)
        return
    if request.param == "hosts":
        with open_testbeds(request.getfixturevalue("tmp_path_factory")) as make_bed:
            bed = make_bed(str(RELEASE))

            def show_environment() -> None:
                for host in bed.hosts:
                    host.run("sh", "-c", "chmod o+x /etc/kafka && chmod o+r /etc/kafka/kafka.env")

            shell = SshShell(connect_as_user(bed.ssh_config))
            for real_world in _real_world(bed.spec, SshServiceRuntime(bed.spec, shell, Release.parse)):
                yield replace(real_world, show_environment=show_environment)
            shell.close()
        return
    make: MakeCluster = request.getfixturevalue("make_shared_cluster")
    real = make(str(RELEASE), name="contract")
    yield from _real_world(real.spec, real.runtime)


def _real_world(spec: ClusterSpec, runtime: NodeRuntime) -> Iterator[World]:
    admin = AdminClient({"bootstrap.servers": spec.bootstrap_servers})
    topic = NewTopic(TOPIC, num_partitions=3, replication_factor=3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(60)

    def use_group(name: str) -> None:
        consumer = Consumer({"bootstrap.servers": spec.bootstrap_servers, "group.id": name})
        commit(consumer, TopicPartition(TOPIC, 0, 0))
        consumer.close()

    with KafkaAdmin(spec) as ours:
        yield World(spec=spec, admin=ours, runtime=runtime, patience_s=180, use_group=use_group)
