"""The code with which a release loads each coordinator log, as functions of records.

Coordinators are empty state machines that replay records (GroupCoordinatorShard, …).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_rollout.releases.facts import VersionRange
from kafka_rollout.releases.jvm.jvm import Jvm
from kafka_rollout_derivation.coordinators.writers import (
    LOG_CONTEXT,
    Written,
    broker_defaults,
    group_writes,
    has_old_group_coordinator,
    share_writes,
    transaction_writes,
)
from kafka_rollout_derivation.jars import Message, calls, classes_named, key_versions

_COORDINATOR = "org.apache.kafka.coordinator"
SHARE_RECORDS = ("ShareSnapshot", "ShareUpdate")
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


def _never_refuses(key: bytes, value: bytes | None) -> None:
    """Return None: the coordinators of 3.x and all transaction coordinators accept every record that they can parse."""


@dataclass(frozen=True, slots=True)
class Loader:
    """The functions with which a release loads one log.

    `read` reads key and value like a coordinator, raises its errors and returns the simple name of the key's class.
    `replay` also replays the record (4.x), also with a null value.
    """

    read: Callable[[bytes, bytes], str]
    belongs: Callable[[str], bool]
    writes: Callable[[], Iterator[Written]]
    replay: Callable[[bytes, bytes | None], str | None] = _never_refuses
    checks: Callable[[bytes, bytes], str | None] | None = None
    """Returns the message about a single record (None: the record is only read)."""
    loaded: bool = True
    goes_on_by_known_keys: bool = False
    deleted_while_pending: str = ""
    refusal: Refusal | None = None
    """Returns the message about several records (None: no message)."""


def default_group_loader(
    jvm: Jvm, libs: Path, messages: Mapping[str, Message], advertised: Mapping[str, VersionRange]
) -> Loader:
    if not has_old_group_coordinator(jvm):
        return group_loader(jvm, messages, advertised, GROUP_SERDE)
    manager = jvm.packages.kafka.coordinator.group.GroupMetadataManager
    time = jvm.packages.org.apache.kafka.common.utils.Time.SYSTEM

    def read(key: bytes, value: bytes) -> str:
        taken_for = _simple_name(manager.readMessageKey(wrap(jvm, key)))
        if taken_for == "OffsetKey":
            manager.readOffsetMessageValue(wrap(jvm, value))
        elif taken_for == "GroupMetadataKey":
            manager.readGroupMessageValue("group", wrap(jvm, value), time)
        return taken_for

    return Loader(
        read,
        _is_of_groups,
        lambda: group_writes(jvm, advertised),
        deleted_while_pending=_deleted_while_pending(libs),
    )


def transaction_loader(jvm: Jvm, libs: Path, advertised: Mapping[str, VersionRange]) -> Loader:
    return Loader(
        _transaction_reader(jvm),
        lambda name: name.startswith("TransactionLog"),
        lambda: transaction_writes(jvm, advertised),
        goes_on_by_known_keys=_goes_on_by_known_keys(libs),
    )


def share_loader(jvm: Jvm, advertised: Mapping[str, VersionRange]) -> Loader:
    refusal = refusals(jvm, _new_shards(jvm, _SHARE_SHARD), SHARE_SERDE)

    def replay(key: bytes, value: bytes | None) -> str | None:
        return refusal([(key, value)])

    return Loader(
        _serde_reader(jvm, SHARE_SERDE),
        lambda name: name.startswith(SHARE_RECORDS),
        lambda: share_writes(jvm, advertised),
        replay,
        replay,
        loaded=_starts_share_coordinator(jvm),
    )


def group_loader(
    jvm: Jvm, messages: Mapping[str, Message], advertised: Mapping[str, VersionRange], serde: str
) -> Loader:
    """GroupCoordinatorShard, the default since 4.0.

    For `replay` it has no managers: it passes known types on (to null) and refuses others.
    """
    refusal, before = refusals(jvm, group_shards(jvm), serde), _before(jvm, messages)
    of_type = refusals(jvm, _new_shards(jvm, f"{_GROUP}.GroupCoordinatorShard"), serde)

    def replay(key: bytes, value: bytes | None) -> str | None:
        message = of_type([(key, value)])
        return message.split(" in ", 1)[0] if message and "unknown record type" in message else None

    return Loader(
        _serde_reader(jvm, serde),
        _is_of_groups,
        lambda: group_writes(jvm, advertised),
        replay,
        lambda key, value: refusal([*before(key), (key, value)]),
        refusal=refusal,
    )


def _is_of_groups(name: str) -> bool:
    return not name.startswith(("TransactionLog", *SHARE_RECORDS))


def is_ignored(taken_for: str) -> bool:
    # 3.4.1-4.0, 4.1-4.2, 4.3; since 4.3 a transaction of an unknown value version is also dropped with a warning.
    return taken_for in ("UnknownKey", "Left", "UnknownKeyVersion", "UnknownValueVersion")


def _simple_name(instance: Any) -> str:
    return str(instance.getClass().getSimpleName())


def _serde_reader(jvm: Jvm, name: str) -> Callable[[bytes, bytes], str]:
    """CoordinatorRecordSerde and CoordinatorLoaderImpl, 4.x."""
    serde = jvm.instance(jvm.locate(name))

    def read(key: bytes, value: bytes) -> str:
        return _simple_name(serde.deserialize(wrap(jvm, key), wrap(jvm, value)).key())

    return read


def _transaction_reader(jvm: Jvm) -> Callable[[bytes, bytes], str]:
    """The methods that TransactionStateManager calls: readTxnRecordKey and readTxnRecordValue, from 4.3 on `read`."""
    if jvm.find_class(f"{_COORDINATOR}.transaction.TransactionLog"):
        log = jvm.packages.org.apache.kafka.coordinator.transaction.TransactionLog
        return lambda key, value: _simple_name(log.read(wrap(jvm, key), wrap(jvm, value)))
    old = jvm.packages.kafka.coordinator.transaction.TransactionLog

    def read(key: bytes, value: bytes) -> str:
        taken_for = _simple_name(old.readTxnRecordKey(wrap(jvm, key)))
        if not is_ignored(taken_for):
            old.readTxnRecordValue("transactional", wrap(jvm, value))
        return taken_for

    return read


def _before(jvm: Jvm, messages: Mapping[str, Message]) -> Callable[[bytes], Sequence[Record]]:
    """Return the records that must precede a replayed record: those of its group and of its member (3.9, 4.0)."""
    families: dict[int, list[Record]] = {}
    for family in ("ConsumerGroup", "ShareGroup"):
        needed: list[Record] = [
            (serialized_key(jvm, key, key_versions(key)[0]), serialized_value(jvm, messages[f"{family}{name}Value"], 0))
            for name in ("Metadata", "MemberMetadata")
            if (key := messages.get(f"{family}{name}Key"))
        ]
        for name, key in messages.items():
            if name.startswith(family) and name.endswith("Key"):
                families[key_versions(key)[0]] = needed
    return lambda key: families.get(int.from_bytes(key[:2], "big"), ())


def _goes_on_by_known_keys(libs: Path) -> bool:
    """Return whether TransactionStateManager passes a batch only where it reads a record's key, not for every batch."""
    steps = frozenset({"readTxnRecordKey", "nextOffset"})
    manager = classes_named(libs, r"kafka/coordinator/transaction/TransactionStateManager(\$.*)?\.class")
    methods = [called.keys() for class_file in manager for _, called in calls(class_file, steps)]
    if not any("nextOffset" in called for called in methods):
        raise AssertionError(
            "TransactionStateManager has no call of nextOffset, which returns the start of the next batch"
        )
    return steps in methods


