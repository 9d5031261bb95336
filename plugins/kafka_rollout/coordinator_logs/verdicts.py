"""Verdicts per release, from record kinds and broken records.

Each record is evaluated alone: type known, versions supported, bytes parse, content accepted. Problems that depend on
several records of a group come from unloadable_groups and groups_out_of_order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from kafka_rollout.base.wording import count, few
from kafka_rollout.coordinator_logs.scan import (
    BrokenRecords,
    Damage,
    DeletedWhilePending,
    Failure,
    LoadVerdict,
    OutOfOrder,
    ReleaseVerdict,
)
from kafka_rollout.formats.log_types import RecordKind
from kafka_rollout.releases.facts import Catalogue, CoordinatorLogFacts, RecordTypeFacts, Release, ReleaseFacts

GROUP_METADATA_KEY = 2
UNREADABLE_VALUE = -1  # RecordKind.value_version of a value that is too short to have a version


def evaluate_records(
    catalogue: Catalogue,
    classes: Iterable[RecordKind],
    releases: Sequence[Release],
    *,
    broken: Iterable[BrokenRecords] = (),
    partitions: Iterable[tuple[str, int]] = (),
    damage: Iterable[Damage] = (),
) -> tuple[ReleaseVerdict, ...]:
    """Return one verdict per release, topic and partition. `partitions`: all partitions, also those without records.

    The verdict of a release whose coordinator is a gap of the catalogue is unknown.
    `damage`: what could not be read. The verdict of such a partition is unknown, unless a record that was read fails.
    `ignored` counts all records of the partition that the release skips, also those after the first failure.
    """
    damaged = {(place.topic, place.partition) for place in damage}
    kinds: defaultdict[tuple[str, int], list[RecordKind]] = defaultdict(list)
    broken_kinds: defaultdict[tuple[str, int], list[BrokenRecords]] = defaultdict(list)
    for kind in classes:
        kinds[kind.topic, kind.partition].append(kind)
    for records in broken:
        broken_kinds[records.topic, records.partition].append(records)
    places = sorted({*partitions, *damaged, *kinds, *broken_kinds})
    return tuple(
        _evaluate_partition(catalogue.get(release), *place, kinds[place], broken_kinds[place], damaged=place in damaged)
        for release in releases
        for place in places
    )


def _evaluate_partition(
    release_facts: ReleaseFacts,
    topic: str,
    partition: int,
    classes: Sequence[RecordKind],
    broken: Sequence[BrokenRecords],
    *,
    damaged: bool,
) -> ReleaseVerdict:
    release, facts = release_facts.release, release_facts.coordinator_logs.get(topic)
    of_partition = partial(ReleaseVerdict, release=release, topic=topic, partition=partition)
    if release_facts.is_unknown_log(topic):
        return of_partition(verdict=LoadVerdict.UNKNOWN)
    if facts is None or not facts.loaded:
        return of_partition(verdict=LoadVerdict.NOT_LOADED)
    ignored = [c for c in classes if _is_ignored(facts, c)]
    # For one record, broken bytes come first: the release parses it before it rejects its content.
    reasons: list[tuple[RecordKind | BrokenRecords, str | None]] = [
        (b, _broken_reason(facts, b)) for b in broken if release in b.releases and not b.pending
    ]
    reasons += [(c, failure_reason(facts, c)) for c in classes]
    failures = [(found, reason) for found, reason in reasons if reason]
    # Deleted groups are checked after all records are read, so a record that stops the load always comes first.
    failures = failures or [(b, b.reason) for b in broken if release in b.releases and b.pending]
    losses = [(c, reason) for c in classes if (reason := loss_reason(facts, c)) is not None]
    first = min(failures or losses, key=lambda failure: failure[0].first_offset, default=None)
    if failures:
        verdict = LoadVerdict.FAILS
    elif losses:
        verdict = LoadVerdict.LOSES
    elif damaged:
        verdict = LoadVerdict.UNKNOWN
    else:
        verdict = LoadVerdict.LOADS_IGNORING if ignored else LoadVerdict.LOADS
    return of_partition(
        verdict=verdict,
        ignored=sum(c.count for c in ignored),
        first_failure=None if first is None else Failure(offset=first[0].first_offset, reason=first[1]),
        replicas=with_any([c.replicas for c in ignored] if first is None else [first[0].replicas]),
    )


def with_any(replicas: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the replicas that have one of several things, as RecordKind.replicas of each; empty if all have one."""
    return tuple(sorted({one for of in replicas for one in of})) if all(replicas) else ()


