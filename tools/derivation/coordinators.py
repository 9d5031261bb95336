"""Records that a release's coordinators read and write, by its own deserializers, state machines and serializers.

The message definitions list the records. The rest is found by trial: the release's generated class serializes a default
message of each version, and the code that loads the log reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_rollout.adapters.releases.jvm import Jvm, java_class, root_cause
from kafka_rollout.domain.model.releases import (
    CoordinatorLogFacts,
    FeatureLevel,
    FieldRule,
    RecordTypeFacts,
    VersionRange,
)
from kafka_rollout.wire.layouts import MessageSchema
from tools.derivation.class_files import calls, texts
from tools.derivation.coordinator_shards import (
    GROUP_SERDE,
    SHARE_SERDE,
    Record,
    Refusal,
    group_replay,
    refusals,
    share_checks,
    share_replay,
    wrap,
)
from tools.derivation.group_families import group_families
from tools.derivation.jars import Message, classes_named, key_versions
from tools.derivation.rules import field_rules
from tools.derivation.writers import (
    Written,
    broker_defaults,
    group_writes,
    has_old_group_coordinator,
    share_writes,
    transaction_writes,
)

GROUP_LOG, TRANSACTION_LOG, SHARE_LOG = "__consumer_offsets", "__transaction_state", "__share_group_state"
_COORDINATOR = "org.apache.kafka.coordinator"
_GENERATED = (f"{_COORDINATOR}.group", f"{_COORDINATOR}.transaction", f"{_COORDINATOR}.share", "kafka.internals")
SERDE_OF_3_9 = f"{_COORDINATOR}.group.CoordinatorRecordSerde"  # also of 3.8; the early access of 3.7 is omitted
_UNKNOWN_KEYS = (9999, 32767)  # no release has them, nor a value of this version
_UNKNOWN_VALUE = 9999
_ANY_VERSION = VersionRange(0, 32767)  # 3.9: classes ignore it and read a greater one as the newest
_BEYOND = 1  # number of tried value versions above the newest of the definition


def _never_refuses(key: bytes, value: bytes | None) -> None:
    """Return None: the coordinators of 3.x and all transaction coordinators accept every record that they can parse."""


@dataclass(frozen=True, slots=True)
class Loader:
    """The functions with which a release loads one log.

    `read` reads key and value like a coordinator, raises its errors and returns the simple name of the key's class.
    `replay` also replays the record (4.x), also with a null value. `checks`: returns the message about a single record
    (None: the record is only read). `refusal`: returns the message about several records (None: no message).
    """

    read: Callable[[bytes, bytes], str]
    belongs: Callable[[str], bool]
    ignores: Callable[[str], bool]
    writes: Callable[[], Iterator[Written]]
    replay: Callable[[bytes, bytes | None], str | None] = _never_refuses
    checks: Callable[[bytes, bytes], str | None] | None = None
    loaded: bool = True
    goes_on_by_known_keys: bool = False
    deleted_while_pending: str = ""
    refusal: Refusal | None = None


def new_group_coordinator(
    jvm: Jvm, messages: Mapping[str, Message], advertised: Mapping[str, VersionRange]
) -> CoordinatorLogFacts | None:
    """Return the facts of the group coordinator that 3.8 and 3.9 start instead of the default one if configured."""
    if not has_old_group_coordinator(jvm) or jvm.find_class(SERDE_OF_3_9) is None:
        return None
    return _facts(jvm, GROUP_LOG, _group_loader(jvm, messages, advertised, SERDE_OF_3_9), messages)


def coordinator_logs(
    jvm: Jvm, libs: Path, messages: Mapping[str, Message], advertised: Mapping[str, VersionRange]
) -> dict[str, CoordinatorLogFacts]:
    """Return the facts of each coordinator log in the release's default configuration."""
    loaders = _loaders(jvm, libs, messages, advertised)
    return {topic: _facts(jvm, topic, loader, messages) for topic, loader in sorted(loaders.items())}


def _loaders(
    jvm: Jvm, libs: Path, messages: Mapping[str, Message], advertised: Mapping[str, VersionRange]
) -> dict[str, Loader]:
    old_reader = _old_group_reader(jvm)
    loaders = {
        GROUP_LOG: (
            Loader(
                old_reader,
                _is_of_groups,
                _is_ignored,
                lambda: group_writes(jvm, advertised),
                deleted_while_pending=_deleted_while_pending(libs),
            )
            if old_reader
            else _group_loader(jvm, messages, advertised, GROUP_SERDE)
        ),
        TRANSACTION_LOG: Loader(
            _transaction_reader(jvm),
            lambda name: name.startswith("TransactionLog"),
            _is_ignored,
            lambda: transaction_writes(jvm, advertised),
            goes_on_by_known_keys=_goes_on_by_known_keys(libs),
        ),
    }
    if jvm.find_class(f"{_COORDINATOR}.share.ShareCoordinatorRecordSerde"):
        loaders[SHARE_LOG] = Loader(
            _serde_reader(jvm, SHARE_SERDE),
            lambda name: name.startswith(("ShareSnapshot", "ShareUpdate")),
            _is_ignored,
            lambda: share_writes(jvm, advertised),
            share_replay(jvm),
            share_checks(jvm),
            loaded=_starts_share_coordinator(jvm),
        )
    return loaders