def _deleted_while_pending(libs: Path) -> str:
    """Return the last error of GroupMetadataManager.doLoadGroupsAndOffsets for a deleted group that it has loaded.

    Such a group has only offsets of transactions without an end. The text is read from the class, because only the log
    of a broker produces the error (tests/integration/coordinator_logs/test_scan_oracle.py).
    """
    words = ("Unexpected unload of active group ", " while ", "loading partition ")
    manager = classes_named(libs, r"kafka/coordinator/group/GroupMetadataManager(\$.*)?\.class")
    says = any(all(text.encode() in class_file for text in words) for class_file in manager)
    return "{group}".join(words[:2]) + words[2] + "{partition}" if says else ""


def _starts_share_coordinator(jvm: Jvm) -> bool:
    """Return False for 4.0, where it is disabled by default (an Option in BrokerServer); later releases start it."""
    method = jvm.packages.java.lang.Class.forName("kafka.server.BrokerServer").getMethod(
        "shareCoordinator", jvm.array(jvm.packages.java.lang.Class, [])
    )
    return method.getReturnType().getSimpleName() != "Option" or bool(broker_defaults(jvm)["group.share.enable"])


# --- state machines that replay records ---


def wrap(jvm: Jvm, data: bytes) -> Any:
    return jvm.packages.java.nio.ByteBuffer.wrap(data)


def refusals(jvm: Jvm, new_shard: Callable[[], Any], serde_name: str) -> Refusal:
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
