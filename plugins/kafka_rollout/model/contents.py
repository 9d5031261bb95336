"""The contents of a cluster, and their comparison before and after a downgrade.

Only missing, smaller or changed contents count as differences. New contents do not. Values that change by themselves do
not either: offsets grow, and retention raises the start offset of a partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_rollout.base.wording import few
from kafka_rollout.model.effective_configs import HIDDEN, EffectiveConfigs

# Kafka serves groups of a type only while its feature is at 1 or higher (KafkaApis of 4.3.1).
SERVED_BY = {"group.version": "consumer", "share.version": "share", "streams.version": "streams"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInventory:
    """The contents of a cluster at one time.

    `topics`: id and replicas by partition. `ends`: end offset of each partition (`orders-0`). `groups`: type and
    committed offsets. `configs`: dynamic settings by resource (`topic orders`, `broker 1`, `brokers`), a secret as
    HIDDEN. `group_configs` and `subscriptions` (client metrics, KIP-714): the same by group and by subscription.
    `scram`: iterations by user and mechanism. `quotas`: by entity. `unasked`: field → reason why it could not be read.
    `effective`: all settings of brokers and topics, defaults included; empty in records of earlier versions.
    """

    topics: Mapping[str, Mapping[str, Any]]
    ends: Mapping[str, int]
    groups: Mapping[str, Mapping[str, Any]]
    configs: Mapping[str, Mapping[str, str]]
    acls: tuple[str, ...]
    scram: Mapping[str, Mapping[str, Any]]
    quotas: Mapping[str, Mapping[str, float]]
    unasked: Mapping[str, str]
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    subscriptions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    effective: EffectiveConfigs = field(default_factory=EffectiveConfigs)

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


PARTS = {
    "acls": "ACLs",
    "scram": "SCRAM users",
    "quotas": "quotas",
    "group_configs": "group configurations",
    "subscriptions": "client-metrics subscriptions",
}
"""Fields that a cluster may not be able to report, and their names in sentences."""
SETTINGS = {"group_configs": "GROUP", "subscriptions": "CLIENT_METRICS"}
"""Fields with settings that older releases do not support → Kafka's name of the resource type.

The plan has already reported a release that does not support them.
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two inventories.

    `foretold`: the difference is expected: the plan or the catalogue names it, or the older release does not serve such
    groups or has no such setting. `by_clients`: only clients make such a change, Kafka and the run do not.
    `accepted`: an approver has accepted it in this run.
    """

    kind: str
    subject: str
    sentence: str
    foretold: bool = False
    by_clients: bool = False
    accepted: bool = False

    @property
    def fails(self) -> bool:
        """Whether a run needs an approver to go on."""
        return not (self.foretold or self.by_clients or self.accepted)


_COMPARED_BY_KEY = {
    "configs": ("configuration", ""),
    "group_configs": ("configuration", "group "),
    "subscriptions": ("configuration", "client-metrics subscription "),
    "scram": ("SCRAM user", ""),
    "quotas": ("quota", ""),
}


def compare_inventories(
    before: ClusterInventory, after: ClusterInventory, *, unserved: Collection[str] = ()
) -> tuple[Difference, ...]:
    """List what is missing, smaller or changed. `unserved`: group types that the cluster no longer serves."""
    return (
        *unread_parts(before, after),
        *_topics(before, after),
        *_ends(before, after),
        *_groups(before, after, unserved),
        *(
            Difference("ACL", acl, f"ACL {acl} is missing.")
            for acl in before.acls
            if acl not in set(after.acls) and "acls" not in after.unasked
        ),
        *(
            difference
            for part, (kind, of) in _COMPARED_BY_KEY.items()
            if part not in after.unasked
            for difference in _maps(kind, of, getattr(before, part), getattr(after, part))
        ),
    )


def find_unserved_types(levels: Mapping[str, int]) -> frozenset[str]:
    """Return the group types that brokers do not serve at these finalized levels."""
    return frozenset(kind for feature, kind in SERVED_BY.items() if levels.get(feature, 0) < 1)


def unread_parts(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    """List the parts that the cluster reported before and does not report now."""
    for part, why in after.unasked.items():
        if not getattr(before, part):
            continue
        name, unused = PARTS.get(part, part), part in SETTINGS
        sentence = f"There were {name} before; they are not in use now" if unused else f"Not all {name} could be read"
        yield Difference("unknown", name, f"{sentence}: {why}", foretold=unused)


def _topics(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
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


def _ends(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    for partition, end in before.ends.items():
        now = after.ends.get(partition)
        if now is not None and now < end:
            sentence = f"{partition} ended at offset {end} and now ends at {now}: records are lost."
            yield Difference("offset", partition, sentence)


def _groups(before: ClusterInventory, after: ClusterInventory, unserved: Collection[str]) -> Iterable[Difference]:
    for group_id, group in before.groups.items():
        now = after.groups.get(group_id)
        foretold = group["type"] in unserved
        if now is None:
            sentence = f"The {group['type']} group {group_id} is missing."
            yield Difference("group", group_id, sentence, foretold=foretold)
            continue
        behind = [
            f"{partition} {offset} → {now['offsets'].get(partition, 'none')}"
            for partition, offset in group["offsets"].items()
            if now["offsets"].get(partition, -1) < offset
        ]
        if behind:
            sentence = f"Group {group_id} lost committed offsets: {few(behind)}."
            yield Difference("group", group_id, sentence, foretold=foretold)


def _maps(
    kind: str, of: str, before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> Iterable[Difference]:
    for subject, values in before.items():
        now = after.get(subject, {})
        for key, value in values.items():
            if _unrepeated(now.get(key)) != _unrepeated(value):
                what = f"is {now[key]}" if key in now else "is now missing"
                sentence = f"{kind} {key} of {of}{subject} was {value} and {what}."
                # A release reports a setting that it does not have as a secret.
                unknown = key in now and HIDDEN in (value, now[key])
                yield Difference(kind, f"{of}{subject} {key}", sentence[:1].upper() + sentence[1:], foretold=unknown)


def _unrepeated(value: Any) -> Any:
    """Return a value without the repeated entries of a list: releases from 4.1 on remove them when they read it."""
    return list(dict.fromkeys(value.split(","))) if isinstance(value, str) else value
