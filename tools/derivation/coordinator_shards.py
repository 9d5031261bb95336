"""State machines of a release's group coordinator (GroupCoordinatorShard) with nothing in them, to try records on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kafka_rollout.adapters.jvm import Jvm

_GROUP = "org.apache.kafka.coordinator.group"
_SMALLEST_CONFIG = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}


def group_shards(jvm: Jvm) -> Callable[[], Any]:
    """What makes a new one. Its timers and assignors are null: records that are replayed need none."""
    packages = jvm.packages
    properties = packages.java.util.Properties()
    for name, content in _SMALLEST_CONFIG.items():
        properties.setProperty(name, content)
    config = packages.kafka.server.KafkaConfig(properties).groupCoordinatorConfig()
    logs, optional = packages.org.apache.kafka.common.utils.LogContext(), packages.java.util.Optional
    log_partition = packages.org.apache.kafka.common.TopicPartition("__consumer_offsets", 0)

    def shard() -> Any:
        registry = packages.org.apache.kafka.timeline.SnapshotRegistry(logs)
        needed: dict[str, Callable[[], Any]] = {
            "LogContext": lambda: logs,
            "SnapshotRegistry": lambda: registry,
            "Time": lambda: packages.org.apache.kafka.common.utils.Time.SYSTEM,
            "GroupCoordinatorConfig": lambda: config,
            "Optional": optional.empty,
            "List": packages.java.util.ArrayList,
            "Map": packages.java.util.HashMap,
            "TopicPartition": lambda: log_partition,
        }
        for name in (
            "metrics.GroupCoordinatorMetricsShard",
            "GroupMetadataManager",
            "OffsetMetadataManager",
            "GroupCoordinatorShard",
        ):
            made = _made(jvm, f"{_GROUP}.{name}", needed)
            needed[name.rpartition(".")[2]] = partial(_itself, made)
        return made

    return shard


def _itself(made: Any) -> Any:
    return made


def _made(jvm: Jvm, name: str, needed: dict[str, Callable[[], Any]]) -> Any:
    """An instance by the constructor that takes most; null for what is not in `needed`."""
    constructors = jvm.packages.java.lang.Class.forName(name).getDeclaredConstructors()
    constructor = max(constructors, key=lambda one: one.getParameterCount())
    constructor.setAccessible(True)
    types = [parameter.getSimpleName() for parameter in constructor.getParameterTypes()]
    arguments = [needed.get(simple_name, lambda: None)() for simple_name in types]
    return constructor.newInstance(jvm.array(jvm.packages.java.lang.Object, arguments))
