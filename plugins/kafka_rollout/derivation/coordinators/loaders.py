"""The code with which a release loads each coordinator log, as functions of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_rollout.derivation.coordinators.shards import (
    GROUP_SERDE,
    SHARE_SERDE,
    Record,
    Refusal,
    group_replay,
    refusals,
    serialized_key,
    serialized_value,
    share_replay,
    wrap,
)
from kafka_rollout.derivation.coordinators.writers import (
    Written,
    broker_defaults,
    group_writes,
    has_old_group_coordinator,
    share_writes,
    transaction_writes,
)
from kafka_rollout.derivation.jars import Message, calls, classes_named, key_versions
from kafka_rollout.releases.facts import VersionRange
from kafka_rollout.releases.jvm.jvm import Jvm

_COORDINATOR = "org.apache.kafka.coordinator"
SHARE_RECORDS = ("ShareSnapshot", "ShareUpdate")


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


def default_group_loader(
    jvm: Jvm, libs: Path, messages: Mapping[str, Message], advertised: Mapping[str, VersionRange]
) -> Loader:
    old_reader = _old_group_reader(jvm)
    if old_reader is None:
        return group_loader(jvm, messages, advertised, GROUP_SERDE)
    return Loader(
        old_reader,
        _is_of_groups,
        is_ignored,
        lambda: group_writes(jvm, advertised),
        deleted_while_pending=_deleted_while_pending(libs),
    )


def transaction_loader(jvm: Jvm, libs: Path, advertised: Mapping[str, VersionRange]) -> Loader:
    return Loader(
        _transaction_reader(jvm),
        lambda name: name.startswith("TransactionLog"),
        is_ignored,
        lambda: transaction_writes(jvm, advertised),
        goes_on_by_known_keys=_goes_on_by_known_keys(libs),
    )


def share_loader(jvm: Jvm, advertised: Mapping[str, VersionRange]) -> Loader:
    replay = share_replay(jvm)
    return Loader(
        _serde_reader(jvm, SHARE_SERDE),
        lambda name: name.startswith(SHARE_RECORDS),
        is_ignored,
        lambda: share_writes(jvm, advertised),
        replay,
        replay,
        loaded=_starts_share_coordinator(jvm),
    )


def group_loader(
    jvm: Jvm, messages: Mapping[str, Message], advertised: Mapping[str, VersionRange], serde: str
) -> Loader:
    """GroupCoordinatorShard, the default since 4.0."""
    refusal, before = refusals(jvm, serde), _before(jvm, messages)
    return Loader(
        _serde_reader(jvm, serde),
        _is_of_groups,
        is_ignored,
        lambda: group_writes(jvm, advertised),
        group_replay(jvm, serde),
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
