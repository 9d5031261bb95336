"""What the coordinator of each release would do with a log: record classes and broken records in, verdicts out.

Judged is what a release does with each record by itself: knows its type, reads its versions, parses its bytes, and
takes such a record at all. Beside it: what records of a group say together (unloadable_groups, groups_out_of_order).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_rollout.domain.coordinator_logs.scan import (
    BrokenRecords,
    DeletedWhilePending,
    Failure,
    LoadVerdict,
    OutOfOrder,
    RecordKind,
    ReleaseVerdict,
)
from kafka_rollout.domain.model.releases import Catalogue, CoordinatorLogFacts, RecordTypeFacts, Release, ReleaseFacts
from kafka_rollout.domain.model.wording import count, few

GROUP_METADATA_KEY = 2
UNREADABLE_VALUE = -1  # RecordClass.value_version of a value too short to hold one


def judge(
    catalogue: Catalogue,
    classes: Iterable[RecordKind],
    releases: Sequence[Release],
    *,
    broken: Iterable[BrokenRecords] = (),
    partitions: Iterable[tuple[str, int]] = (),
) -> tuple[ReleaseVerdict, ...]:
    """One verdict a release, topic and partition; `partitions` names those that may hold no record at all.

    `ignored` counts all records of the partition that the release skips, those behind the first failure included.
    """
    held: dict[tuple[str, int], tuple[list[RecordKind], list[BrokenRecords]]] = {
        key: ([], []) for key in sorted(set(partitions))
    }
    for record_class in classes:
        held.setdefault((record_class.topic, record_class.partition), ([], []))[0].append(record_class)
    for records in broken:
        held.setdefault((records.topic, records.partition), ([], []))[1].append(records)
    return tuple(
        _judge_partition(catalogue.get(release), topic, partition, *found)
        for release in releases
        for (topic, partition), found in sorted(held.items())
    )


def _judge_partition(
    release_facts: ReleaseFacts,
    topic: str,
    partition: int,
    classes: Sequence[RecordKind],
    broken: Sequence[BrokenRecords],
) -> ReleaseVerdict:
    release, facts = release_facts.release, release_facts.coordinator_logs.get(topic)
    if facts is None or not facts.loaded:
        return ReleaseVerdict(release=release, topic=topic, partition=partition, verdict=LoadVerdict.NOT_LOADED)
    ignored = sum(c.count for c in classes if _is_ignored(facts, c))
    # Of one record the broken bytes come first: it is read before it is refused.
    reasons = [(b.first_offset, _broken_reason(facts, b)) for b in broken if release in b.releases and not b.pending]
    reasons += [(c.first_offset, failure_reason(facts, c)) for c in classes]
    failures = [Failure(offset=offset, reason=reason) for offset, reason in reasons if reason]
    # Deleted groups are looked for when all records are read: one that stops the load comes before them anywhere.
    failures = failures or [b.failure for b in broken if release in b.releases and b.pending]
    first = min(failures, key=lambda failure: failure.offset, default=None)
    loadable = LoadVerdict.LOADS_IGNORING if ignored else LoadVerdict.LOADS
    verdict = loadable if first is None else LoadVerdict.FAILS
    return ReleaseVerdict(
        release=release, topic=topic, partition=partition, verdict=verdict, ignored=ignored, first_failure=first
    )


def _is_ignored(facts: CoordinatorLogFacts, record: RecordKind) -> bool:
    if record.key_version is None:
        return False
    known = facts.record(record.key_version)
    return facts.ignores_unknown_keys if known is None else _skips_value(facts, known, record.value_version)


def _skips_value(facts: CoordinatorLogFacts, known: RecordTypeFacts, value_version: int | None) -> bool:
    if not facts.ignores_unknown_values or value_version in (None, UNREADABLE_VALUE):
        return False
    return value_version not in known.reads


def failure_reason(facts: CoordinatorLogFacts, record: RecordKind) -> str | None:
    """Why the release cannot load records of this class; None when it can, or skips them.

    An intolerant release stops at an unknown key even when the value is a tombstone. Tolerance (KIP-915) is for
    unknown keys only: an unknown version of a known value stops every release but those whose facts say otherwise.
    """
    key_version, value_version = record.key_version, record.value_version
    if key_version is None:
        return "the key is null or too short to hold a version"
    known = facts.record(key_version)
    if known is None:
        if facts.ignores_unknown_keys:
            return None
        return f"unknown key version {key_version}{_quoted(facts.unknown_key, key_version)}"
    if value_version is None:
        return _refusal(known, "tombstone", f"a null value of {known.name}")
    if value_version == UNREADABLE_VALUE:
        return f"a value of {known.name} that is too short to hold a version"
    if value_version not in known.reads:
        if facts.ignores_unknown_values:
            return None
        words = _quoted(known.unknown_value, value_version)
        return f"unknown value version {value_version} of {known.name} (it reads {known.reads}){words}"
    return _refusal(known, "value", known.name)


def _refusal(known: RecordTypeFacts, kind: str, what: str) -> str | None:
    if kind not in known.refuses:
        return None
    return f"{what} (key version {known.key_version}) is read and then refused{_quoted(known.refuses[kind])}"


def _broken_reason(facts: CoordinatorLogFacts, records: BrokenRecords) -> str | None:
    """Bytes behind a key or value version that the release does not know are never parsed, so they do not stop it."""
    if records.part in ("end", "order"):
        return records.reason
    known = facts.record(records.key_version)
    if known is None:
        return None
    is_parsed = records.part == "key" or (records.value_version is not None and records.value_version in known.reads)
    return f"broken {records.part}: {records.reason}" if is_parsed else None


def unknown_ends(
    catalogue: Catalogue, classes: Iterable[tuple[RecordKind, int]], releases: Sequence[Release]
) -> tuple[BrokenRecords, ...]:
    """Unknown keys at the ends of logs, for the releases that stall there (CoordinatorLogFacts.stalls_at_unknown_end).

    With each class: where the last batch with such a record begins. If a class lies before the end of the log, too,
    the first of its records at the end is not known, and the last batch stands for it.
    """
    by_log: dict[tuple[str, int], list[tuple[RecordKind, int]]] = {}
    for record_class, last_batch in classes:
        by_log.setdefault((record_class.topic, record_class.partition), []).append((record_class, last_batch))
    stalled: dict[tuple[RecordKind, int], list[Release]] = {}
    for (topic, _), held in sorted(by_log.items()):
        for release in releases:
            facts = catalogue.get(release).coordinator_logs.get(topic)
            if facts is None or not facts.stalls_at_unknown_end:
                continue
            known_until = max((last for c, last in held if not _is_unknown(facts, c)), default=-1)
            behind = {
                c: c.first_offset if c.first_offset > known_until else last
                for c, last in held
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
            reason=f"no key that it knows follows key version {first.key_version}: it reads on there for ever",
        )
        for (first, offset), of in stalled.items()
    )


def unloadable_groups(
    catalogue: Catalogue, groups: Iterable[DeletedWhilePending], releases: Sequence[Release]
) -> tuple[BrokenRecords, ...]:
    """Deleted groups with open transactions, for the releases that fail at them, one a partition."""
    by_log: dict[tuple[str, int], list[DeletedWhilePending]] = {}
    for group in sorted(groups):
        by_log.setdefault((group.topic, group.partition), []).append(group)
    found = []
    for (topic, partition), held in by_log.items():
        failing: dict[str, list[Release]] = {}
        for release in releases:
            facts = catalogue.get(release).coordinator_logs.get(topic)
            if facts is not None and facts.deleted_while_pending:
                failing.setdefault(facts.deleted_while_pending, []).append(release)
        first = held[0]
        more = f" (and {count(len(held) - 1, 'group')} more)" if held[1:] else ""
        for complaint, of in failing.items():
            words = complaint.replace("{group}", first.group).replace("{partition}", f"{topic}-{partition}")
            found.append(
                BrokenRecords(
                    topic=topic,
                    partition=partition,
                    key_version=GROUP_METADATA_KEY,
                    value_version=None,
                    part="pending",
                    releases=tuple(of),
                    count=len(held),
                    first_offset=first.offset,
                    reason=f"group {first.group}{more} was deleted, and its only offsets are of transactions that have "
                    f"no end, of {producers_in_words(first.producers)}{_quoted(words)}",
                )
            )
    return tuple(found)


def groups_out_of_order(groups: Iterable[OutOfOrder]) -> tuple[BrokenRecords, ...]:
    """One for the groups of a partition that stop the same releases, at the first of them."""
    together: dict[tuple[str, int, tuple[Release, ...]], list[OutOfOrder]] = {}
    for group in sorted(groups):
        together.setdefault((group.topic, group.partition, group.releases), []).append(group)
    found = []
    for held in together.values():
        first, more = held[0], f" (and {count(len(held) - 1, 'group')} more)" if held[1:] else ""
        what = "tombstone" if first.value_version is None else "record"
        found.append(
            BrokenRecords(
                topic=first.topic,
                partition=first.partition,
                key_version=first.key_version,
                value_version=first.value_version,
                part="order",
                releases=first.releases,
                count=len(held),
                first_offset=first.offset,
                reason=f"a {what} of key version {first.key_version} of group {first.group}{more} does not fit what "
                f"lies before it{_quoted(first.complaint)}",
            )
        )
    return tuple(found)


def producers_in_words(producers: Sequence[int]) -> str:
    return f"producer {few(producers)}"


def _is_unknown(facts: CoordinatorLogFacts, record: RecordKind) -> bool:
    return record.key_version is not None and facts.record(record.key_version) is None


def _quoted(words: str, version: int | None = None) -> str:
    """What the release's own log says, so that one can look for it there."""
    return f': "{words.replace("{version}", str(version))}"' if words else ""