def _group_loader(
    jvm: Jvm, messages: Mapping[str, Message], advertised: Mapping[str, VersionRange], serde: str
) -> Loader:
    """GroupCoordinatorShard, the default since 4.0."""
    refusal, before = refusals(jvm, serde), _before(jvm, messages)
    return Loader(
        _serde_reader(jvm, serde),
        _is_of_groups,
        _is_ignored,
        lambda: group_writes(jvm, advertised),
        group_replay(jvm, serde),
        lambda key, value: refusal([*before(key), (key, value)]),
        refusal=refusal,
    )


def _is_of_groups(name: str) -> bool:
    return not name.startswith(("TransactionLog", "ShareSnapshot", "ShareUpdate"))


def _facts(jvm: Jvm, topic: str, loader: Loader, messages: Mapping[str, Message]) -> CoordinatorLogFacts:
    written = _find_written_versions(loader.writes())
    records = []
    for name, key in messages.items():
        if not name.endswith("Key") or not loader.belongs(name):
            continue
        value = messages[name.removesuffix("Key") + "Value"]
        for key_version in key_versions(key):
            lowest = _value(jvm, value, value.valid_versions[0])
            key_bytes = _key(jvm, key, key_version)
            if _outcome(loader, key_bytes, lowest) != "read":
                continue  # unknown to the default coordinator, although its definition is in the jar (3.7-3.9)
            needed = written.pop(key_version, {})
            refused = {"value": loader.replay(key_bytes, lowest), "tombstone": loader.replay(key_bytes, None)}
            records.append(
                RecordTypeFacts(
                    key_version=key_version,
                    name=name.removesuffix("Key"),
                    reads=_reads(jvm, loader, key_bytes, value),
                    flexible_from=value.flexible_from,
                    writes=tuple(sorted(needed)),
                    written_from={version: level for version, level in needed.items() if level},
                    refuses={kind: complaint for kind, complaint in refused.items() if complaint},
                    unknown_value=_complaint(loader, key_bytes, _value(jvm, value, _UNKNOWN_VALUE), _UNKNOWN_VALUE),
                    rules=() if refused["value"] else _rules(loader, key_bytes, value),
                )
            )
    if written:
        raise AssertionError(f"{topic}: records of key versions {sorted(written)} are written but cannot be read")
    unknown = [(version.to_bytes(2, "big") + bytes(64), b"\0\0") for version in _UNKNOWN_KEYS]
    known = _key(jvm, messages[records[0].name + "Key"], records[0].key_version)
    ignores = all(_outcome(loader, *record) == "ignored" for record in unknown)
    return CoordinatorLogFacts(
        topic=topic,
        records=tuple(sorted(records, key=lambda record: record.key_version)),
        ignores_unknown_keys=ignores,
        stalls_at_unknown_end=ignores and loader.goes_on_by_known_keys,
        ignores_unknown_values=_outcome(loader, known, _UNKNOWN_VALUE.to_bytes(2, "big") + bytes(64)) == "ignored",
        loaded=loader.loaded,
        unknown_key=_complaint(loader, *unknown[0], _UNKNOWN_KEYS[0]),
        deleted_while_pending=loader.deleted_while_pending,
        group_families=group_families(loader.refusal, messages, records) if loader.refusal else (),
    )


def _rules(loader: Loader, key: bytes, value: Message) -> tuple[FieldRule, ...]:
    """Merge the rules of all versions: a field has the same rule in each version that has the field."""

    def complaint(data: bytes) -> str | None:
        if loader.checks is not None:
            return loader.checks(key, data)
        try:
            loader.read(key, data)
        except Py4JJavaError as error:
            return str(root_cause(error).getMessage())
        return None

    schema = MessageSchema.parse(json.dumps(value.definition))
    found: dict[str, FieldRule] = {}
    for version in value.valid_versions:
        for rule in field_rules(schema.layout(version), complaint):
            if found.setdefault(rule.field, rule) != rule:
                raise AssertionError(f"{value.name}: the rule of {rule.field} differs from version to version")
    return tuple(found.values())


def _find_written_versions(records: Iterator[Written]) -> dict[int, dict[int, FeatureLevel | None]]:
    """Return by key and value version the lowest feature level that enables it, None without one."""
    found: dict[int, dict[int, FeatureLevel | None]] = {}
    for record in records:
        versions = found.setdefault(record.key_version, {})
        known = versions.setdefault(record.value_version, record.needs)
        if known and (record.needs is None or record.needs.level < known.level):
            versions[record.value_version] = record.needs
    return found


