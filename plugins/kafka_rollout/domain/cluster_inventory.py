"""What is in a cluster, for a comparison before and after a downgrade: what a person would miss if it were gone.

Whatever came since is no difference, and neither is what moves by itself: offsets grow, and retention raises the start
of a partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kafka_rollout.domain.wording import few

_SERVED_FROM = {"consumer": "group.version", "share": "share.version", "streams": "streams.version"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInventory:
    """`topics`: id and replicas by partition; `ends`: end offset of each partition (`orders-0`); `groups`: type and
    committed offsets; `configs`: what was set dynamically, by resource (`topic orders`, `broker 1`, `brokers`), a
    secret as HIDDEN; `scram`: iterations by user and mechanism; `quotas` by entity. `unasked`: why a part is empty.
    """

    topics: Mapping[str, Mapping[str, Any]]
    ends: Mapping[str, int]
    groups: Mapping[str, Mapping[str, Any]]
    configs: Mapping[str, Mapping[str, str]]
    acls: tuple[str, ...]
    scram: Mapping[str, Mapping[str, Any]]
    quotas: Mapping[str, Mapping[str, float]]
    unasked: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ClusterInventory:
        return cls(**{**data, "acls": tuple(data["acls"])})

    @property
    def counts(self) -> dict[str, int]:
        return {
            "topics": len(self.topics),
            "partitions": len(self.ends),
            "groups": len(self.groups),
            "configurations": sum(map(len, self.configs.values())),
            "ACLs": len(self.acls),
            "SCRAM users": len(self.scram),
            "quotas": len(self.quotas),
        }


HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`foretold`: the plan said so, for groups that the older release does not serve."""

    kind: str
    subject: str
    sentence: str
    foretold: bool = False


def compare_inventories(
    before: ClusterInventory, after: ClusterInventory, *, unserved: Collection[str] = ()
) -> tuple[Difference, ...]:
    """What is gone, less or other than before. `unserved`: types of groups that are not served any more."""
    return (
        *_unasked(before, after),
        *_topics(before, after),
        *_ends(before, after),
        *_groups(before, after, unserved),
        *_maps("configuration", before.configs, after.configs),
        *(
            Difference(kind="ACL", subject=acl, sentence=f"The ACL {acl} is gone.")
            for acl in before.acls
            if acl not in set(after.acls) and "acls" not in after.unasked
        ),
        *(() if "scram" in after.unasked else _maps("SCRAM user", before.scram, after.scram)),
        *(() if "quotas" in after.unasked else _maps("quota", before.quotas, after.quotas)),
    )


def unserved_types(levels: Mapping[str, int]) -> frozenset[str]:
    """Types of groups that brokers at these finalized levels do not serve."""
    return frozenset(kind for kind, feature in _SERVED_FROM.items() if levels.get(feature, 0) < 1)


def _unasked(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    for part, why in after.unasked.items():
        if getattr(before, part):
            yield Difference(
                kind="unknown", subject=part, sentence=f"Nobody can tell whether the {part} are all there: {why}"
            )


def _topics(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    for name, topic in before.topics.items():
        now = after.topics.get(name)
        if now is None:
            yield Difference(kind="topic", subject=name, sentence=f"The topic {name} is gone.")
        elif now["id"] != topic["id"]:
            yield Difference(kind="topic", subject=name, sentence=f"The topic {name} is another one of that name.")
        elif len(now["replicas"]) < len(topic["replicas"]):
            lost = f"{len(topic['replicas'])} partitions, now {len(now['replicas'])}"
            yield Difference(kind="topic", subject=name, sentence=f"The topic {name} had {lost}.")
        elif any(a != b for a, b in zip(topic["replicas"], now["replicas"], strict=False)):
            yield Difference(kind="topic", subject=name, sentence=f"The replicas of topic {name} lie elsewhere.")


def _ends(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    for partition, end in before.ends.items():
        now = after.ends.get(partition)
        if now is not None and now < end:
            sentence = f"{partition} ended at offset {end}, now at {now}: records are lost."
            yield Difference(kind="offset", subject=partition, sentence=sentence)


def _groups(before: ClusterInventory, after: ClusterInventory, unserved: Collection[str]) -> Iterable[Difference]:
    for group_id, group in before.groups.items():
        now = after.groups.get(group_id)
        foretold = group["type"] in unserved
        if now is None:
            sentence = f"The {group['type']} group {group_id} is gone."
            yield Difference(kind="group", subject=group_id, sentence=sentence, foretold=foretold)
            continue
        behind = [
            f"{partition} {offset} → {now['offsets'].get(partition, 'none')}"
            for partition, offset in group["offsets"].items()
            if now["offsets"].get(partition, -1) < offset
        ]
        if behind:
            sentence = f"The group {group_id} lost committed offsets: {few(behind)}."
            yield Difference(kind="group", subject=group_id, sentence=sentence, foretold=foretold)


def _maps(
    kind: str, before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> Iterable[Difference]:
    for subject, values in before.items():
        now = after.get(subject, {})
        for key, value in values.items():
            if now.get(key) != value:
                what = f"is {now[key]}" if key in now else "is gone"
                sentence = f"{kind} {key} of {subject} was {value} and {what}."
                yield Difference(kind=kind, subject=f"{subject} {key}", sentence=sentence[:1].upper() + sentence[1:])
