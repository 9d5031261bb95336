"""What the campaign plants in a cluster, and what it compares before and after each run: contents and configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.model.contents import ClusterInventory, compare_inventories
from kafka_rollout.model.topology import ClusterSpec

PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "metadata.log.max.snapshot.interval.ms": "10000",
}
_KEPT = "faults-kept"
_GROUP = "faults-group"
_KEPT_RECORDS = 200
_WAIT_S = 120.0
# Sources of DescribeConfigs: set for a topic, a broker, all brokers, or in a broker's file.
_DYNAMIC, _SET = {1, 2, 3}, {1, 2, 3, 4}
# Compared also where no source sets them: a silent change would lower durability or delete records.
DURABLE = frozenset(
    {"min.insync.replicas", "unclean.leader.election.enable", "cleanup.policy", "retention.ms", "retention.bytes"}
)
# The tool changes them in the nodes' files as its plan shows: the interval of snapshots.
_PLANNED = frozenset({"metadata.log.max.snapshot.interval.ms"})
T = TypeVar("T")
Configs = Mapping[str, Mapping[str, tuple[str | None, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`configs`: topic or broker → setting → value and its source."""

    inventory: ClusterInventory
    configs: Configs


def plant(spec: ClusterSpec) -> None:
    """A topic with settings and records, a group with offsets, an ACL, a SCRAM user, a setting of a broker."""
    admin = AdminClient({"bootstrap.servers": spec.bootstrap_servers, "log_level": 0})
    kept = NewTopic(_KEPT, 3, 3, config={"retention.ms": "-1", "segment.bytes": "1048576"})
    admin.create_topics([kept], operation_timeout=30)[_KEPT].result(_WAIT_S)
    producer = Producer({"bootstrap.servers": spec.bootstrap_servers, "acks": "all", "log_level": 0})
    for number in range(_KEPT_RECORDS):
        producer.produce(_KEPT, f"kept {number}".encode(), key=str(number))
    if producer.flush(_WAIT_S):
        raise TimeoutError(f"The records of {_KEPT} could not be written.")
    _commit(spec)
    acl = AclBinding(
        ResourceType.TOPIC,
        _KEPT,
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    scram = UserScramCredentialUpsertion("alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"a secret")
    setting = ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource("broker", str(spec.brokers[0].node_id), incremental_configs=[setting])
    for futures in (
        admin.create_acls([acl]),
        admin.alter_user_scram_credentials([scram]),
        admin.incremental_alter_configs([broker]),
    ):
        for future in futures.values():
            future.result(_WAIT_S)


def _commit(spec: ClusterSpec) -> None:
    settings = {"bootstrap.servers": spec.bootstrap_servers, "group.id": _GROUP, "enable.auto.commit": False}
    consumer = Consumer({**settings, "log_level": 0})
    try:
        offsets = [TopicPartition(_KEPT, number, 5) for number in range(3)]
        repeated(lambda: consumer.commit(offsets=offsets, asynchronous=False))
    finally:
        consumer.close()


def take(spec: ClusterSpec) -> Snapshot:
    """Read everything; a busy broker is asked again."""

    def read() -> Snapshot:
        with KafkaAdmin(spec, timeout_s=30) as admin:
            return Snapshot(inventory=admin.inventory(), configs=_configs(spec))

    return repeated(read)


def repeated(read: Callable[[], T]) -> T:
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            return read()
        except (TransientError, RefusedError, KafkaException):
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def _configs(spec: ClusterSpec) -> Configs:
    admin = AdminClient({"bootstrap.servers": spec.bootstrap_servers, "log_level": 0})
    topics = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("kafka-rollout-")]
    # librdkafka accepts one broker in a request, because only this broker can answer it.
    requests = [[ConfigResource("broker", str(node.node_id))] for node in spec.brokers]
    requests.append([ConfigResource("topic", name) for name in topics])
    found = {}
    for resources in requests:
        for resource, future in admin.describe_configs(resources, request_timeout=30).items():
            entries = future.result(_WAIT_S)
            found[f"{resource.restype.name} {resource.name}"] = {
                name: (entry.value, int(entry.source)) for name, entry in entries.items() if not entry.is_sensitive
            }
    return found


def changed_contents(before: Snapshot, after: Snapshot) -> tuple[str, ...]:
    """Sentences about contents that are missing, smaller or changed."""
    differences = compare_inventories(before.inventory, after.inventory)
    return tuple(
        difference.sentence
        for difference in differences
        if not difference.foretold
        and difference.kind not in ("configuration", "unknown")
        and _counts(difference.subject)
    )


def _counts(subject: str) -> bool:
    """The tool deletes the groups of its own test traffic."""
    return "kafka-rollout-" not in subject


def changed_configs(before: Configs, after: Configs) -> tuple[str, ...]:
    """Sentences about effective values that changed, and about settings that appeared in the metadata with another
    value. A setting that only one of the releases has, and a default that differs, is left out unless it is durable."""
    found = []
    for resource, settings in before.items():
        now = after.get(resource)
        if now is None:
            found.append(f"{resource} is missing.")
            continue
        for name, (value, source) in settings.items():
            if name in _PLANNED or name not in now:
                continue
            new_value, new_source = now[name]
            if _plain(new_value) == _plain(value):
                continue
            if source in _SET or new_source in _DYNAMIC or name in DURABLE:
                found.append(
                    f"{name} of {resource} was {value} and is {new_value} (source {source}, now {new_source})."
                )
    return tuple(found)


def _plain(value: str | None) -> Any:
    return None if value is None else tuple(dict.fromkeys(value.split(",")))