def _reads(jvm: Jvm, loader: Loader, key: bytes, value: Message) -> VersionRange:
    if _outcome(loader, key, _value(jvm, value, _UNKNOWN_VALUE)) == "read":
        return _ANY_VERSION
    tried = range(0, value.valid_versions[-1] + 1 + _BEYOND)
    taken = [version for version in tried if _outcome(loader, key, _value(jvm, value, version)) == "read"]
    if taken != list(range(taken[0], taken[-1] + 1)):
        raise AssertionError(f"{value.name}: the versions that can be read are not a range: {taken}")
    return VersionRange(taken[0], taken[-1])


def _outcome(loader: Loader, key: bytes, value: bytes) -> str:
    """Return `read`, `ignored` or `refused`."""
    try:
        taken_for = loader.read(key, value)
    except Py4JJavaError as error:
        # CoordinatorLoaderImpl catches this one, warns and continues; any other stops the load of the partition.
        return "ignored" if java_class(error).endswith("$UnknownRecordTypeException") else "refused"
    return "ignored" if loader.ignores(taken_for) else "read"


def _complaint(loader: Loader, key: bytes, value: bytes, unknown: int) -> str:
    """Return the release's message on a record that stops it, with `{version}` for the unknown version; "" if none."""
    try:
        loader.read(key, value)
    except Py4JJavaError as error:
        if java_class(error).endswith("$UnknownRecordTypeException"):
            return ""
        message = str(root_cause(error).getMessage())
        if str(unknown) not in message:
            raise AssertionError(f"'{message}' does not name version {unknown}") from error
        return message.replace(str(unknown), "{version}")
    return ""


def _is_ignored(taken_for: str) -> bool:
    # 3.4.1-4.0, 4.1-4.2, 4.3; since 4.3 a transaction of an unknown value version is also dropped with a warning.
    return taken_for in ("UnknownKey", "Left", "UnknownKeyVersion", "UnknownValueVersion")


def _key(jvm: Jvm, key: Message, key_version: int) -> bytes:
    own_version = 0 if "apiKey" in key.definition else key_version
    return key_version.to_bytes(2, "big") + _serialized(jvm, key, own_version)[2:]


def _value(jvm: Jvm, value: Message, version: int) -> bytes:
    """Return a default message; for an unknown version, the bytes of the nearest known one with this version."""
    known = min(max(version, value.valid_versions[0]), value.valid_versions[-1])
    return version.to_bytes(2, "big") + _serialized(jvm, value, known)[2:]


def _serialized(jvm: Jvm, message: Message, version: int) -> bytes:
    packages = [f"{package}.generated.{message.name}" for package in _GENERATED]
    generated = next(name for name in packages if jvm.find_class(name))
    instance = jvm.instance(generated)
    if instance.highestSupportedVersion() != message.valid_versions[-1]:
        raise AssertionError(f"{message.name}: class and definition differ in their newest version")
    util = jvm.packages.org.apache.kafka.common.protocol.MessageUtil
    return bytes(util.toVersionPrefixedBytes(version, instance))


def _simple_name(instance: Any) -> str:
    return str(instance.getClass().getSimpleName())


def _old_group_reader(jvm: Jvm) -> Callable[[bytes, bytes], str] | None:
    """The coordinator of 3.x, if it is the default one."""
    if not has_old_group_coordinator(jvm):
        return None
    manager = jvm.packages.kafka.coordinator.group.GroupMetadataManager
    time = jvm.packages.org.apache.kafka.common.utils.Time.SYSTEM

    def read(key: bytes, value: bytes) -> str:
        taken_for = _simple_name(manager.readMessageKey(wrap(jvm, key)))
        if taken_for == "OffsetKey":
            manager.readOffsetMessageValue(wrap(jvm, value))
        elif taken_for == "GroupMetadataKey":
            manager.readGroupMessageValue("group", wrap(jvm, value), time)
        return taken_for

    return read


def _serde_reader(jvm: Jvm, name: str) -> Callable[[bytes, bytes], str]:
    """CoordinatorRecordSerde and CoordinatorLoaderImpl, 4.x."""
    serde = jvm.instance(name)

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
        if not _is_ignored(taken_for):
            old.readTxnRecordValue("transactional", wrap(jvm, value))
        return taken_for

    return read


def _before(jvm: Jvm, messages: Mapping[str, Message]) -> Callable[[bytes], Sequence[Record]]:
    """Return the records that must precede a replayed record: those of its group and of its member (3.9, 4.0)."""
    families: dict[int, list[Record]] = {}
    for family in ("ConsumerGroup", "ShareGroup"):
        needed: list[Record] = [
            (_key(jvm, key, key_versions(key)[0]), _value(jvm, messages[f"{family}{name}Value"], 0))
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
    says = any(texts(class_file).issuperset(words) for class_file in manager)
    return "{group}".join(words[:2]) + words[2] + "{partition}" if says else ""


def _starts_share_coordinator(jvm: Jvm) -> bool:
    """Return False for 4.0, where it is disabled by default (an Option in BrokerServer); later releases start it."""
    method = jvm.packages.java.lang.Class.forName("kafka.server.BrokerServer").getMethod(
        "shareCoordinator", jvm.array(jvm.packages.java.lang.Class, [])
    )
    return method.getReturnType().getSimpleName() != "Option" or bool(broker_defaults(jvm)["group.share.enable"])
