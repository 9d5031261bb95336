"""Records that a downgrade must consider: in a topic, in groups, and those of a level that was set and taken back."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient

from kafka_rollout.model.topology import ClusterSpec
from tests.integration.harness.cluster_contents import wait_until_all_know

RECORDS = 10


def set_and_take_back(spec: ClusterSpec, group: str = "") -> None:
    """group.version 1 and back to 0, with a group of the consumer protocol in between: both leave records."""
    admin = KafkaAdminClient(bootstrap_servers=spec.bootstrap_servers)
    try:
        assert admin.update_features({"group.version": ("UPGRADE", 1)}) == {"group.version": "OK"}
        if group:
            wait_until_all_know(spec)  # a coordinator that has not read of it refuses the protocol for good
            read_all(spec, group, "consumer")
        assert admin.update_features({"group.version": ("SAFE_DOWNGRADE", 0)}) == {"group.version": "OK"}
    finally:
        admin.close()


def write_records(spec: ClusterSpec) -> None:
    servers = {"bootstrap.servers": spec.bootstrap_servers}
    admin = AdminClient(servers)  # kept: its futures end with it
    for future in admin.create_topics([NewTopic("orders", 1, 3)]).values():
        future.result(60)
    producer = Producer({**servers, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("orders", str(number))
    assert producer.flush(60) == 0


def read_all(spec: ClusterSpec, group: str, protocol: str) -> None:
    """A group of that protocol that has read and committed every record."""
    consumer = Consumer(
        {
            "bootstrap.servers": spec.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    seen, deadline = 0, time.monotonic() + 300
    while seen < RECORDS:
        assert time.monotonic() < deadline, f"{seen} of {RECORDS} records were read"
        message = consumer.poll(1.0)
        seen += message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    consumer.close()
