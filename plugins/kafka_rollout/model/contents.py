"""The contents of a cluster, and their comparison before and after a change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS, GROUPS_TOPIC, coordinator_partition
from kafka_rollout.base.wording import few
from kafka_rollout.model.acls import Acl
from kafka_rollout.model.config_values import ValueType, same_value
from kafka_rollout.model.configs import (
    HIDDEN,
    ConfigDifference,
    ConfigSource,
    ConfigTable,
    EffectiveConfigs,
    ExpectedConfigs,
    Setting,
    Why,
    compare_effective,
)
from kafka_rollout.model.groups import SHARE
from kafka_rollout.model.retention import (
    BROKER_NAMES,
    KeptRecords,
    Retention,
    broker_retention,
    is_purged,
    purging_groups,
    retention_of,
)

NEW_SETTING = "new setting"
_SHOWN_RESOURCES = 20
_SHOWN_CHARACTERS = 200
_FEW = 2  # clients delete so many groups or topics of a small cluster
_TRAFFIC = "kafka-rollout-"  # topics and groups of the run's own test traffic
_DYNAMIC = frozenset({ConfigSource.ALL_BROKERS, ConfigSource.NODE})
_OFFSETS_RETENTION = "offsets.retention.minutes"
# Kafka serves groups of a type only while its feature is at 1 or higher (KafkaApis of 4.3.1).
SERVED_BY = {"group.version": "consumer", "share.version": "share", "streams.version": "streams"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInventory:
    """The contents of a cluster at one time."""

    topics: Mapping[str, Mapping[str, Any]]
    """Id and replicas by partition."""
    ends: Mapping[str, int]
    """End offset of each partition (`orders-0`)."""
    groups: Mapping[str, Mapping[str, Any]]
    """Type, whether it has members, topics that these subscribe to (None: unknown), and committed offsets, of share
    groups the start offsets of their share partitions; `unread` if not all of these could be read, which is a
    difference of its own.
    """
    configs: Mapping[str, Mapping[str, str]]
    """Dynamic settings by resource (`topic orders`, `broker 1`, `brokers`), a secret as HIDDEN."""
    acls: tuple[Acl, ...]
    scram: Mapping[str, Mapping[str, Any]]
    """Iterations by user and mechanism."""
    quotas: Mapping[str, Mapping[str, float]]
    """By entity."""
    unasked: Mapping[str, str]
    """Field → reason why it could not be read."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The same by group and by subscription."""
    subscriptions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The same by group and by subscription (client metrics, KIP-714)."""
    effective: EffectiveConfigs = field(default_factory=EffectiveConfigs)
    """All settings of brokers and topics, defaults included."""
    read_at: float = 0.0
    """Epoch seconds."""
    starts: Mapping[str, int] = field(default_factory=dict)
    """Log start offset of each partition."""
    kept: Mapping[str, KeptRecords] = field(default_factory=dict)
    """Partition → what retention keeps of it, if that is known and was asked for."""

    @property
    def counts(self) -> dict[str, int]:
        return {
            "topics": len(self.topics),
            "partitions": len(self.ends),
            "groups": len(self.groups),
            "configurations": sum(map(len, self.configs.values())),
            "group configurations": len(self.group_configs),
            "client-metrics subscriptions": len(self.subscriptions),
            "ACLs": len(self.acls),
            "SCRAM users": len(self.scram),
            "quotas": len(self.quotas),
        }


GROUPS, TRANSACTIONAL_IDS, SHARE_OFFSETS = "groups", "transactional_ids", "share_offsets"
PARTS = {
    GROUPS: "groups",
    TRANSACTIONAL_IDS: "transactional ids",
    SHARE_OFFSETS: "start offsets of share groups",
    "acls": "ACLs",
    "scram": "SCRAM users",
    "quotas": "quotas",
    "group_configs": "group configurations",
    "subscriptions": "client-metrics subscriptions",
}
"""Fields that a cluster may not be able to report, and their names in sentences."""
_READ_IF_THERE = (GROUPS, TRANSACTIONAL_IDS, SHARE_OFFSETS)
"""The others can also be unread because the cluster, or its release, has none of them."""
SETTINGS = {"group_configs": "GROUP", "subscriptions": "CLIENT_METRICS"}
"""Fields with settings that older releases do not support → Kafka's name of the resource type.

