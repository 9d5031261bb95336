"""Value versions that a release's coordinators write, by its own record builders at every feature level.

Records of a feature that brokers do not advertise by default count as never written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_rollout.metadata_log.classes.node_configs import config_definitions
from kafka_rollout.releases.facts import METADATA_VERSION, TRANSACTION_VERSION, FeatureLevel, VersionRange
from kafka_rollout.releases.jvm.jvm import Jvm

_COORDINATOR = "org.apache.kafka.coordinator"
_UTILS = "org.apache.kafka.common.utils"
LOG_CONTEXT = (f"{_UTILS}.internals.LogContext", f"{_UTILS}.LogContext")  # 4.4; before
# Group kinds by the feature whose level 1 enables them (KIP-848, KIP-932, KIP-1071).
_BROUGHT_BY = {"newConsumerGroup": "group.version", "newShare": "share.version", "newStreamsGroup": "streams.version"}
_NO_VERSION = VersionRange(0, 0)
_BOXED_LONG = 1 << 40  # py4j passes a smaller number as java.lang.Integer


@dataclass(frozen=True, slots=True)
class Written:
    """One record as the release wrote it."""

    key_version: int
    value_version: int
    needs: FeatureLevel | None
    """The feature level at which it was written, None for the lowest."""


def has_old_group_coordinator(jvm: Jvm) -> bool:
    """Return whether the coordinator of 3.x is the default: its successor was opt-in until 4.0 (KIP-848)."""
    if jvm.find_class("kafka.coordinator.group.GroupMetadataManager") is None:
        return False
    return not broker_defaults(jvm).get("group.coordinator.new.enable")


def broker_defaults(jvm: Jvm) -> Any:
    """Return the settings of KafkaConfig that have a default, with the default: a java.util.Map."""
    return config_definitions(jvm).defaultValues()


def group_writes(jvm: Jvm, advertised: Mapping[str, VersionRange]) -> Iterator[Written]:
    if has_old_group_coordinator(jvm):
        yield from _old_group_writes(jvm, advertised)
        return
    for name in ("group.GroupCoordinatorRecordHelpers", "group.streams.StreamsCoordinatorRecordHelpers"):
        yield from _builder_writes(jvm, name, "group.GroupCoordinatorRecordSerde", advertised)


def share_writes(jvm: Jvm, advertised: Mapping[str, VersionRange]) -> Iterator[Written]:
    names = "share.ShareCoordinatorRecordHelpers", "share.ShareCoordinatorRecordSerde"
    yield from _builder_writes(jvm, *names, advertised)


def transaction_writes(jvm: Jvm, advertised: Mapping[str, VersionRange]) -> Iterator[Written]:
    scala = "kafka.coordinator.transaction"
    java = f"{_COORDINATOR}.transaction"
    log_class = jvm.find_class(f"{java}.TransactionLog")
    if log_class is None:
        log_class = jvm.packages.java.lang.Class.forName(f"{scala}.TransactionLog$")
    log = log_class.getField("MODULE$").get(None) if log_class.getName().endswith("$") else None
    metadata = f"{java}.TxnTransitMetadata"
    if jvm.find_class(metadata) is None:
        metadata = f"{scala}.TxnTransitMetadata"
    to_bytes = next(method for method in log_class.getMethods() if method.getName() == "valueToBytes")
    levels = advertised.get(TRANSACTION_VERSION, _NO_VERSION)
    key_to_bytes = next(method for method in log_class.getMethods() if method.getName() == "keyToBytes")
    key = jvm.call(key_to_bytes, log, "transactional")
    for level in range(levels.min, levels.max + 1):
        arguments: list[Any] = [_constructed(jvm, metadata, level=level)]
        for parameter in list(to_bytes.getParameterTypes())[1:]:
            # 3.8-3.9 have a flag for flexible records, which transaction.version 1 enables.
            arguments.append(level > 0 if parameter.getName() == "boolean" else _transaction_version(jvm, level))
        needs = FeatureLevel(feature=TRANSACTION_VERSION, level=level) if level > levels.min else None
        yield _versions(key, jvm.call(to_bytes, log, *arguments), needs)


def _versions(key: Any, value: Any, needs: FeatureLevel | None) -> Written:
    return Written(int.from_bytes(bytes(key)[:2], "big"), int.from_bytes(bytes(value)[:2], "big"), needs)


def _transaction_version(jvm: Jvm, level: int) -> Any:
    return jvm.packages.org.apache.kafka.server.common.TransactionVersion.fromFeatureLevel(level)


def _constructed(jvm: Jvm, name: str, **choices: Any) -> Any:
    """Return an instance by the constructor with most parameters, with the simplest argument of each type."""
    constructors = jvm.packages.java.lang.Class.forName(name).getConstructors()
    widest = max(constructors, key=lambda constructor: constructor.getParameterCount())
    return jvm.static(name)(*(_argument(jvm, parameter, **choices) for parameter in widest.getParameterTypes()))


def _old_group_writes(jvm: Jvm, advertised: Mapping[str, VersionRange]) -> Iterator[Written]:
    """GroupMetadataManager of 3.x, for every metadata.version; with and without a retention requested by the client."""
    packages = jvm.packages
    manager = packages.kafka.coordinator.group.GroupMetadataManager
    none, some = packages.scala.Option.empty(), packages.scala.Option.apply(_BOXED_LONG)
    partition = packages.org.apache.kafka.common.TopicPartition("topic", 0)
    empty = packages.java.lang.Class.forName("kafka.coordinator.group.Empty$").getField("MODULE$").get(None)
    time = packages.org.apache.kafka.common.utils.Time.SYSTEM
    group = packages.kafka.coordinator.group.GroupMetadata("group", empty, time)
    no_assignments = _to_scala(jvm, packages.java.util.HashMap())
    levels = advertised[METADATA_VERSION]
    for version in packages.org.apache.kafka.server.common.MetadataVersion.values():
        level = version.featureLevel()
        if level not in levels:
            continue
        needs = FeatureLevel(feature=METADATA_VERSION, level=level) if level > levels.min else None
        for expires in (none, some):
            no_epoch = packages.java.util.Optional.empty()
            offset = packages.kafka.common.OffsetAndMetadata(0, no_epoch, "", 0, expires)
            value = manager.offsetCommitValue(offset, version)
            yield _versions(manager.offsetCommitKey("group", partition), value, needs)
        value = manager.groupMetadataValue(group, no_assignments, version)
        yield _versions(manager.groupMetadataKey("group"), value, needs)


def _builder_writes(jvm: Jvm, helpers: str, serde: str, advertised: Mapping[str, VersionRange]) -> Iterator[Written]:
    """Call every static `new…Record` of a helper class of 4.x with the simplest arguments of their types."""
    java_class = jvm.find_class(f"{_COORDINATOR}.{helpers}")
    if java_class is None:
        return
    serializer = jvm.instance(f"{_COORDINATOR}.{serde}")
    target = jvm.static(java_class.getName())
    for method in java_class.getMethods():
        name = method.getName()
        if not (name.startswith("new") and method.getReturnType().getSimpleName() == "CoordinatorRecord"):
            continue
        feature = next((feature for prefix, feature in _BROUGHT_BY.items() if name.startswith(prefix)), None)
        if "Tombstone" in name or (feature and advertised.get(feature, _NO_VERSION).max < 1):
            continue
        needs = FeatureLevel(feature=feature, level=1) if feature else None
        for expires in (False, True):
            arguments = [_argument(jvm, parameter, expires=expires) for parameter in method.getParameterTypes()]
            record = getattr(target, name)(*arguments)
            yield _versions(serializer.serializeKey(record), serializer.serializeValue(record), needs)


def _to_scala(jvm: Jvm, collection: Any) -> Any:
    return jvm.packages.scala.jdk.javaapi.CollectionConverters.asScala(collection)


def _argument(jvm: Jvm, parameter: Any, *, level: int = 0, expires: bool = False) -> Any:
    """Return the simplest instance of a type. `level`: transaction.version; `expires`: a commit's retention."""
    packages = jvm.packages
    name, simple = parameter.getName(), parameter.getSimpleName()
    match simple:
        case "String":
            return "x"
        case "int" | "long" | "short":
            return 0
        case "Map":
            return packages.java.util.HashMap()
        case "Set" if name.startswith("scala."):
            return _to_scala(jvm, packages.java.util.HashSet()).toSet()
        case "Set" | "HashSet":
            return packages.java.util.HashSet()
        case "OptionalInt":
            return packages.java.util.OptionalInt.empty()
        case "OptionalLong":
            return packages.java.util.OptionalLong.of(1) if expires else packages.java.util.OptionalLong.empty()
        case "Uuid":
            return packages.org.apache.kafka.common.Uuid.ONE_UUID
        case "LogContext":
            return jvm.static(name)()
        case "Time":
            return jvm.static(name).SYSTEM
        case "TransactionVersion":
            return _transaction_version(jvm, level)
        case "TransactionState" if name.startswith("kafka."):
            empty = packages.java.lang.Class.forName("kafka.coordinator.transaction.Empty$")
            return empty.getField("MODULE$").get(None)
        case "TransactionState" | "ClassicGroupState":
            return jvm.static(name).EMPTY
        case "OffsetAndMetadata" | "ResolvedRegularExpression" | "TasksTuple":
            return _constructed(jvm, name, expires=expires)
        case "ClassicGroup":
            empty = jvm.static(f"{_COORDINATOR}.group.classic.ClassicGroupState").EMPTY
            time = packages.org.apache.kafka.common.utils.Time.SYSTEM
            return jvm.static(name)(jvm.moved(*LOG_CONTEXT)(), "x", empty, time)
        case "ConsumerGroupMember" | "ShareGroupMember":
            return jvm.static(name).Builder("x").build()
        case "StreamsGroupMember":
            return jvm.static(name).Builder.withDefaults("x").build()
        case "ShareGroupOffset":
            return jvm.static(name).Builder().setStateBatches(packages.java.util.ArrayList()).build()
        case "Topology" | "StreamsGroupTopologyValue":
            return jvm.instance(name)
    raise AssertionError(f"no argument for a parameter of type {name}")