def _is_ignored(facts: CoordinatorLogFacts, record: RecordKind) -> bool:
    if record.key_version is None:
        return False
    record_type = facts.record(record.key_version)
    return facts.ignores_unknown_keys if record_type is None else _skips_value(facts, record_type, record.value_version)


def _skips_value(facts: CoordinatorLogFacts, record_type: RecordTypeFacts, value_version: int | None) -> bool:
    if not facts.ignores_unknown_values or value_version in (None, UNREADABLE_VALUE):
        return False
    return value_version not in record_type.reads


def loss_reason(facts: CoordinatorLogFacts, record: RecordKind) -> str | None:
    """Return why the release loses the state in records of this kind; None if it does not, or if it stops at them.

    A release that skips an unknown value version (TransactionLog.UnknownValueVersion of 4.3.1) does not know the
    transactional id, or has its older state. It neither fences the producer of the id nor ends its open transaction.
    Superseded records lose nothing.
    """
    record_type = None if record.key_version is None else facts.record(record.key_version)
    if record_type is None or record.live == 0 or not _skips_value(facts, record_type, record.value_version):
        return None
    return (
        f"value version {record.value_version} of {record_type.name} is skipped (it reads {record_type.reads}), so the "
        "state of the transactional id is lost: its old producer is not fenced, and its open transaction never ends"
    )


def failure_reason(facts: CoordinatorLogFacts, record: RecordKind) -> str | None:
    """Return why the release cannot load records of this kind; None if it can, or if it skips them.

    An intolerant release stops at an unknown key even if the value is a tombstone. Tolerance (KIP-915) applies to
    unknown keys only. An unknown version of a known value stops every release, except those whose facts state
    otherwise.
    """
    key_version, value_version = record.key_version, record.value_version
    if key_version is None:
        return "the key is null or too short to have a version"
    record_type = facts.record(key_version)
    if record_type is None:
        if facts.ignores_unknown_keys:
            return None
        return f"unknown key version {key_version}{_quoted(facts.unknown_key, key_version)}"
    if value_version is None:
        return _refusal(record_type, "tombstone", f"a null value of {record_type.name}")
    if value_version == UNREADABLE_VALUE:
        return f"a value of {record_type.name} that is too short to have a version"
    if value_version not in record_type.reads:
        if facts.ignores_unknown_values:
            return None
        words = _quoted(record_type.unknown_value, value_version)
        return f"unknown value version {value_version} of {record_type.name} (it reads {record_type.reads}){words}"
    return _refusal(record_type, "value", record_type.name)


def _refusal(record_type: RecordTypeFacts, kind: str, what: str) -> str | None:
    if kind not in record_type.refuses:
        return None
    return (
        f"{what} (key version {record_type.key_version}) is read and then rejected{_quoted(record_type.refuses[kind])}"
    )


def _broken_reason(facts: CoordinatorLogFacts, records: BrokenRecords) -> str | None:
    """Return the reason for broken records. Bytes after an unknown key or value version are never parsed."""
    if records.part in ("end", "order"):
        return records.reason
    record_type = facts.record(records.key_version)
    if record_type is None:
        return None
    is_parsed = records.part == "key" or (
        records.value_version is not None and records.value_version in record_type.reads
    )
    return f"broken {records.part}: {records.reason}" if is_parsed else None


