"""A producer that is faster than the test traffic, and the comparison of all its records with the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.traffic.processes.main import read_marks
from kafka_rollout.traffic.processes.traffic import producer_settings
from kafka_rollout.traffic.traffic_check import LOG, Position, TrafficRecord, compare
from tests.integration.harness.cluster_contents import wait_until_all_know
from tests.waiting import wait_until

AT_LEAST = 100_000
_TOPIC, _PARTITIONS, _PER_SECOND, _WAIT_S = "many", 6, 1_000, 600.0


@contextmanager
def many_records(spec: ClusterSpec, at_least: int = AT_LEAST) -> Iterator[None]:
    """Produce during the block, and longer if needed: `at_least` records. Then nothing is lost, moved or double."""
    admin = AdminClient({"bootstrap.servers": spec.bootstrap_servers})
    topic = NewTopic(_TOPIC, _PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[_TOPIC].result(_WAIT_S)
    wait_until_all_know(spec)
    acknowledged: list[TrafficRecord] = []
    failed: list[str] = []
    ends = threading.Event()
    producer = Producer(producer_settings({"bootstrap.servers": spec.bootstrap_servers, "log_level": 0}))

    def delivered(error: KafkaError | None, message: Message) -> None:
        key = message.key()
        if error is not None:
            failed.append(error.name())
        elif isinstance(key, bytes):
            acknowledged.append(TrafficRecord(_position(message), key.decode()))

    def produce() -> None:
        number, began = 0, time.monotonic()
        while not ends.is_set():
            while number < (time.monotonic() - began) * _PER_SECOND:
                try:
                    producer.produce(_TOPIC, key=f"m-{number}", value=b"x" * 64, on_delivery=delivered)
                except BufferError:
                    break
                number += 1
            producer.poll(0.01)

    thread = threading.Thread(target=produce, name="many records", daemon=True)
    thread.start()
    try:
        yield
        wait_until(lambda: len(acknowledged) >= at_least, _WAIT_S)
    finally:
        ends.set()
        thread.join()
    assert producer.flush(_WAIT_S) == 0
    consumed = list(_consumed(spec, len(acknowledged)))
    verdict = compare(
        acknowledged, {}, {LOG: consumed}, {}, partial(read_marks, spec.bootstrap_servers, ClientSecurity())
    )
    print(f"{len(acknowledged)} records acknowledged, {len(consumed)} consumed, {len(failed)} failed")
    assert (verdict.discrepancies, failed) == ((), [])
    assert len(consumed) == len(acknowledged)


def _consumed(spec: ClusterSpec, least: int) -> Iterator[TrafficRecord]:
    """Every record of the topic: to the end of each partition."""
    reader = Consumer(
        {
            "bootstrap.servers": spec.bootstrap_servers,
            "group.id": "many",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        left = set(range(_PARTITIONS))
        reader.assign([TopicPartition(_TOPIC, number, 0) for number in left])
        ends = time.monotonic() + _WAIT_S
        while left:
            assert time.monotonic() < ends, f"the end of partitions {left} was not read; {least} records were stored"
            for message in reader.consume(5_000, 1.0):
                error, key = message.error(), message.key()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    left.discard(message.partition() or 0)
                else:
                    assert isinstance(key, bytes)
                    yield TrafficRecord(_position(message), key.decode())
    finally:
        reader.close()


def _position(message: Message) -> Position:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None  # noqa: PT018
    return Position(topic, partition, offset)
