"""Records that a release's coordinators read and write, by its own deserializers, state machines and serializers.

The message definitions list the records. The rest is found by trial: the release's generated class serializes a default
message of each version, and the code that loads the log reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JJavaError

from kafka_rollout.base.internal_topics import GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from kafka_rollout.formats.layouts import MessageSchema
from kafka_rollout.releases.facts import (
    CoordinatorLogFacts,
    FeatureLevel,
    FieldRule,
    RecordTypeFacts,
    VersionRange,
)
from kafka_rollout.releases.jvm.jvm import Jvm, java_class, root_cause
from kafka_rollout_derivation.coordinators.loaders import (
    SHARE_RECORDS,
    Loader,
    default_group_loader,
    group_loader,
    is_ignored,
    serialized_key,
    serialized_value,
    share_loader,
    transaction_loader,
)
from kafka_rollout_derivation.coordinators.rules import field_rules, group_families
from kafka_rollout_derivation.coordinators.writers import Written, has_old_group_coordinator
from kafka_rollout_derivation.gaps import Gaps
from kafka_rollout_derivation.jars import Message, key_versions

_COORDINATOR = "org.apache.kafka.coordinator"
SERDE_OF_3_9 = f"{_COORDINATOR}.group.CoordinatorRecordSerde"  # also of 3.8; the early access of 3.7 is omitted
_UNKNOWN_KEYS = (9999, 32767)  # no release has them, nor a value of this version
_UNKNOWN_VALUE = 9999
_ANY_VERSION = VersionRange(0, 32767)  # 3.9: classes ignore it and read a greater one as the newest
_BEYOND = 1  # number of tried value versions above the newest of the definition


def new_group_coordinator(
    jvm: Jvm, messages: Mapping[str, Message], advertised: Mapping[str, VersionRange]
) -> CoordinatorLogFacts | None:
    """Return the facts of the group coordinator that 3.8 and 3.9 start instead of the default one if configured."""
    if not has_old_group_coordinator(jvm) or jvm.find_class(SERDE_OF_3_9) is None:
        return None
    return _facts(jvm, GROUPS_TOPIC, group_loader(jvm, messages, advertised, SERDE_OF_3_9), messages)


def coordinator_logs(
    jvm: Jvm, libs: Path, messages: Mapping[str, Message], advertised: Mapping[str, VersionRange], gaps: Gaps
) -> dict[str, CoordinatorLogFacts]:
    """Return the facts of each coordinator log in the release's default configuration."""
    loaders = {
        GROUPS_TOPIC: lambda: default_group_loader(jvm, libs, messages, advertised),
        TRANSACTIONS_TOPIC: lambda: transaction_loader(jvm, libs, advertised),
    }
    if any(name.startswith(SHARE_RECORDS) for name in messages):
        loaders[SHARE_TOPIC] = lambda: share_loader(jvm, advertised)

    def facts(topic: str) -> CoordinatorLogFacts:
        return _facts(jvm, topic, loaders[topic](), messages)

    found = {topic: gaps.derive(f"coordinator_logs.{topic}", partial(facts, topic), None) for topic in sorted(loaders)}
    return {topic: log for topic, log in found.items() if log is not None}


def _facts(jvm: Jvm, topic: str, loader: Loader, messages: Mapping[str, Message]) -> CoordinatorLogFacts:
    written = _find_written_versions(loader.writes())
    records = []
    for name, key in messages.items():
        if not name.endswith("Key") or not loader.belongs(name):
            continue
        value = messages[name.removesuffix("Key") + "Value"]
        for key_version in key_versions(key):
            lowest = serialized_value(jvm, value, value.valid_versions[0])
            key_bytes = serialized_key(jvm, key, key_version)
            if _outcome(loader, key_bytes, lowest) != "read":
                continue  # unknown to the default coordinator, although its definition is in the jar (3.7-3.9)
            needed = written.pop(key_version, {})
            unknown_value = serialized_value(jvm, value, _UNKNOWN_VALUE)
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
                    unknown_value=_complaint(loader, key_bytes, unknown_value, _UNKNOWN_VALUE),
                    rules=() if refused["value"] else _rules(loader, key_bytes, value),
                )
            )
    if written:
        raise AssertionError(f"{topic}: records of key versions {sorted(written)} are written but cannot be read")
    unknown = [(version.to_bytes(2, "big") + bytes(64), b"\0\0") for version in _UNKNOWN_KEYS]
    known = serialized_key(jvm, messages[records[0].name + "Key"], records[0].key_version)
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
    if _outcome(loader, key, serialized_value(jvm, value, _UNKNOWN_VALUE)) == "read":
        return _ANY_VERSION
    tried = range(0, value.valid_versions[-1] + 1 + _BEYOND)
    taken = [version for version in tried if _outcome(loader, key, serialized_value(jvm, value, version)) == "read"]
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
    return "ignored" if is_ignored(taken_for) else "read"


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
