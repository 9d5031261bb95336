"""Groups with a record that a release refuses because of earlier records of the log (wire.group_replay)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from kafka_rollout.adapters.codecs import CODECS
from kafka_rollout.adapters.coordinator_logs.deleted_groups import Bounded
from kafka_rollout.domain.coordinator_logs.scan import OFFSETS_TOPIC, OutOfOrder
from kafka_rollout.domain.model.releases import Catalogue, CoordinatorLogFacts, GroupFamilyFacts, Release
from kafka_rollout.wire.coordinator_records import VERSION_BYTES
from kafka_rollout.wire.group_replay import GroupReplay, group_records

Facts = Mapping[Release, CoordinatorLogFacts]


def facts_of_order(catalogue: Catalogue, releases: Iterable[Release]) -> Facts:
    """Return the facts of the releases that check the order of groups' records."""
    logs = {release: catalogue.get(release).coordinator_logs.get(OFFSETS_TOPIC) for release in releases}
    return {release: log for release, log in logs.items() if log is not None and log.group_families}


def ordered_types(facts: Facts) -> frozenset[int]:
    """Return the key versions of the records that these releases compare with earlier records."""
    return _types(facts, lambda family: True)


def strict_types(facts: Facts) -> frozenset[int]:
    """Return the key versions that can be in an order at which a release stops, because of the log cleaner.

    For other types this cannot happen: no coordinator writes them in such an order.
    """
    return _types(facts, lambda family: not family.takes_over_offsets)


def _types(facts: Facts, wanted: Callable[[GroupFamilyFacts], bool]) -> frozenset[int]:
    return frozenset(
        key_version for log in facts.values() for key_version, (family, _) in log.group_roles.items() if wanted(family)
    )


def out_of_order(
    partition: int, groups: Collection[bytes], log: Iterable[Bounded], facts: Facts
) -> tuple[OutOfOrder, ...]:
    """Return the groups with such a record. `log`: the partition of __consumer_offsets from its start."""
    replays = {release: GroupReplay(rules) for release, rules in facts.items()}
    for data, start, end in log:
        for record in group_records(data, CODECS, groups=groups, start=start, end=end):
            for replay in replays.values():
                replay.add(record)
    refusing: dict[OutOfOrder, list[Release]] = {}
    for release, replay in replays.items():
        for group, refused in replay.refused.items():
            value = refused.record.value
            found = OutOfOrder(
                topic=OFFSETS_TOPIC,
                partition=partition,
                offset=refused.record.offset,
                group=group.decode("utf-8", "replace"),
                key_version=refused.record.key_version,
                value_version=None if value is None else int.from_bytes(value[:VERSION_BYTES], "big", signed=True),
                releases=(),
                complaint=refused.complaint,
            )
            refusing.setdefault(found, []).append(release)
    return tuple(sorted(replace(found, releases=tuple(sorted(releases))) for found, releases in refusing.items()))
