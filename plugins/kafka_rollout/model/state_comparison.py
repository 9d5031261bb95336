"""Comparison of a cluster in service before and after a run: configuration, contents and ACLs, additions included.

Clients work while a run changes the cluster. They create, delete and alter topics, and groups come and expire. Such
differences are listed but do not count, because neither Kafka nor the run makes them. Everything else that the plan
does not name counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS
from kafka_rollout.base.wording import few
from kafka_rollout.model.contents import ClusterInventory, Difference, unread_parts
from kafka_rollout.model.effective_configs import (
    HIDDEN,
    ConfigDifference,
    ExpectedConfigs,
    Setting,
    Why,
    compare_effective,
    without_repeats,
)

NEW_SETTING = "new setting"
_SHOWN_RESOURCES = 20
_SHOWN_CHARACTERS = 200
_TRAFFIC = "kafka-rollout-"  # topics and groups of the run's own test traffic


def compare_states(
    before: ClusterInventory, after: ClusterInventory, expected: ExpectedConfigs
) -> tuple[Difference, ...]:
    """Return every difference; those that count first."""
    found = (
        *unread_parts(before, after),
        *_unread_brokers(before, after),
        *_configs(before, after, expected),
        *_acls(before, after),
        *_values("group configuration", "group_configs", before, after),
        *_values("client-metrics subscription", "subscriptions", before, after),
        *_values("SCRAM user", "scram", before, after),
        *_values("quota", "quotas", before, after),
        *_ends(before, after),
        *_topics(before, after),
        *_groups(before, after),
        *(_setting(one) for one in compare_effective(before.effective, after.effective, expected)),
    )
    return tuple(sorted(found, key=lambda one: (not one.fails, one.foretold)))


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
    where = f"{noun} {few(found.resources, limit=_SHOWN_RESOURCES)}"
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
    )


def _shown(setting: Setting | None) -> str:
    if setting is None:
        return "not set"
    value = "null" if setting.value is None else setting.value[:_SHOWN_CHARACTERS]
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
        yield from _maps("dynamic setting", where, old, new, expected.dynamic.get(resource, {}))


def _values(kind: str, part: str, before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    if part in before.unasked or part in after.unasked:
        return  # a part that was not reported before has no base; one that is not reported now is a difference already
    old, new = getattr(before, part), getattr(after, part)
    for subject in sorted({*old, *new}):
        yield from _maps(kind, subject, old.get(subject, {}), new.get(subject, {}), {})


def _maps(
    kind: str, subject: str, before: Mapping[str, Any], after: Mapping[str, Any], planned: Mapping[str, Any]
) -> Iterable[Difference]:
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if without_repeats(old) == without_repeats(new):
            continue
        was = f"was {old}" if name in before else "was not set"
        now = f"is {new}" if name in after else "is now missing"
        # A release reports a setting that it does not have as a secret.
        foretold = (name in planned and planned[name] == new) or (
            name in before and name in after and HIDDEN in (old, new)
        )
        sentence = f"{kind} {name} of {subject} {was} and {now}."
        yield Difference(kind, f"{name} of {subject}", sentence[:1].upper() + sentence[1:], foretold=foretold)


def _acls(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    if "acls" in before.unasked or "acls" in after.unasked:
        return
    for acl in sorted(set(before.acls) - set(after.acls)):
        yield Difference("ACL", acl, f"ACL {acl} is missing.")
    for acl in sorted(set(after.acls) - set(before.acls)):
        yield Difference("ACL", acl, f"ACL {acl} was added.")


def _ends(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    kept = _kept_topics(before, after)
    for partition, end in before.ends.items():
        now = after.ends.get(partition)
        if now is not None and now < end and partition.rpartition("-")[0] in kept:
            sentence = f"{partition} ended at offset {end} and now ends at {now}: records are lost."
            yield Difference("offset", partition, sentence)


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


def _groups(before: ClusterInventory, after: ClusterInventory) -> Iterable[Difference]:
    """Compare committed offsets. Groups and single offsets expire, so missing ones do not count."""
    kept = _kept_topics(before, after)
    gone = [name for name in before.groups if name not in after.groups and not name.startswith(_TRAFFIC)]
    if gone:
        sentence = f"Groups were deleted or have expired: {few(gone, limit=_SHOWN_RESOURCES)}."
        yield Difference("group", few(gone, limit=_SHOWN_RESOURCES), sentence, by_clients=True)
    for group_id, group in before.groups.items():
        now = after.groups.get(group_id, {"offsets": {}})["offsets"]
        behind = [
            f"{partition} {offset} → {now[partition]}"
            for partition, offset in group["offsets"].items()
            if partition in now and now[partition] < offset and partition.rpartition("-")[0] in kept
        ]
        if behind:
            sentence = f"Committed offsets of group {group_id} are lower than before: {few(behind)}."
            yield Difference("group", group_id, sentence)
