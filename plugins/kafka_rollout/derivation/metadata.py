"""Derives from the jars which records of the metadata log a release reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafka_rollout.derivation.gaps import NotDerivedError
from kafka_rollout.derivation.jars import Message, calls, classes_named, definitions, kafka_jars
from kafka_rollout.metadata_log.records import MetadataLogFacts, MetadataRecordFacts
from kafka_rollout.releases.facts import Release, VersionRange
from kafka_rollout.releases.jvm.jvm import Jvm

_TYPES = "org.apache.kafka.common.metadata.MetadataRecordType"
_CONTROLLER = "org.apache.kafka.controller.QuorumController"
_DELTA = "org.apache.kafka.image.MetadataDelta"
_NESTED_CLASSES = 60


def metadata_log(jvm: Jvm, release: Release) -> MetadataLogFacts:
    types = list(jvm.static(jvm.locate(_TYPES)).values())
    controller, broker = (_handled(jvm, jvm.locate(name), types) for name in (_CONTROLLER, _DELTA))
    records = {
        int(kind.id()): MetadataRecordFacts(
            name=definition_name(kind.name()),
            type=int(kind.id()),
            reads=VersionRange(kind.lowestSupportedVersion(), kind.highestSupportedVersion()),
            controller=kind.id() in controller,
            broker=kind.id() in broker,
        )
        for kind in types
    }
    return MetadataLogFacts(
        release=release,
        records=records,
        names={kind: record.name for kind, record in records.items()},
        starts_from_snapshot=starts_from_snapshot(jvm.libs),
    )


def definition_name(constant: str) -> str:
    """`NO_OP_RECORD` → `NoOpRecord`."""
    return "".join(part.capitalize() for part in constant.split("_"))


def metadata_messages(libs: Path) -> dict[int, Message]:
    """Return the definition of every record type, by its apiKey."""
    found = {}
    for jar, _, definition in definitions(kafka_jars(libs), r"common/metadata/(\w+)\.json"):
        name = str(definition["name"])
        found[int(definition["apiKey"])] = Message(name, jar.name, definition, f"{_TYPES.rpartition('.')[0]}.{name}")
    return {key: found[key] for key in sorted(found)}


def starts_from_snapshot(libs: Path) -> bool:
    """Return whether a listener at offset 0 gets the newest snapshot although the log also begins there.

    KafkaRaftClient.updateListenersProgress asks for the snapshot once if it only bridges a gap, and more than once if
    it also checks for one.
    """
    (code,) = classes_named(libs, r"org/apache/kafka/raft/KafkaRaftClient\.class")
    methods = calls(code, frozenset({"latestSnapshot"}))
    asked = sum(called.total() for name, called in methods if "updateListenersProgress" in name)
    if not asked:
        raise NotDerivedError("KafkaRaftClient does not ask for a snapshot in updateListenersProgress.")
    return asked > 1


def _handled(jvm: Jvm, name: str, types: list[Any]) -> set[int]:
    """Return the record types of the cases in a class's switch over MetadataRecordType, from javac's table."""
    kind_name = _TYPES.rpartition(".")[2]
    for number in range(1, _NESTED_CLASSES):
        java = jvm.find_class(f"{name}${number}")
        if java is None:
            continue
        for field in java.getDeclaredFields():
            if field.getName().startswith("$SwitchMap$") and field.getName().endswith(f"${kind_name}"):
                field.setAccessible(True)
                cases = list(field.get(None))
                return {int(kind.id()) for kind in types if cases[kind.ordinal()]}
    raise NotDerivedError(f"{name} has no switch over {_TYPES}.")
