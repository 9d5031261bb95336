"""The loss report (KIP-1155): metadata that is lost when an image is written at a lower metadata.version.

Two images are compared record by record and field by field: the current one, and the one that was written at the lower
level. Kafka's own loss handler is not sufficient. It reports "the cordoned log directories of one or more brokers" also
for brokers without any, and it reports nothing when members of an ELR are dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafka_rollout.model.acls import Acl, operation_name

ACCESS = "access"
"""The kind of a loss that is a decision of the authorizer: equal ACLs, with another meaning on the older release."""

REGISTRATION_FLOOR = "3.7-IV0"
"""The first level at which controllers register (KIP-919). KIP-1155 supports no level below it."""

_DIRECTORY_ID = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])", re.ASCII)
_RESERVED_DIRECTORY = "AAAAAAAAAAAAAAAAAAAA"
"""Prefix of ids that stand for no directory (org.apache.kafka.common.DirectoryId: MIGRATING, UNASSIGNED, LOST)."""


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """One record of an image: the name of its definition and its fields."""

    name: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss."""

    kind: str
    """The lost part."""
    subject: str
    """The object."""
    sentence: str
    """Both with the values."""
    covers: tuple[str, ...] = ()
    """As in `Finding`: each decision of an ACCESS."""

    @property
    def identity(self) -> tuple[str, str]:
        """Key of the same loss in two reports. Of fields that each broker or partition has, it is the kind."""
        return (self.kind, "" if self.kind in _OF_ALL else self.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReport:
    """The loss report."""

    from_level: int
    to_level: int
    from_name: str
    to_name: str
    release: str
    readers: tuple[str, ...] = ()
    """The releases that will run on the metadata; the losses include what they do not keep or mean otherwise."""
    below_floor: bool
    losses: tuple[Loss, ...]
    """Real losses."""
    default_only: tuple[Loss, ...]
    """Missing fields that hold only default values."""
    kafka_said: tuple[str, ...]
    """The messages of Kafka's loss handler, each once."""
    notes: tuple[str, ...]
    """Further facts for the approver."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A record definition."""

    keys: tuple[str, ...]
    """Fields that identify the object."""
    what: str
    subject: str = "the cluster"
    """Format of its name (_subject)."""


_KINDS = {
    "RegisterBrokerRecord": _Kind(("brokerId",), "broker registration", "broker {brokerId}"),
    "RegisterControllerRecord": _Kind(("controllerId",), "controller registration", "controller {controllerId}"),
    "TopicRecord": _Kind(("topicId",), "topic", "topic {name}"),
    "PartitionRecord": _Kind(("topicId", "partitionId"), "partition", "{topic}-{partitionId}"),
    "ConfigRecord": _Kind(("resourceType", "resourceName", "name"), "configuration", "{name} of {resource}"),
    "ClientQuotaRecord": _Kind(("entity", "key"), "client quota", "{key} of {entities}"),
    "ProducerIdsRecord": _Kind((), "producer ids"),
    "AccessControlEntryRecord": _Kind(("id",), "ACL", "{principal} on {resourceName} ({id})"),
    "UserScramCredentialRecord": _Kind(("name", "mechanism"), "SCRAM credential", "user {name} ({scram})"),
    "DelegationTokenRecord": _Kind(("tokenId",), "delegation token", "token {tokenId} of {owner}"),
    "FeatureLevelRecord": _Kind(("name",), "feature level", "{name}"),
    "ZkMigrationStateRecord": _Kind((), "ZooKeeper migration state"),
}
_FIELD_KINDS = {
    ("RegisterBrokerRecord", "cordonedLogDirs"): "cordoned log directories",
    ("RegisterBrokerRecord", "logDirs"): "online log directories",
    ("RegisterBrokerRecord", "isMigratingZkBroker"): "ZooKeeper migration of a broker",
    ("RegisterBrokerRecord", "inControlledShutdown"): "controlled shutdown",
    ("PartitionRecord", "directories"): "directory assignment",
    ("PartitionRecord", "eligibleLeaderReplicas"): "eligible leader replicas",
    ("PartitionRecord", "lastKnownElr"): "last known eligible leader replicas",
    ("PartitionRecord", "leaderRecoveryState"): "leader recovery state",
}
_OF_ALL = {
    _FIELD_KINDS["RegisterBrokerRecord", "logDirs"],
    _FIELD_KINDS["RegisterBrokerRecord", "isMigratingZkBroker"],
    _FIELD_KINDS["RegisterBrokerRecord", "inControlledShutdown"],
    _FIELD_KINDS["PartitionRecord", "directories"],
}
_SECRETS = {
    *(("UserScramCredentialRecord", name) for name in ("salt", "storedKey", "serverKey")),
    ("DelegationTokenRecord", "hmac"),
    ("ConfigRecord", "value"),  # the value of a broker setting can be a password
}
_MECHANISMS: Mapping[Any, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_RESOURCES: Mapping[Any, str] = {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}


def acl_of(record: ImageRecord) -> Acl:
    """Return the ACL of an AccessControlEntryRecord."""
    names = ("resourceType", "resourceName", "patternType", "principal", "host", "operation", "permissionType")
    kind, name, pattern, principal, host, operation, permission = (record.fields[field] for field in names)
    return Acl(
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )


def compare(before: Sequence[ImageRecord], after: Sequence[ImageRecord]) -> tuple[tuple[Loss, ...], tuple[Loss, ...]]:
    """Return (real losses, differences in fields with default values), in the order of the records."""
    topics = {record.fields["topicId"]: record.fields["name"] for record in before if record.name == "TopicRecord"}
    left = {_key(record): record.fields for record in after}
    losses: list[Loss] = []
    defaults: list[Loss] = []
    for record in before:
        subject = _subject(record, topics)
        fields = left.get(_key(record))
        if fields is None:
            kind = _KINDS[record.name].what if record.name in _KINDS else record.name
            level = f" (level {record.fields['featureLevel']})" if record.name == "FeatureLevelRecord" else ""
            losses.append(Loss(kind, subject, f"The {kind} of {subject} is lost{level}."))
            continue
        for name, value in record.fields.items():
            if _canonical(value) == _canonical(fields.get(name)):
                continue
            kind = _FIELD_KINDS.get((record.name, name), name)
            if (record.name, name) in _SECRETS:
                what = f"{_capital(subject)} loses its {kind}."
            elif _says_nothing(fields.get(name)):
                what = f"{_capital(subject)} loses its {kind}: {_format(value, name)}."
            else:
                now = _format(fields.get(name), name)
                what = f"{_capital(subject)}: {kind} changes from {_format(value, name)} to {now}."
            loss = Loss(kind, subject, what)
            (defaults if _says_nothing(value) else losses).append(loss)
    return tuple(losses), tuple(defaults)


def with_paths(losses: Iterable[Loss], paths: Mapping[str, str]) -> tuple[Loss, ...]:
    """Return the losses with each directory's path before its id, if `paths` (id → path) contains it."""

    def named(match: re.Match[str]) -> str:
        path = paths.get(match[0])
        return match[0] if path is None else f"{path} ({match[0]})"

    return tuple(replace(loss, sentence=_DIRECTORY_ID.sub(named, loss.sentence)) for loss in losses)


def _key(record: ImageRecord) -> str:
    kind = _KINDS.get(record.name)
    fields = record.fields if kind is None else {name: record.fields[name] for name in kind.keys}
    return f"{record.name} {_canonical(fields)}"


def _canonical(value: Any) -> str:
    """Return equal texts for equal values.

    The order of structs in a collection (listeners, features) does not matter.
    """
    if isinstance(value, Mapping):
        inner = (f"{json.dumps(name)}:{_canonical(item)}" for name, item in sorted(value.items()))
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list | tuple):
        items = [_canonical(item) for item in value]
        return str(sorted(items) if any(isinstance(item, Mapping) for item in value) else items)
    return repr(value)


def _says_nothing(value: Any) -> bool:
    """Return whether the value is empty: null, empty text, 0, false, or reserved directory ids."""
    if isinstance(value, list):
        return all(str(item).startswith(_RESERVED_DIRECTORY) for item in value)
    return not value


def says_something(record: ImageRecord) -> bool:
    """Return whether the record has a non-default value.

    3.x writes a ZkMigrationStateRecord with default values into every image; 4.x writes none.
    """
    return not all(_says_nothing(value) for value in record.fields.values())


def _subject(record: ImageRecord, topics: Mapping[str, str]) -> str:
    fields, kind = record.fields, _KINDS.get(record.name)
    if kind is None:
        return "the cluster"
    type_, of = fields.get("resourceType"), fields.get("entity", ())
    shown = {
        "topic": topics.get(fields.get("topicId", ""), fields.get("topicId")),
        "resource": f"{_RESOURCES.get(type_, f'resource type {type_}')} {fields.get('resourceName') or '(default)'}",
        "entities": ", ".join(f"{one['entityType']} {one['entityName'] or '(default)'}" for one in of),
        "scram": _MECHANISMS.get(fields.get("mechanism"), fields.get("mechanism")),
    }
    return kind.subject.format(**{**fields, **shown})


def _format(value: Any, field: str = "") -> str:
    if field == "operation":
        return operation_name(value)
    if value is None or value == []:
        return "nothing (the default)"
    if isinstance(value, list):
        return ", ".join(_format(item) for item in value)
    return str(value)


def _capital(text: str) -> str:
    return text if "-" in text.partition(" ")[0] else text[:1].upper() + text[1:]
