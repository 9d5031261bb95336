"""An offline downgrade of a real cluster loses no acknowledged record of topics with unclean leader elections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.control.approval import record_approval
from kafka_rollout.lowering import offline as steps
from kafka_rollout.lowering.offline import undo_offline
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.model.unclean_elections import ENABLE
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.integration.conftest import MakeCluster
from tests.integration.downgrade.test_offline_downgrade import NEW, RELEASE_STEP, all_are_back, approved_plan
from tests.integration.harness.feature_harness import opened
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

TOPIC, PARTITIONS = "logs", 6
SLOWER_S = 10.0


class Ledger:
    """A producer with acks=all, and the records that were acknowledged, with their times."""

    def __init__(self, servers: str) -> None:
        self.acknowledged: dict[bytes, float] = {}
        self._servers, self._ends = servers, threading.Event()

    def _done(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is None and value is not None:
            self.acknowledged[bytes(value)] = time.time()

    def _produce(self) -> None:
        options = {"acks": "all", "retries": 0, "delivery.timeout.ms": 3000, "request.timeout.ms": 2500}
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 2, "log_level": 0, **options})
        number = 0
        while not self._ends.is_set():
            for partition in range(PARTITIONS):
                value = f"{number}-{partition}".encode()
                producer.produce(TOPIC, value, partition=partition, on_delivery=self._done)
            number += 1
            producer.poll(0.02)
        producer.flush(5)

    @contextmanager
    def writes(self) -> Iterator[None]:
        thread = threading.Thread(target=self._produce)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()

    def lost(self) -> set[bytes]:
        """The acknowledged records that a consumer does not find."""
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "ledger", "enable.auto.commit": False})
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=30)[1]
            for number in range(PARTITIONS)
        }
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in ends])
        found: set[bytes] = set()
        at = dict.fromkeys(ends, 0)
        deadline = time.monotonic() + 60
        while any(at[number] < end for number, end in ends.items()):
            assert time.monotonic() < deadline, (at, ends)
            for message in consumer.consume(2000, 1.0):
                value, number, offset = message.value(), message.partition(), message.offset()
                assert value is not None and number is not None and offset is not None  # noqa: PT018
                found.add(bytes(value))
                at[number] = offset + 1
        consumer.close()
        return self.acknowledged.keys() - found


def slow_down_the_last(ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the last broker be asked later than the others, as on a host that is slow to reach, to stop and to start."""
    last = ports.cluster.brokers[-1]

    def later(act: Callable[..., None]) -> Callable[..., None]:
        def call(runtime: LocalProcessRuntime, node: NodeSpec, **options: Any) -> None:
            if node == last:
                time.sleep(SLOWER_S)
            act(runtime, node, **options)

        return call

    for name in ("stop", "start"):
        monkeypatch.setattr(LocalProcessRuntime, name, later(getattr(LocalProcessRuntime, name)))


def create_topic(cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "1", ENABLE: "true"})
    admin.create_topics([topic])[TOPIC].result()


@pytest.mark.parametrize("back", [False, True], ids=["forward", "undone"])
def test_the_broker_that_stopped_last_leads_again_and_no_record_is_lost(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, back: bool
) -> None:
    cluster = make_cluster(str(NEW), layout="separate", size=3, controllers=1)
    create_topic(cluster)
    ledger = Ledger(cluster.spec.bootstrap_servers)
    with opened(cluster, tmp_path / "home") as ports:
        slow_down_the_last(ports, monkeypatch)
        plan = approved_plan(ports)
        with ledger.writes():
            wait_until(lambda: len(ledger.acknowledged) > 100, 60)
            began = time.time()
            steps.stop_all(Run(ports, plan))
        assert max(ledger.acknowledged.values()) > began + SLOWER_S / 2, "the last broker acknowledged records alone"
        steps.install_snapshot(Run(ports, plan))
        if back:
            record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "a test")
            undo_offline(Run(ports, plan))
        else:
            steps.install_binaries(Run(ports, plan))
            steps.start_controllers(Run(ports, plan))
            steps.start_brokers(Run(ports, plan))
            all_are_back(ports, plan, RELEASE_STEP)
        assert ledger.lost() == set()
