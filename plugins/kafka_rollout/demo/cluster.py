"""The demo's cluster: three controllers, three brokers, a few topics and somebody who uses them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.adapters.releases.cache import ReleaseCache
from kafka_rollout.demo.folder import DemoFolder
from kafka_rollout.demo.local_cluster import LocalCluster
from kafka_rollout.domain.model.errors import FatalError
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.topology import ClusterSpec

NAME = "demo"
TOPICS = {"orders": 6, "payments": 3, "shipments": 3}  # topic → partitions
_PAUSE_S = 0.1
# A snapshot with the new level is waited for after finalizing; an hour, Kafka's own interval, is long for a demo.
SNAPSHOT_INTERVAL_MS = 10_000


def create_cluster(folder: DemoFolder, release: Release, *, metadata_version: str | None = None) -> LocalCluster:
    """A 3+3 cluster on `release` with the demo's topics, in service; at its newest level, or at one by name."""
    settings = folder.settings
    cluster = LocalCluster.create(
        folder.path,
        NAME,
        release,
        cache=ReleaseCache(settings.cache, settings.include),
        metadata_version=metadata_version,
        extra_config={"metadata.log.max.snapshot.interval.ms": str(SNAPSHOT_INTERVAL_MS)},
    )
    _create_topics(cluster.spec)
    return cluster


def _create_topics(spec: ClusterSpec) -> None:
    admin = AdminClient({"bootstrap.servers": spec.bootstrap_servers, "log_level": 0})
    wanted = [
        NewTopic(topic, num_partitions=partitions, replication_factor=3, config={"min.insync.replicas": "2"})
        for topic, partitions in TOPICS.items()
    ]
    for topic, future in admin.create_topics(wanted, operation_timeout=30).items():
        try:
            future.result()
        except KafkaException as error:
            raise FatalError(f"The demo's topic {topic} could not be made: {error}.") from None


@contextmanager
def live_traffic(spec: ClusterSpec) -> Iterator[None]:
    """A shop that writes and a group `billing` that reads, for as long as the block lasts.

    Only scenery, so that the cluster has topics, groups and connections of its own; what is proved about records is
    proved by the ledger.
    """
    end = threading.Event()
    threads = [threading.Thread(target=work, args=(spec, end), daemon=True) for work in (_produce, _consume)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join(timeout=10)


def _produce(spec: ClusterSpec, end: threading.Event) -> None:
    producer = Producer({**_client(spec), "acks": "all", "enable.idempotence": True, "linger.ms": 20})
    number = 0
    while not end.wait(_PAUSE_S):
        for topic in TOPICS:
            number += 1
            with suppress(BufferError, KafkaException):
                producer.produce(topic, key=str(number % 97), value=json.dumps({"number": number, "at": time.time()}))
        producer.poll(0)
    producer.flush(5)


def _consume(spec: ClusterSpec, end: threading.Event) -> None:
    consumer = Consumer({**_client(spec), "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(list(TOPICS))
    while not end.is_set():
        with suppress(KafkaException):
            consumer.poll(0.5)
    consumer.close()


def _client(spec: ClusterSpec) -> dict[str, object]:
    return {"bootstrap.servers": spec.bootstrap_servers, "client.id": "demo-shop", "log_level": 0}