The plan has already reported a release that does not support them.
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two inventories."""

    kind: str
    subject: str
    sentence: str
    foretold: bool = False
    """The difference is expected: the plan or the catalogue names it, or the older release does not serve such groups,
    which had no committed offsets, or has no such setting."""
    by_clients: bool = False
    """Only clients make such a change, Kafka and the run do not."""
    accepted: bool = False
    """An approver has accepted it in this run."""
    adds: bool = False
    """Something is there that was not there before."""

    @property
    def fails(self) -> bool:
        """Whether a run needs an approver to go on."""
        return not (self.foretold or self.by_clients or self.accepted)


# What can be lost first. Other kinds are configuration.
_ORDER = (
    "state before the run",
    "test traffic",
    "unknown",
    "offset",
    "log start",
    "group",
    "transactional id",
    "topic",
    "access",
    "ACL",
    "metadata of a broker",
)
_COMPARED_BY_KEY = {
    "configs": ("configuration", ""),
    "group_configs": ("configuration", "group "),
    "subscriptions": ("configuration", "client-metrics subscription "),
    "scram": ("SCRAM user", ""),
    "quotas": ("quota", ""),
}


def compare_inventories(
    before: ClusterInventory,
    after: ClusterInventory,
    *,
    unserved: Collection[str] = (),
    dropped: Mapping[str, Collection[str]] | None = None,
) -> tuple[Difference, ...]:
    """List what is missing, smaller or changed after a downgrade. New contents do not count.

    Values that change by themselves do not count either: offsets grow, and retention raises the log start offset of a
    partition, as far as the settings of its topic allow. `unserved`: group types whose members the cluster no longer
    serves. `dropped`: as in ExpectedConfigs.
    """
    return (
        *_unread_parts(before, after, unserved),
        *_lost_topics(before, after),
        *_ends(before, after),
        *_starts(before, after),
        *_lost_groups(before, after, unserved),
        *_acls(before, after, added=False),
        *(
            difference
            for part, (kind, _) in _COMPARED_BY_KEY.items()
            for difference in _values(kind, part, before, after, dropped or {}, added=False)
        ),
    )


def find_unserved_types(levels: Mapping[str, int]) -> frozenset[str]:
    """Return the group types that brokers do not serve at these finalized levels."""
    return frozenset(kind for feature, kind in SERVED_BY.items() if levels.get(feature, 0) < 1)


def _unread_parts(before: ClusterInventory, after: ClusterInventory, unserved: Collection[str]) -> Iterable[Difference]:
    """List the parts that the cluster reported before and does not report now."""
    for part, why in after.unasked.items():
        if not _has_part(before, part):
            continue
        name = PARTS.get(part, part)
        unused = part in SETTINGS or (part == SHARE_OFFSETS and SHARE in unserved)
        sentence = f"There were {name} before; they are not in use now" if unused else f"Not all {name} could be read"
        # What was unknown before the run too is named, and is no change.
        yield Difference("unknown", name, f"{sentence}: {why}", foretold=unused or part in before.unasked)


def list_uncompared(unasked: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the parts that exist and were not compared. `unasked`: names of those that were not read."""
    names = {PARTS[part] for part in _READ_IF_THERE}
    return tuple(name for name in unasked if name in names)


def _has_part(inventory: ClusterInventory, part: str) -> bool:
    if part == SHARE_OFFSETS:
        has_offsets = any(group["offsets"] for group in inventory.groups.values() if group["type"] == SHARE)
        return has_offsets or part in inventory.unasked
    return bool(getattr(inventory, part, True))


