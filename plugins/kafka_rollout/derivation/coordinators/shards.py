"""A release's coordinators as empty state machines that replay records (GroupCoordinatorShard, …)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_rollout.derivation.coordinators.writers import LOG_CONTEXT
from kafka_rollout.derivation.jars import Message
from kafka_rollout.releases.jvm.jvm import Jvm

_GROUP = "org.apache.kafka.coordinator.group"
_REGISTRY = "org.apache.kafka.timeline.SnapshotRegistry"
_SMALLEST_CONFIG = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}


Record = tuple[bytes, bytes | None]  # key and value
Refusal = Callable[[Sequence[Record]], str | None]  # log → message with which the coordinator refuses it

GROUP_SERDE = f"{_GROUP}.GroupCoordinatorRecordSerde"
SHARE_SERDE = "org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde"
_SHARE_SHARD = "org.apache.kafka.coordinator.share.ShareCoordinatorShard"


def wrap(jvm: Jvm, data: bytes) -> Any:
    return jvm.packages.java.nio.ByteBuffer.wrap(data)


def group_replay(jvm: Jvm, serde_name: str) -> Callable[[bytes, bytes | None], str | None]:
    """Return a GroupCoordinatorShard without its managers: it passes known types on (to null) and refuses others."""
    replay = _refusals(jvm, _new_shards(jvm, f"{_GROUP}.GroupCoordinatorShard"), serde_name)

    def refusal(key: bytes, value: bytes | None) -> str | None:
        message = replay([(key, value)])
        return message.split(" in ", 1)[0] if message and "unknown record type" in message else None

    return refusal


def refusals(jvm: Jvm, serde_name: str) -> Refusal:
    """Return a function that replays each log in a new GroupCoordinatorShard."""
    return _refusals(jvm, group_shards(jvm), serde_name)


def share_replay(jvm: Jvm) -> Callable[[bytes, bytes | None], str | None]:
    """Return a function that replays each record in a new ShareCoordinatorShard of 4.x."""
    replay = _refusals(jvm, _new_shards(jvm, _SHARE_SHARD), SHARE_SERDE)
    return lambda key, value: replay([(key, value)])


def _refusals(jvm: Jvm, new_shard: Callable[[], Any], serde_name: str) -> Refusal:
    """Return a function that replays each log in a new state machine and returns its error."""
    serde = jvm.instance(jvm.locate(serde_name))

    def refusal(log: Sequence[Record]) -> str | None:
        shard = new_shard()
        try:
            for offset, (key, value) in enumerate(log):
                record = serde.deserialize(wrap(jvm, key), None if value is None else wrap(jvm, value))
                shard.replay(offset, -1, -1, record)
        except Py4JJavaError as error:
            return str(error.java_exception.getMessage())
        return None

    return refusal


def _new_shards(jvm: Jvm, name: str) -> Callable[[], Any]:
    """Return the constructor of a coordinator's state machine with only the objects that it uses."""
    logs = jvm.moved(*LOG_CONTEXT)()
    registry = jvm.moved(_REGISTRY)
    needed = {"LogContext": lambda: logs, "SnapshotRegistry": lambda: registry(logs)}
    construct = _constructor(jvm, name, least=True)
    return lambda: construct(needed)


def group_shards(jvm: Jvm) -> Callable[[], Any]:
    """Return the constructor of a new one. Timers and assignors are null: replayed records need none."""
    packages = jvm.packages
    properties = packages.java.util.Properties()
    for name, content in _SMALLEST_CONFIG.items():
        properties.setProperty(name, content)
    kafka_config = packages.kafka.server.KafkaConfig(properties)
    config = kafka_config.groupCoordinatorConfig() if jvm.find_class(f"{_GROUP}.GroupConfigManager") else None
    # 3.x gets its assignors as a list. From 4.x on it is the list of Streams' assignors, which 4.4 requires.
    assignor = f"{_GROUP}.streams.assignor.StickyTaskAssignor" if config else f"{_GROUP}.assignor.RangeAssignor"
    assignors = packages.java.util.ArrayList()
    if jvm.find_class(assignor) is not None:
        assignors.add(jvm.instance(assignor))
    logs, optional = jvm.moved(*LOG_CONTEXT)(), packages.java.util.Optional
    log_partition = packages.org.apache.kafka.common.TopicPartition("__consumer_offsets", 0)
    time, new_registry = packages.org.apache.kafka.common.utils.Time.SYSTEM, jvm.moved(_REGISTRY)
    new_map = packages.java.util.HashMap
    constructors = {
        name.rpartition(".")[2]: _constructor(jvm, f"{_GROUP}.{name}")
        for name in (
            "metrics.GroupCoordinatorMetricsShard",
            "GroupMetadataManager",
            "OffsetMetadataManager",
            "GroupCoordinatorShard",
        )
    }

    def shard() -> Any:
        registry = new_registry(logs)
        needed: dict[str, Callable[[], Any]] = {
            "LogContext": lambda: logs,
            "SnapshotRegistry": lambda: registry,
            "Time": lambda: time,
            "GroupCoordinatorConfig": lambda: config,
            "Optional": optional.empty,
            "List": lambda: assignors,
            "int": lambda: 0,
            "Map": new_map,
            "TopicPartition": lambda: log_partition,
        }
        made = None
        for name, construct in constructors.items():
            made = construct(needed)
            needed[name] = partial(lambda one: one, made)
        return made

    return shard


def _constructor(jvm: Jvm, name: str, *, least: bool = False) -> Callable[[Mapping[str, Callable[[], Any]]], Any]:
    """Return a function that constructs an instance from values by simple type name; null for other parameters.

    It uses the constructor with most parameters, or with `least` the one with fewest. Each call of Java takes time, so
    the constructor is looked up once.
    """
    constructors = list(jvm.packages.java.lang.Class.forName(jvm.locate(name)).getDeclaredConstructors())
    constructors.sort(key=lambda one: one.getParameterCount())
    constructor = constructors[0 if least else -1]
    constructor.setAccessible(True)
    types = [parameter.getSimpleName() for parameter in constructor.getParameterTypes()]
    java_object = jvm.packages.java.lang.Object

    def construct(needed: Mapping[str, Callable[[], Any]]) -> Any:
        return constructor.newInstance(jvm.array(java_object, [needed.get(one, lambda: None)() for one in types]))

    return construct


def serialized_key(jvm: Jvm, key: Message, key_version: int) -> bytes:
    own_version = 0 if "apiKey" in key.definition else key_version
    return key_version.to_bytes(2, "big") + serialized(jvm, key, own_version)[2:]


def serialized_value(jvm: Jvm, value: Message, version: int) -> bytes:
    """Return a default message; for an unknown version, the bytes of the nearest known one with this version."""
    known = min(max(version, value.valid_versions[0]), value.valid_versions[-1])
    return version.to_bytes(2, "big") + serialized(jvm, value, known)[2:]


def serialized(jvm: Jvm, message: Message, version: int) -> bytes:
    """Return a message with the defaults of the release's generated class, with its version before it."""
    instance = jvm.instance(message.java_class)
    if instance.highestSupportedVersion() != message.valid_versions[-1]:
        raise AssertionError(f"{message.name}: class and definition differ in their newest version")
    util = jvm.packages.org.apache.kafka.common.protocol.MessageUtil
    return bytes(util.toVersionPrefixedBytes(version, instance))
