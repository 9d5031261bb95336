"""The demo's cluster: three controllers, three brokers, three topics, a producer and a consumer group."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.features.rules import METADATA_VERSION_FLOOR
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import METADATA_VERSION, MetadataVersionLevel, Release, ReleaseFacts
from kafka_rollout.releases.jars.cache import ReleaseCache
from tools.demo.folder import DemoFolder
from tools.demo.local_cluster import LocalCluster

NAME = "demo"
TOPICS = {"orders": 6, "payments": 3, "shipments": 3}  # topic → partitions
_PAUSE_S = 0.1
# After finalizing, the run waits for a snapshot with the new level. Kafka's default interval of one hour is too long.
SNAPSHOT_INTERVAL = {"metadata.log.max.snapshot.interval.ms": "10000"}


def create_cluster(folder: DemoFolder, release: Release, *, metadata_version: str | None = None) -> ClusterSpec:
    """Start a cluster of three controllers and three brokers with the demo's topics; return when it is in service.

    `metadata_version`: name of a level such as 3.4-IV0; default: the newest of the release.
    """
    settings = folder.settings
    cluster = LocalCluster.create(
        folder.path,
        NAME,
        release,
        cache=ReleaseCache.from_settings(settings),
        metadata_version=metadata_version,
        extra_config=SNAPSHOT_INTERVAL,
    )
    create_topics(cluster.spec)
    return cluster.spec


def create_topics(spec: ClusterSpec) -> None:
    admin = AdminClient({"bootstrap.servers": spec.bootstrap_servers, "log_level": 0})
    wanted = [
        NewTopic(topic, num_partitions=partitions, replication_factor=3, config={"min.insync.replicas": "2"})
        for topic, partitions in TOPICS.items()
    ]
    for topic, future in admin.create_topics(wanted, operation_timeout=30).items():
        try:
            future.result()
        except KafkaException as error:
            raise FatalError(f"The demo's topic {topic} could not be created: {error}.") from None


def lowerable_from(source: ReleaseFacts, target: ReleaseFacts) -> MetadataVersionLevel:
    """Return the metadata.version at which a demo of a downgrade starts.

    It is the highest level of `source` that released Kafka can lower to the highest level of `target`: no level between
    them changed metadata. Raises UserError if `source` does not support the highest level of `target`.
    """
    highest = target.features[METADATA_VERSION].supported.max
    levels = {level.level: level for level in source.metadata_versions}
    if highest not in levels:
        raise UserError(
            f"Kafka {source.release} does not support metadata.version {highest}, the highest of {target.release}.",
            remedy="Choose releases that are closer to each other.",
        )
    found = levels[highest]
    if highest < METADATA_VERSION_FLOOR:  # no level is lowered to it
        return found
    while (above := levels.get(found.level + 1)) is not None and not above.changed:
        found = above
    return found


@contextmanager
def live_traffic(spec: ClusterSpec) -> Iterator[None]:
    """Produce to the demo's topics and consume them with the group `billing` while the block runs.

    The cluster then has groups and connections of its own. Lost records are found by the test traffic, not by these.
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