def unknown_ends(
    catalogue: Catalogue, classes: Iterable[tuple[RecordKind, int]], releases: Sequence[Release]
) -> tuple[BrokenRecords, ...]:
    """Return unknown keys at the ends of logs, for the releases that stall there.

    `classes`: record kind and the offset of the last batch with such a record. If records of a kind also occur before
    the end, the first of them at the end is unknown, and the last batch is reported instead. Source:
    CoordinatorLogFacts.stalls_at_unknown_end.
    """
    by_log: defaultdict[tuple[str, int], list[tuple[RecordKind, int]]] = defaultdict(list)
    for kind, last_batch in classes:
        by_log[kind.topic, kind.partition].append((kind, last_batch))
    stalled: dict[tuple[RecordKind, int], list[Release]] = {}
    for (topic, _), kinds in sorted(by_log.items()):
        for release in releases:
            facts = catalogue.get(release).coordinator_logs.get(topic)
            if facts is None or not facts.stalls_at_unknown_end:
                continue
            known_until = max((last for c, last in kinds if not _is_unknown(facts, c)), default=-1)
            behind = {
                c: c.first_offset if c.first_offset > known_until else last
                for c, last in kinds
                if _is_unknown(facts, c) and last > known_until
            }
            if behind:
                first = min(behind, key=behind.__getitem__)
                stalled.setdefault((first, behind[first]), []).append(release)
    return tuple(
        BrokenRecords(
            topic=first.topic,
            partition=first.partition,
            key_version=first.key_version or 0,
            value_version=first.value_version,
            part="end",
            releases=tuple(of),
            count=first.count,
            first_offset=offset,
            reason=(
                f"no known key follows key version {first.key_version}, so the coordinator reads the last "
                "batches in an endless loop"
            ),
            replicas=first.replicas,
        )
        for (first, offset), of in stalled.items()
    )


def unloadable_groups(
    catalogue: Catalogue, groups: Iterable[DeletedWhilePending], releases: Sequence[Release]
) -> tuple[BrokenRecords, ...]:
    """Return deleted groups with open transactions, one entry per partition, for the releases that fail on them."""
    by_log: dict[tuple[str, int], list[DeletedWhilePending]] = {}
    for group in sorted(groups):
        by_log.setdefault((group.topic, group.partition), []).append(group)
    broken = []
    for (topic, partition), deleted in by_log.items():
        failing: dict[str, list[Release]] = {}
        for release in releases:
            facts = catalogue.get(release).coordinator_logs.get(topic)
            if facts is not None and facts.deleted_while_pending:
                failing.setdefault(facts.deleted_while_pending, []).append(release)
        first = deleted[0]
        more = f" (and {count(len(deleted) - 1, 'group')} more)" if deleted[1:] else ""
        for complaint, of in failing.items():
            words = complaint.replace("{group}", first.group).replace("{partition}", f"{topic}-{partition}")
            broken.append(
                BrokenRecords(
                    topic=topic,
                    partition=partition,
                    key_version=GROUP_METADATA_KEY,
                    value_version=None,
                    part="pending",
                    releases=tuple(of),
                    count=len(deleted),
                    first_offset=first.offset,
                    reason=(
                        f"group {first.group}{more} was deleted, and its only offsets belong to open "
                        f"transactions of {producers_in_words(first.producers)}{_quoted(words)}"
                    ),
                    replicas=first.replicas,
                )
            )
    return tuple(broken)


def groups_out_of_order(groups: Iterable[OutOfOrder]) -> tuple[BrokenRecords, ...]:
    """Return one entry per partition and set of releases that stop, at the first such group."""
    together: dict[tuple[str, int, tuple[Release, ...]], list[OutOfOrder]] = {}
    for group in sorted(groups):
        together.setdefault((group.topic, group.partition, group.releases), []).append(group)
    broken = []
    for records in together.values():
        first, more = records[0], f" (and {count(len(records) - 1, 'group')} more)" if records[1:] else ""
        what = "tombstone" if first.value_version is None else "record"
        broken.append(
            BrokenRecords(
                topic=first.topic,
                partition=first.partition,
                key_version=first.key_version,
                value_version=first.value_version,
                part="order",
                releases=first.releases,
                count=len(records),
                first_offset=first.offset,
                reason=(
                    f"a {what} of key version {first.key_version} of group {first.group}{more} contradicts an "
                    f"earlier record{_quoted(first.complaint)}"
                ),
                replicas=first.replicas,
            )
        )
    return tuple(broken)


def producers_in_words(producers: Sequence[int]) -> str:
    return f"producer {few(producers)}"


def _is_unknown(facts: CoordinatorLogFacts, record: RecordKind) -> bool:
    return record.key_version is not None and facts.record(record.key_version) is None


def _quoted(words: str, version: int | None = None) -> str:
    """Quote the log message of the release, so that an operator can search for it."""
    return f': "{words.replace("{version}", str(version))}"' if words else ""