def _lost_topics(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    for name, topic in before.topics.items():
        now = after.topics.get(name)
        if now is None:
            yield Difference("topic", name, f"Topic {name} is missing.")
        elif now["id"] != topic["id"]:
            yield Difference("topic", name, f"Topic {name} was recreated: its topic id changed.")
        elif len(now["replicas"]) < len(topic["replicas"]):
            lost = f"{len(topic['replicas'])} partitions, now {len(now['replicas'])}"
            yield Difference("topic", name, f"Topic {name} had {lost}.")
        elif any(a != b for a, b in zip(topic["replicas"], now["replicas"], strict=False)):
            yield Difference("topic", name, f"The replica assignment of topic {name} changed.")


def _lost_groups(before: ClusterInventory, after: ClusterInventory, unserved: Collection[str]) -> Iterable[Difference]:
    for group_id, group in before.groups.items():
        now = after.groups.get(group_id)
        if now is None and GROUPS in after.unasked:
            continue  # it is unknown, which is a difference already
        if now is None:
            sentence = f"The {group['type']} group {group_id} is missing."
            yield Difference("group", group_id, sentence, foretold=_needs_no_group(group, unserved))
            continue
        if behind := _behind(group["offsets"], now["offsets"], missing_counts=not now.get("unread")):
            what = "start" if group["type"] == SHARE else "committed"
            sentence = f"Group {group_id} lost {what} offsets: {few_marked(behind)}."
            yield Difference("group", group_id, sentence)


def _behind(before: Mapping[str, int], now: Mapping[str, int], *, missing_counts: bool) -> list[str]:
    """Return each partition whose offset is lower now. `missing_counts`: or not there."""
    return [
        f"{partition} {offset} → {now.get(partition, 'none')}"
        for partition, offset in before.items()
        if now.get(partition, -1 if missing_counts else offset) < offset
    ]


def _lost_of_partitions(
    before: ClusterInventory, after: ClusterInventory, topics: Collection[str], unserved: Collection[str]
) -> dict[str, tuple[list[str], list[str]]]:
    """Return partition of __consumer_offsets → groups that lost all committed offsets of `topics`, and those that did
    not. They share the fate of its log; a member that joins again makes its group again, without offsets. Those of a
    share group are in another log.
    """
    found: dict[str, tuple[list[str], list[str]]] = {}
    partitions = len(before.topics.get(GROUPS_TOPIC, {}).get("replicas", ()))
    for name, group in before.groups.items() if partitions and GROUPS not in after.unasked else ():
        has_offsets = any(partition.rpartition("-")[0] in topics for partition in group["offsets"])
        if has_offsets and group["type"] not in unserved and not name.startswith(_TRAFFIC):
            partition = f"{GROUPS_TOPIC}-{coordinator_partition(name, partitions)}"
            now = after.groups.get(name)
            is_kept = now is not None and (group["type"] == SHARE or bool(now["offsets"]))
            found.setdefault(partition, ([], []))[is_kept].append(name)
    return found


def _unexplained_offsets(
    before: ClusterInventory, after: ClusterInventory, topics: Collection[str], unserved: Collection[str]
) -> Iterable[tuple[str, list[str]]]:
    """Yield each group that had members, with its missing offsets of `topics` that nothing explains.

    While a group has members, Kafka refuses to delete it (NON_EMPTY_GROUP), and neither expires nor deletes offsets of
    topics that they subscribe to (GROUP_SUBSCRIBED_TO_TOPIC). Those of other topics expire a time after their commit.
    Without members, offsets of a classic group expire a time after the last one left, those of a share group never,
    those of other types a time after their commit: old ones at once, which is a loss for the members that come back.
    So offsets of subscribed topics count; if none is left, or the subscription is unknown, those of all topics.

    Source: GroupMetadata.removeExpiredOffsets of 3.9; in 4.x OffsetMetadataManager.cleanupExpiredOffsets and
    deleteOffsets, with offsetExpirationCondition and validateDeleteGroup of each class of groups.
    """
    is_early = _before_expiry(before, after)
    for name, group in before.groups.items() if GROUPS not in after.unasked else ():
        is_share, now = group["type"] == SHARE, after.groups.get(name)
        if name.startswith(_TRAFFIC) or not group.get("has_members") or group["type"] in unserved:
            continue
        if (is_share and now is not None) or not (is_share or is_early):
            continue  # start offsets of share groups that are there are compared on their own
        left = now["offsets"] if now is not None else {}
        subscribed = group.get("subscribed") if left else None
        counting = topics if subscribed is None else {*topics} & {*subscribed}
        missing = [one for one in group["offsets"] if one not in left and one.rpartition("-")[0] in counting]
        if missing:
            yield name, missing


def _before_expiry(before: ClusterInventory, after: ClusterInventory, *, part: float = 1.0) -> bool:
    """Return whether no offset of a group that had members can have expired between the two readings. `part`: whether
    they are closer than this part of the retention: of idle groups, at most about this part expires then.
    """
    values = [one for each in (before, after) for one in each.effective.brokers.values(_OFFSETS_RETENTION)]
    minutes = min((int(one) for one in values if one is not None), default=None)
    return minutes is None or after.read_at - before.read_at < part * 60 * minutes


def _needs_no_group(group: Mapping[str, Any], unserved: Collection[str]) -> bool:
    """Return whether a group may be missing because its type is no longer served: nothing begins at its offsets.

    A type is served to members. Committed offsets are records of their own: 4.3.1 at group.version 0 returns them, and
    GroupMetadataManager of 3.9.1 loads them as those of a group without members. A share group is deleted instead.
    """
    return group["type"] in unserved and (group["type"] == SHARE or not group["offsets"])


def compare_states(
    before: ClusterInventory,
    after: ClusterInventory,
    expected: ExpectedConfigs,
    *,
    unserved: Collection[str] = (),
) -> tuple[Difference, ...]:
    """Return every difference of a cluster in service, additions included; those that count first.

    Clients work while a run changes the cluster. They create, delete and alter topics, and groups come and expire. Such
    differences are listed but do not count, because neither Kafka nor the run makes them. Everything else that the plan
    does not name counts. `unserved`: group types that the cluster no longer serves.
    """
    kept = _kept_topics(before, after)
    found = (
        *_unread_parts(before, after, unserved),
        *_unread_brokers(before, after),
        *_configs(before, after, expected),
        *_acls(before, after),
        *_values("group configuration", "group_configs", before, after, expected.dropped),
        *_values("client-metrics subscription", "subscriptions", before, after, expected.dropped),
        *_values("SCRAM user", "scram", before, after, {}),
        *_values("quota", "quotas", before, after, {}),
        *_ends(before, after, kept),
        *_starts(before, after),
        *_topics(before, after),
        *_groups(before, after, kept, unserved),
        *(_setting(one) for one in compare_effective(before.effective, after.effective, expected)),
    )
    return in_order(found)


def in_order(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Return first what counts; of that, what is lost before what is changed, and this before what was added."""
    ranks = {kind: rank for rank, kind in enumerate(_ORDER)}
    return tuple(
        sorted(differences, key=lambda one: (not one.fails, one.foretold, one.adds, ranks.get(one.kind, len(ranks))))
    )


def few_marked(things: Iterable[str], *, limit: int = 4) -> str:
    """Return the first items. A fingerprint of all stands for the others: an approval accepts exactly these."""
    texts = list(things)
    return few(texts, limit=limit) + (f" ({fingerprint(texts)})" if len(texts) > limit else "")


def fingerprint(texts: Iterable[str]) -> str:
    """Return what stands for texts that a sentence leaves out."""
    whole = "\n".join(texts).encode("utf-8", "surrogatepass")
    return f"fingerprint {hashlib.sha256(whole).hexdigest()[:16]}"


def new_settings(differences: Iterable[Difference]) -> tuple[str, ...]:
    """Return the settings that only the target release has, such as `group.streams.max.size = 2147483647`."""
    return tuple(one.subject for one in differences if one.kind == NEW_SETTING)


def digest(differences: Iterable[Difference]) -> str:
    """Return a hash of the differences that count; empty if there are none. An approval accepts exactly these."""
    lines = sorted(f"{one.kind}\t{one.subject}\t{one.sentence}" for one in differences if one.fails)
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest() if lines else ""


def _setting(found: ConfigDifference) -> Difference:
    one = len(found.resources) == 1
    noun = ("topic" if one else "topics") if found.of_topics else ("broker" if one else "brokers")
    where = f"{noun} {few_marked(found.resources, limit=_SHOWN_RESOURCES)}"
    if found.before is None:
        change = f"is new: {_shown(found.after)}"
    elif found.after is None:
        change = f"was {_shown(found.before)} and is now missing"
    else:
        change = f"was {_shown(found.before)} and is {_shown(found.after)}"
    expected = found.why not in (Why.UNKNOWN, Why.CLIENT)
    value = None if found.after is None else found.after.value
    is_new = found.why is Why.NEW
    return Difference(
        NEW_SETTING if is_new else "setting",
        f"{found.name} = {value}" if is_new else f"{found.name} of {where}",
        f"{found.name} of {where} {change}{f' ({found.why})' if found.why is not Why.UNKNOWN else ''}.",
        foretold=expected,
        by_clients=found.why is Why.CLIENT,
        adds=found.before is None,
    )


def _shown(setting: Setting | None) -> str:
    if setting is None:
        return "not set"
    value = "null" if setting.value is None else setting.value
    if len(value) > _SHOWN_CHARACTERS:
        value = f"{value[:_SHOWN_CHARACTERS]}… ({fingerprint([value])})"
    return f"{value or 'empty'} ({setting.source})"


def _unread_brokers(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    for broker in sorted(set(before.effective.brokers.deviations) - set(after.effective.brokers.deviations)):
        sentence = f"Broker {broker} does not report its configuration: it is fenced or not registered."
        yield Difference("unknown", f"broker {broker}", sentence)


def _configs(before: ClusterInventory, after: ClusterInventory, expected: ExpectedConfigs) -> Iterable[Difference]:
    """Compare the values in the metadata. Those of topics are effective values too, and only clients set them."""
    for resource in sorted({*before.configs, *after.configs}):
        if resource.startswith("topic "):
            continue
        where = "all brokers" if resource == "brokers" else resource
        old, new = before.configs.get(resource, {}), after.configs.get(resource, {})
        planned = {**dict.fromkeys(expected.dropped.get(resource, ())), **expected.dynamic.get(resource, {})}
        yield from _maps("dynamic setting", where, old, new, planned)


def _values(
    kind: str,
    part: str,
    before: ClusterInventory,
    after: ClusterInventory,
    dropped: Mapping[str, Collection[str]],
    *,
    added: bool = True,
) -> Iterable[Difference]:
    """Compare a part by subject and key. `added`: list additions too."""
    if part in after.unasked or (added and part in before.unasked):
        return  # a part that was not reported before has no base; one that is not reported now is a difference already
    old, new = getattr(before, part), getattr(after, part)
    for subject in sorted({*old, *new}) if added else old:
        resource = f"{_COMPARED_BY_KEY[part][1]}{subject}"
        planned = dict.fromkeys(dropped.get(resource, ()))
        where = subject if added else resource
        types = _types_of(subject, before, after) if part == "configs" else {}
        yield from _maps(kind, where, old.get(subject, {}), new.get(subject, {}), planned, types=types, added=added)


def _types_of(resource: str, *inventories: ClusterInventory) -> dict[str, ValueType]:
    """Return the types of the settings of a resource, as the releases of these inventories report them."""
    kind = resource.partition(" ")[0]
    tables = [one.effective.topics if kind == "topic" else one.effective.brokers for one in inventories]
    return {
        name: setting.type
        for table in tables
        for settings in (table.common, *table.deviations.values())
        for name, setting in settings.items()
        if setting is not None
    }


def _maps(
    kind: str,
    subject: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    planned: Mapping[str, Any],
    *,
    types: Mapping[str, ValueType] = MappingProxyType({}),
    added: bool = True,
) -> Iterable[Difference]:
    for name in sorted({*before, *after}) if added else before:
        old, new = before.get(name), after.get(name)
        of = types.get(name, ValueType.UNKNOWN)
        if same_value(old, new, of):
            continue
        was = f"was {old}" if name in before else "was not set"
        now = f"is {new}" if name in after else "is now missing"
        # A release reports a setting that it does not have as a secret.
        foretold = (name in planned and same_value(planned[name], new, of)) or (
            name in before and name in after and HIDDEN in (old, new)
        )
        sentence = f"{kind} {name} of {subject} {was} and {now}."
        where = f"{name} of {subject}" if added else f"{subject} {name}"
        sentence = sentence[:1].upper() + sentence[1:]
        yield Difference(kind, where, sentence, foretold=foretold, adds=name not in before)


def _acls(before: ClusterInventory, after: ClusterInventory, *, added: bool = True) -> Iterable[Difference]:
    if "acls" in after.unasked or (added and "acls" in before.unasked):
        return
    for acl in sorted(set(before.acls) - set(after.acls)):
        yield Difference("ACL", str(acl), f"ACL {acl} is missing.")
    for acl in sorted(set(after.acls) - set(before.acls)) if added else ():
        yield Difference("ACL", str(acl), f"ACL {acl} was added.", adds=True)


def _ends(
    before: ClusterInventory, after: ClusterInventory, topics: Collection[str] | None = None
) -> Iterable[Difference]:
    """Compare the ends of partitions. `topics`: those that count; None: all."""
    for partition, end in before.ends.items():
        now = after.ends.get(partition)
        if now is not None and now < end and (topics is None or partition.rpartition("-")[0] in topics):
            sentence = f"{partition} ended at offset {end} and now ends at {now}: records are lost."
            yield Difference("offset", partition, sentence)


def _starts(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    """List the log starts that moved above what retention keeps.

    Who consumes such a partition from its begin misses records, and brokers delete the remote segments below.
    """
    offsets = {name: group["offsets"] for name, group in after.groups.items()}
    starts = {name: start for name, start in after.starts.items() if not is_purged(name, start, offsets)}
    ids = {name: topic["id"] for name, topic in after.topics.items()}
    return _moved(before, starts, ids, after.read_at, lambda topic: _retention(after, topic))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStarts:
    """Log starts that are above the offsets that were asked for."""

    read_at: float
    """Epoch seconds."""
    starts: Mapping[str, int]
    """Log start offset of each of these partitions."""
    ids: Mapping[str, str]
    """Of their topics."""
    retention: Mapping[str, Retention | None]
    """Of their topics, now."""
    led: int
    """Partitions that the brokers lead."""
    asked: int
    """Those of them whose log starts were compared with the offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReading:
    """The log starts of the partitions of some brokers, as a gate has compared them with those of before the run."""

    started: int
    """Starts of nodes by the run, before the reading."""
    at: float
    seconds: float
    """It took."""
    brokers: tuple[int, ...]
    led: int
    """Partitions that these lead."""
    compared: int
    """Those of them whose log starts can be compared."""
    found: tuple[Difference, ...]
    shorter: tuple[Difference, ...]
    """The retention of the node of the gate, if its file or a default makes it keep less than before."""


def comparable_starts(before: ClusterInventory, now: float) -> dict[str, int]:
    """Return partition → offset above which nothing explains its log start. `now`: epoch seconds.

    Without the partitions from which a client of a known group removes records as it reads them.
    """
    return {
        name: kept.from_offset
        for name, kept in before.kept.items()
        if (kept.until is None or now < kept.until) and purging_groups(name, before.groups) == ()
    }


def unexplained_starts(before: ClusterInventory, now: LogStarts) -> tuple[Difference, ...]:
    """Return the log starts that neither retention nor a client's change of its settings explains. A value of a file,
    or a default of a release, is no change of a client. DeleteRecords is none of both: from outside it looks like a
    loss.
    """
    return tuple(
        one for one in _moved(before, now.starts, now.ids, now.read_at, now.retention.get) if not one.by_clients
    )


def shorter_retention(
    before: ClusterInventory, broker: int, settings: Mapping[str, Setting], expected: ExpectedConfigs
) -> tuple[Difference, ...]:
    """Return the retention of a broker that keeps less than before the run, unless the plan or a client changed it.

    `settings`: those of BROKER_NAMES that its process uses now. Topics without own settings have these values wherever
    it leads.
    """
    resource, brokers = str(broker), before.effective.brokers
    old = brokers.settings(resource) if resource in brokers.deviations else {}
    first, last = broker_retention(old), broker_retention(settings)
    if first is None or last is None:
        when = "before the run" if first is None else "now"
        sentence = f"The retention of broker {broker} {when} is unknown, so it is not compared."
        return (Difference("retention", resource, sentence),)
    if not last.keeps_less_than(first):
        return ()
    old_table, new_table = (
        ConfigTable.of_resources({resource: {name: of[name] for name in of.keys() & BROKER_NAMES}})
        for of in (old, settings)
    )
    changes = [
        one
        for one in compare_effective(EffectiveConfigs(brokers=old_table), EffectiveConfigs(brokers=new_table), expected)
        if one.why is Why.UNKNOWN and (one.after is None or one.after.source not in _DYNAMIC)
    ]
    if not changes:
        return ()
    sentence = f"Broker {broker} deletes records that it kept before the run: its retention was {first} and is {last}."
    return (Difference("retention", resource, sentence),)


def _moved(
    before: ClusterInventory,
    starts: Mapping[str, int],
    ids: Mapping[str, str],
    read_at: float,
    retention: Callable[[str], Retention | None],
) -> Iterable[Difference]:
    """`retention`: of a topic, now."""
    for partition, kept in before.kept.items():
        topic, start = partition.rpartition("-")[0], starts.get(partition)
        if start is None or start <= kept.from_offset or (kept.until is not None and read_at >= kept.until):
            continue
        if topic not in before.topics or ids.get(topic) != before.topics[topic]["id"]:
            continue
        first, last = _retention(before, topic), retention(topic)
        changed = "" if first == last else f", now {last or 'unknown'}"
        sentence = (
            f"{partition} began at offset {kept.start} and now begins at {start}. Its retention ({first}{changed}) "
            "does not explain that: records are lost, or a client deleted them (DeleteRecords)."
        )
        by_clients = (
            first is not None
            and last is not None
            and first.of_clients != last.of_clients
            # Records that were only in remote storage are deleted when a client disables it.
            and (last.keeps_less_than(first) or (first.tiered and not last.tiered))
        )
        yield Difference("log start", partition, sentence, by_clients=by_clients)


def _retention(inventory: ClusterInventory, topic: str) -> Retention | None:
    return retention_of(inventory.effective.topics.settings(topic))


def _kept_topics(before: ClusterInventory, after: ClusterInventory) -> frozenset[str]:
    """Return the topics that are the same before and after: not deleted, not recreated."""
    return frozenset(
        name
        for name, topic in before.topics.items()
        if name in after.topics and after.topics[name]["id"] == topic["id"]
    )


def _topics(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    created = [name for name in sorted(after.topics) if name not in before.topics and not name.startswith(_TRAFFIC)]
    if created:
        sentence = f"Topics were created: {few(created, limit=_SHOWN_RESOURCES)}."
        yield Difference("topic", few(created, limit=_SHOWN_RESOURCES), sentence, by_clients=True)
    own = [name for name in before.topics if name not in COORDINATOR_TOPICS and not name.startswith(_TRAFFIC)]
    gone = sorted({*own} - _kept_topics(before, after))
    if len(gone) > max(_FEW, len(own) - len(gone)):
        names = few_marked(gone, limit=_SHOWN_RESOURCES)
        sentence = (
            f"{len(gone)} of the {len(own)} topics were deleted, or deleted and created again: {names}. Kafka and the "
            "run delete no topics: clients did, or the metadata is lost."
        )
        yield Difference("topic", names, sentence)
    for name, topic in before.topics.items():
        now, by_clients = after.topics.get(name), True
        if name.startswith(_TRAFFIC) or now == topic:
            continue
        if now is None or now["id"] != topic["id"]:
            how = "deleted" if now is None else "deleted and created again: its topic id changed"
            sentence, by_clients = f"Topic {name} was {how}.", name not in COORDINATOR_TOPICS
        elif len(now["replicas"]) != len(topic["replicas"]):
            sentence = f"Topic {name} had {len(topic['replicas'])} partitions, now {len(now['replicas'])}."
            by_clients = len(now["replicas"]) > len(topic["replicas"])  # no client can remove partitions
        else:
            sentence = f"The replica assignment of topic {name} changed."
        yield Difference("topic", name, sentence, by_clients=by_clients)


def _groups(
    before: ClusterInventory, after: ClusterInventory, kept: Collection[str], unserved: Collection[str]
) -> Iterable[Difference]:
    """Compare offsets. Groups and single committed offsets expire, so missing ones do not count, unless the group's
    type is no longer served: the change itself can have lost them. Start offsets of a share group do not expire. Those
    that were in use count (`_unexplained_offsets`), and those of most groups of a partition, or of the cluster.
    """
    missing = [name for name in before.groups if name not in after.groups and not name.startswith(_TRAFFIC)]
    missing = [] if GROUPS in after.unasked else missing  # they are unknown, which is a difference already
    for group_id in missing:
        if (group := before.groups[group_id])["type"] in unserved:
            no_group = _needs_no_group(group, unserved)
            what = "is not served at these levels" if no_group else "is missing, with its committed offsets"
            yield Difference("group", group_id, f"The {group['type']} group {group_id} {what}.", foretold=no_group)
    gone = [name for name in missing if before.groups[name]["type"] not in unserved]
    lost = set[str]()
    of_partitions = _lost_of_partitions(before, after, kept, unserved)
    for partition, (bare, stayed) in of_partitions.items():
        if len(bare) > max(1, len(stayed)):
            lost |= {*bare}
            yield _bare_groups(partition, bare, stayed, "It was not loaded, or clients deleted them.")
    bare, stayed = ([name for pair in of_partitions.values() for name in pair[index]] for index in (0, 1))
    is_most = len(bare) > max(_FEW, len(stayed))
    if is_most and _before_expiry(before, after, part=0.5) and not lost.issuperset(bare):
        # In a small cluster each partition has one group or none.
        lost |= {*bare}
        yield _bare_groups(GROUPS_TOPIC, bare, stayed, "Its records are lost, or clients deleted them.")
    for group_id, missing in _unexplained_offsets(before, after, kept, unserved):
        if group_id not in lost:
            lost.add(group_id)
            group = before.groups[group_id]
            yield Difference("group", group_id, _unexplained(group_id, group, missing, after.groups.get(group_id)))
    if gone := [name for name in gone if name not in lost]:
        sentence = f"Groups were deleted or have expired: {few(gone, limit=_SHOWN_RESOURCES)}."
        yield Difference("group", few(gone, limit=_SHOWN_RESOURCES), sentence, by_clients=True)
    for group_id, group in before.groups.items():
        if group_id not in after.groups:
            continue
        is_share = group["type"] == SHARE
        missing_counts = not after.groups[group_id].get("unread") if is_share else group["type"] in unserved
        offsets = {name: offset for name, offset in group["offsets"].items() if name.rpartition("-")[0] in kept}
        if behind := _behind(offsets, after.groups[group_id]["offsets"], missing_counts=missing_counts):
            what = "Start" if is_share else "Committed"
            sentence = (
                f"{what} offsets of {'share ' * is_share}group {group_id} are lower than before: {few_marked(behind)}."
            )
            yield Difference("group", group_id, sentence)


def _bare_groups(where: str, bare: Collection[str], stayed: Collection[str], why: str) -> Difference:
    sentence = (
        f"{len(bare)} of the {len(bare) + len(stayed)} groups of {where} have none of their committed "
        f"offsets left: {few_marked(bare, limit=_SHOWN_RESOURCES)}. {why}"
    )
    return Difference("group", where, sentence)


def _unexplained(group_id: str, group: Mapping[str, Any], missing: Sequence[str], now: Mapping[str, Any] | None) -> str:
    subject = f"The {group['type']} group {group_id} had members, and"
    why = f"and {_OFFSETS_RETENTION} does not explain it: its members stopped and a client deleted"
    if now is None or not now["offsets"]:
        rule = "Kafka deletes no group with members"
        return f"{subject} has none of its offsets left. {rule}, {why} it, or its offsets are lost."
    what = f"{len(missing)} of its {len(group['offsets'])} offsets are missing: {few_marked(missing)}"
    return f"{subject} {what}. Kafka removes none of a topic that members subscribe to, {why} them, or they are lost."
