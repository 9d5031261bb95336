"""A release's coordinators as empty state machines that replay records (GroupCoordinatorShard, …)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_rollout.adapters.releases.jvm import Jvm
from tools.derivation.writers import LOG_CONTEXT

_GROUP = "org.apache.kafka.coordinator.group"
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
    shard = _shard(jvm, f"{_GROUP}.GroupCoordinatorShard")
    serde = jvm.instance(serde_name)

    def refusal(key: bytes, value: bytes | None) -> str | None:
        record = serde.deserialize(wrap(jvm, key), None if value is None else wrap(jvm, value))
        try:
            shard.replay(0, -1, -1, record)
        except Py4JJavaError as error:
            message = str(error.java_exception.getMessage())
            return message.split(" in ", 1)[0] if "unknown record type" in message else None
        return None

    return refusal


def refusals(jvm: Jvm, serde_name: str) -> Refusal:
    """Return a function that replays each log in a new GroupCoordinatorShard."""
    new_shard, serde = group_shards(jvm), jvm.instance(serde_name)

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


def share_checks(jvm: Jvm) -> Callable[[bytes, bytes], str | None]:
    serde = jvm.instance(SHARE_SERDE)

    def complaint(key: bytes, value: bytes) -> str | None:
        try:
            shard = _shard(jvm, _SHARE_SHARD)
            shard.replay(0, -1, -1, serde.deserialize(wrap(jvm, key), wrap(jvm, value)))
        except Py4JJavaError as error:
            return str(error.java_exception.getMessage())
        return None

    return complaint


def share_replay(jvm: Jvm) -> Callable[[bytes, bytes | None], str | None]:
    """Return a ShareCoordinatorShard of 4.x with an empty state."""
    shard = _shard(jvm, _SHARE_SHARD)
    serde = jvm.instance(SHARE_SERDE)

    def refusal(key: bytes, value: bytes | None) -> str | None:
        record = serde.deserialize(wrap(jvm, key), None if value is None else wrap(jvm, value))
        try:
            shard.replay(0, -1, -1, record)
        except Py4JJavaError as error:
            return str(error.java_exception.getMessage())
        return None

    return refusal


def _shard(jvm: Jvm, name: str) -> Any:
    """A coordinator's state machine with only the objects that its constructor uses."""
    logs = jvm.moved(*LOG_CONTEXT)()
    needed = {
        "LogContext": lambda: logs,
        "SnapshotRegistry": lambda: jvm.packages.org.apache.kafka.timeline.SnapshotRegistry(logs),
    }
    constructors = jvm.packages.java.lang.Class.forName(name).getDeclaredConstructors()
    constructor = min(constructors, key=lambda one: one.getParameterCount())
    constructor.setAccessible(True)
    types = [parameter.getSimpleName() for parameter in constructor.getParameterTypes()]
    arguments = [needed.get(simple_name, lambda: None)() for simple_name in types]
    return constructor.newInstance(jvm.array(jvm.packages.java.lang.Object, arguments))


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

    def shard() -> Any:
        registry = packages.org.apache.kafka.timeline.SnapshotRegistry(logs)
        needed: dict[str, Callable[[], Any]] = {
            "LogContext": lambda: logs,
            "SnapshotRegistry": lambda: registry,
            "Time": lambda: packages.org.apache.kafka.common.utils.Time.SYSTEM,
            "GroupCoordinatorConfig": lambda: config,
            "Optional": optional.empty,
            "List": lambda: assignors,
            "int": lambda: 0,
            "Map": packages.java.util.HashMap,
            "TopicPartition": lambda: log_partition,
        }
        for name in (
            "metrics.GroupCoordinatorMetricsShard",
            "GroupMetadataManager",
            "OffsetMetadataManager",
            "GroupCoordinatorShard",
        ):
            made = _create_instance(jvm, f"{_GROUP}.{name}", needed)
            needed[name.rpartition(".")[2]] = partial(_itself, made)
        return made

    return shard


def _itself(made: Any) -> Any:
    return made


def _create_instance(jvm: Jvm, name: str, needed: dict[str, Callable[[], Any]]) -> Any:
    """Return an instance by the constructor with most parameters; null for those that are not in `needed`."""
    constructors = jvm.packages.java.lang.Class.forName(name).getDeclaredConstructors()
    constructor = max(constructors, key=lambda one: one.getParameterCount())
    constructor.setAccessible(True)
    types = [parameter.getSimpleName() for parameter in constructor.getParameterTypes()]
    arguments = [needed.get(simple_name, lambda: None)() for simple_name in types]
    return constructor.newInstance(jvm.array(jvm.packages.java.lang.Object, arguments))
