"""Remedies that make the coordinator logs loadable for a release: actions, their order and their duration.

Order and reasons follow the notes on downgrades in KIP-848, and KIP-915. Consumers are converted first, because the
conversion of a group writes tombstones for its newer records. Then the log cleaner removes the superseded records, and
finally the tombstones.

Sources of the removal actions: KIP-848 (conversion), KIP-932, KIP-1071, KIP-890, and GroupMetadataManager of 4.3.1
(`classicGroupJoin`, `convertToClassicGroup`, `maybeDeleteEmptyConsumerGroup`, `maybeDeleteEmptyStreamsGroup`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from kafka_rollout.base.wording import count, few
from kafka_rollout.coordinator_logs.contents import GroupSummary
from kafka_rollout.coordinator_logs.incompatible_records import (
    Family,
    IncompatibleRecords,
    facts_of_type,
    find_incompatible_records,
)
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.coordinator_logs.verdicts import producers_in_words, with_any
from kafka_rollout.formats.cleaning import CleaningConfig, SettingChange, defaults_of
from kafka_rollout.model.groups import REMOTE_ASSIGNOR, STREAMS_TO_CLASSIC
from kafka_rollout.releases.facts import Catalogue, RecordTypeFacts, Release, newest_patches

NAMED = 50  # limit of groups and ids that a remedy step lists


class StepKind(StrEnum):
    END = "end"  # convert, delete or remove the writers of the records
    THROUGH = "through"  # possible only through another release
    FASTER = "hurry"  # temporary settings for faster cleaning
    WAIT = "wait"
    RESTORE = "put back"


@dataclass(frozen=True, slots=True)
class Concerned:
    """A group, transactional id or share partition of a remedy step, and its state in the inventory."""

    name: str
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyStep:
    """One action."""

    kind: StepKind
    title: str
    sentence: str
    concerned: tuple[Concerned, ...] = ()
    """Most records first."""
    concerned_left_out: int = 0
    settings: tuple[SettingChange, ...] = ()
    within_ms: int | None = None
    """Longest duration; None: no upper limit."""

    @property
    def settings_in_words(self) -> tuple[str, ...]:
        """The settings as text: `__consumer_offsets: max.compaction.lag.ms=60000`, or the previous value."""
        if self.kind is not StepKind.RESTORE:
            return tuple(f"{change.topic}: {change.name}={change.value}" for change in self.settings)
        return tuple(
            f"{change.topic}: delete {change.name}"
            if change.previous is None
            else f"{change.topic}: {change.name}={change.previous}"
            for change in self.settings
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """The remedy for a release that fails on these logs or ignores some records."""

    release: Release
    offences: tuple[IncompatibleRecords, ...]
    waiting_is_enough: bool | None
    """No incompatible record is current, so only the log cleaner must run. None: unknown, because the scan did not
    determine the current records."""
    steps: tuple[RemedyStep, ...]
    """In the order in which to do them."""

    @property
    def fails(self) -> bool:
        return any(records.stops for records in self.offences)

    @property
    def sentence(self) -> str:
        stopping = [offence for offence in self.offences if offence.stops]
        if not stopping:
            ignored = sum(offence.count for offence in self.offences)
            return (
                f"{self.release} loads these logs and ignores {count(ignored, 'record')} of unknown types or versions."
            )
        if all(offence.pending for offence in stopping):
            groups = count(sum(offence.count for offence in stopping), "deleted group")
            return (
                f"Kafka {self.release} logs a load error for {groups} whose only offsets belong to open "
                "transactions, but it serves their partitions. End these transactions. You do not need to "
                "wait for the log cleaner."
            )
        records = count(sum(offence.count for offence in stopping), "record")
        if self.waiting_is_enough is None:
            return (
                f"{records} stop {self.release}. Scan with --live to find out whether waiting for the log "
                "cleaner is enough: it counts the current records."
            )
        if self.waiting_is_enough:
            return (
                f"{records} stop {self.release}. All of them are superseded: wait until the log cleaner has "
                "removed them."
            )
        alive = sum(offence.to_be_removed or 0 for offence in stopping)
        return (
            f"{records} stop {self.release}. {alive:,} of them are current: first convert, delete or stop "
            "what writes them."
        )


def find_remedies(
    scan: ScanResult, catalogue: Catalogue, releases: Iterable[Release] | None = None
) -> tuple[Remedy, ...]:
    """Return one remedy for each release (default: all of the scan's) that fails on records or ignores some.

    The times use the topic configuration of the scan, or Kafka's defaults if the scan has none.
    """
    catalogue = catalogue.configured(new_group_coordinator=scan.new_group_coordinator)
    chosen = scan.releases if releases is None else tuple(releases)
    of_each = ((release, find_incompatible_records(scan, catalogue, release)) for release in chosen)
    return tuple(_remedy(scan, catalogue, release, offences) for release, offences in of_each if offences)


def _remedy(
    scan: ScanResult, catalogue: Catalogue, release: Release, offences: tuple[IncompatibleRecords, ...]
) -> Remedy:
    stopping = [offence for offence in offences if offence.stops]
    to_remove = [offence.to_be_removed for offence in stopping]
    removals = _removal_steps(scan, catalogue, release, offences)
    faster, after = _cleaning_steps([offence for offence in stopping if offence.cleaned], scan.cleaning)
    # Faster cleaning starts at once, unless a change to another release comes first: these settings are for about an
    # hour.
    through = any(step.kind is StepKind.THROUGH for step in removals)
    return Remedy(
        release=release,
        offences=offences,
        waiting_is_enough=False if any(to_remove) else None if None in to_remove else True,
        steps=(*removals, *faster, *after) if through else (*faster, *removals, *after),
    )


def _removal_steps(
    scan: ScanResult, catalogue: Catalogue, release: Release, offences: Sequence[IncompatibleRecords]
) -> list[RemedyStep]:
    """Return the removal actions in the order of the families. Superseded records need none."""
    states = _known(scan)
    by_family: defaultdict[Family, list[IncompatibleRecords]] = defaultdict(list)
    for offence in offences:
        if offence.to_be_removed != 0:
            by_family[offence.family].append(offence)
    steps = []
    for family in Family:
        of_family = by_family[family]
        for together in [of_family] if of_family and family in ONE_ACTION else [[offence] for offence in of_family]:
            concerned = _concerned_by(scan, release, family, together, states)
            action = choose_removal_action(catalogue, release, family, together[0])
            left_out = max(0, len(concerned) - NAMED)
            steps.append(replace(action, concerned=tuple(concerned[:NAMED]), concerned_left_out=left_out))
    return steps


def _concerned_by(
    scan: ScanResult,
    release: Release,
    family: Family,
    offences: Sequence[IncompatibleRecords],
    states: Mapping[tuple[str, str], str],
) -> list[Concerned]:
    """Return the owners of current records of these kinds, most records first (of all records without --live)."""
    match family:
        case Family.LOG_ENDS:
            return []
        case Family.OPEN_TRANSACTIONS:
            return [
                Concerned(group.group, f"{group.topic}-{group.partition}, {producers_in_words(group.producers)}")
                for group in scan.deleted_while_pending
            ]
        case Family.OUT_OF_ORDER:
            groups = (found.group for found in scan.out_of_order if release in found.releases)
            return [Concerned(group, states.get(("group", group), "")) for group in groups]
    wanted = {(found.topic, found.key_version, found.value_version) for found in offences}
    records: Counter[tuple[str, str]] = Counter()
    for owner in scan.owners:
        if (owner.topic, owner.key_version, owner.value_version) in wanted and owner.live != 0:
            records[owner.owner, owner.name] += owner.count if owner.live is None else owner.live
    return [Concerned(key[1], states.get(key, "")) for key in sorted(records, key=lambda key: (-records[key], key))]


def _known(scan: ScanResult) -> Mapping[tuple[str, str], str]:
    """Return (kind, name) of a group or id → its state in the inventory."""
    if scan.inventory is None:
        return {}
    states = {("group", group.name): _about(group) for group in scan.inventory.groups}
    return states | {("transactional_id", each.name): each.state for each in scan.inventory.transactional_ids}


def _about(group: GroupSummary) -> str:
    if group.offsets_only:
        return f"{group.type}, committed offsets only"
    still = f", {group.classic_members} of them use the classic protocol" if group.classic_members else ""
    return f"{group.type}, {group.state}, {count(group.members, 'member')}{still}"


def _cleaning_steps(
    stopping: Sequence[IncompatibleRecords], cleaning: Mapping[str, CleaningConfig]
) -> tuple[list[RemedyStep], list[RemedyStep]]:
    """Return the cleaning steps for the topics with incompatible records: settings before, wait, settings after."""
    changes: list[SettingChange] = []
    waits: list[RemedyStep] = []
    for topic in sorted({offence.topic for offence in stopping}):
        config = cleaning.get(topic, defaults_of(topic))
        # The conversion or deletion of a group writes tombstones, which can be of types that the release does not
        # support.
        tombstones = any(o.tombstones or o.out_of_order or not o.known for o in stopping if o.topic == topic)
        waits.append(_wait(topic, config, tombstones=tombstones))
        if replicas := with_any([o.replicas for o in stopping if o.topic == topic]):
            waits.append(
                RemedyStep(
                    kind=StepKind.WAIT,
                    title=f"Find out why the log cleaner of {few(replicas)} is behind",
                    sentence=f"Other replicas do not have all of these records any more. {cleaner_of(replicas)}",
                )
            )
        changes += config.faster_settings(topic, tombstones=tombstones)
    if not changes:
        return [], waits
    faster = RemedyStep(
        kind=StepKind.FASTER,
        title="Set temporary settings for faster cleaning",
        sentence=(
            "Use kafka-configs.sh with entity type topics. With max.compaction.lag.ms, the next append after "
            "that time closes the active segment, and the log cleaner runs whatever the dirty ratio. Set "
            "delete.retention.ms before the first pass over the tombstones: it counts from that pass with "
            "its value at that time."
        ),
        settings=tuple(changes),
    )
    restore = RemedyStep(
        kind=StepKind.RESTORE,
        title="Restore the settings and scan again",
        sentence=(
            "The scan shows when no incompatible record is left. Restore the settings before a node stops: one that is "
            "down for longer than delete.retention.ms keeps what was deleted, and shows it when it leads. Frequent "
            "cleaning also loads the brokers."
        ),
        settings=tuple(changes),
    )
    return [faster], [*waits, restore]


def cleaner_of(replicas: Sequence[str]) -> str:
    """Return how to see whether the log cleaner of some replicas runs. Each broker cleans its own."""
    return (
        f"Check the log cleaner of {few(replicas)}: log.cleaner.enable must not be false; the metrics DeadThreadCount "
        "(kafka.log:type=LogCleaner) and uncleanable-partitions-count (kafka.log:type=LogCleanerManager) must be 0, "
        "and max-dirty-percent must go down. A thread that died starts with the broker; its error is in the log of the "
        "broker."
    )


def _wait(topic: str, config: CleaningConfig, *, tombstones: bool) -> RemedyStep:
    if not config.compacted:
        return RemedyStep(
            kind=StepKind.WAIT,
            title=f"Wait until the coordinator has deleted the old records of {topic}",
            sentence=(
                f"{topic} is not compacted, so the log cleaner does not run on it. Its coordinator deletes "
                "the records before the oldest record that it needs "
                "(share.coordinator.state.topic.prune.interval.ms, 5 minutes by default)."
            ),
        )
    soon = config.with_faster_cleaning()
    now_ms, soon_ms = (each.tombstones_gone_within_ms if tombstones else each.pass_within_ms for each in (config, soon))
    passes = (
        "Tombstones of unknown types stop the release too. The log cleaner removes them in its second pass, "
        f"delete.retention.ms ({in_words(config.delete_retention_ms)}) after the first pass."
        if tombstones
        else "One pass of the log cleaner removes superseded records."
    )
    bound = (
        "there is no upper limit: the log cleaner selects a partition when its closed, uncleaned segments "
        f"exceed {config.min_cleanable_dirty_ratio:.0%} of the log"
        if now_ms is None
        else f"at most {in_words(now_ms)}"
    )
    source = (
        "the topic's configuration" if config.known else ("Kafka's defaults (the topic configuration was not read)")
    )
    faster = "" if soon_ms in (None, now_ms) else f"; with the settings above at most {in_words(soon_ms or 0)}"
    return RemedyStep(
        kind=StepKind.WAIT,
        title=f"Wait for the log cleaner on {topic}",
        sentence=(
            f"{passes} By {source}, {bound}{faster}. The active segment is never cleaned. An append "
            f"closes it when it has {config.segment_bytes / 2**20:g} MiB or its first record is "
            f"{in_words(config.closed_after_ms)} old. So the last records stay in a partition without "
            "appends. No pass goes beyond an open transaction."
        ),
        within_ms=soon_ms,
    )


def cleaned_when(topic: str, config: CleaningConfig) -> str:
    """Return in one line when the log cleaner has removed the superseded records and the tombstones of a partition.

    The line includes the settings for faster cleaning. In a partition without appends the cleaner never removes them.
    """
    now_ms, soon_ms = config.tombstones_gone_within_ms, config.with_faster_cleaning().tombstones_gone_within_ms
    when = (
        "no upper limit, because only the size of the log triggers the cleaner"
        if now_ms is None
        else f"cleaned within {in_words(now_ms)}"
    )
    changes = ", ".join(f"{change.name}={change.value}" for change in config.faster_settings(topic))
    faster = f"; within {in_words(soon_ms)} with temporary settings {changes} on {topic}" if changes and soon_ms else ""
    appends = "; both passes of the log cleaner need an append to the partition: a commit or a rebalance of a group"
    return f"{when}{faster}{appends if config.compacted else ''}"


def in_words(milliseconds: int) -> str:
    """Return a duration with its two largest non-zero units: `7 d`, `1 d 2 h`, `3 min 30 s`, `500 ms`."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    parts, rest = [], milliseconds // 1000
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, seconds)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


EMPTY_GROUP_EXPIRES = (
    "While such a group has no members, an offset expires offsets.retention.minutes (7 days by default) after its own "
    "commit, also if the group became empty just now: offsets of partitions without new records can be deleted within "
    "10 minutes. Let the members commit all offsets before they stop, or export the offsets as soon as the group is "
    "empty (kafka-consumer-groups.sh --reset-offsets --to-current --export), and compare them afterwards."
)
"""Source: offsetExpirationCondition of ConsumerGroup and StreamsGroup. A classic group counts from becoming empty."""

_end = partial(RemedyStep, kind=StepKind.END)

# Families with one removal action for all record kinds. In other families each kind has its own action.
ONE_ACTION: Mapping[Family, RemedyStep] = {
    Family.CONSUMER_GROUPS: _end(
        title="First convert these groups to the classic protocol, or delete them",
        sentence=(
            f"Restart their members one by one with group.protocol=classic and without {REMOTE_ASSIGNOR}. When the "
            "last member has restarted, the coordinator converts the group to a classic group and writes tombstones "
            "for its newer records. Its committed offsets stay. This needs group.consumer.migration.policy "
            "bidirectional (the default of 4.x) or downgrade. An empty group is converted when a classic member joins "
            "it. Or delete it with "
            f"`kafka-consumer-groups.sh --delete`, which also deletes its offsets. {EMPTY_GROUP_EXPIRES}"
        ),
    ),
    Family.STREAMS_GROUPS: _end(
        title="Stop these streams applications and start them with group.protocol=classic, or delete the groups",
        sentence=f"{STREAMS_TO_CLASSIC} Both write tombstones for its newer records. {EMPTY_GROUP_EXPIRES}",
    ),
    Family.SHARE_GROUPS: _end(
        title="Stop the members of these share groups and delete the groups",
        sentence=(
            "A share group cannot be converted. `kafka-share-groups.sh --delete` writes tombstones for its "
            "records. Kafka then forgets which records were delivered and acknowledged."
        ),
    ),
    Family.LOG_ENDS: _end(
        title="Restart one transactional producer per partition: initTransactions() writes a new record",
        sentence=(
            "The release skips records of unknown types. If such records are the last in a `__transaction_state` "
            "partition, the coordinator reads them in an endless loop and never finishes loading. Restart one "
            "transactional producer for each of these partitions, immediately before a broker of the release "
            "leads the partition. Then scan again."
        ),
    ),
    Family.OPEN_TRANSACTIONS: _end(
        title="End the transactions that commit offsets for these deleted groups",
        sentence=(
            "Each group was deleted while a transaction had committed offsets for it. The release logs a load "
            "error after it has loaded the partition, and serves the partition with an empty group. Let the "
            "producer commit or abort, or stop it. The coordinator aborts a transaction that is open for longer "
            "than transaction.timeout.ms of the producer (1 minute by default). A transaction that no "
            "coordinator knows is hanging: list it with `kafka-transactions.sh find-hanging --topic "
            "__consumer_offsets --partition N` and end it with `kafka-transactions.sh abort`. Then scan again. "
            "You do not need to wait for the log cleaner."
        ),
    ),
    Family.OUT_OF_ORDER: _end(
        title="Delete these groups, or use a release that accepts this record order",
        sentence=(
            "The log cleaner kept an old record of each group, usually a committed offset, and removed the "
            "records before it. The release then assigns newer records to a wrong group type (KAFKA-20254). Save "
            "the committed offsets. Stop the members and delete the group, which also deletes its offsets. "
            "Restore the offsets after the group exists again. While the group exists, each rebalance followed "
            "by a cleaning pass can create this order again."
        ),
    ),
}
_SHADOWED_BY: Mapping[Family, str] = {
    Family.OFFSETS: "let every group commit all its offsets again",
    Family.TRANSACTIONAL_IDS: "restart the producer of every transactional id, or let the id expire",
    Family.CLASSIC_GROUPS: "let every group rebalance",
}


def choose_removal_action(
    catalogue: Catalogue, release: Release, family: Family, records: IncompatibleRecords
) -> RemedyStep:
    """Return how to remove the current records so that `release` can load the log."""
    if family in ONE_ACTION:
        return ONE_ACTION[family]
    if records.unreadable:
        return _end(
            title=f"Replace the unreadable records: {records.title}",
            sentence=(
                "No release of the catalogue wrote them. Copy the directory of the partition. Then supersede "
                "them with newer records: commit the offset again, let the group rebalance, restart the "
                "transactional producer, or delete the group. A record with an unreadable key cannot be "
                "superseded."
            ),
        )
    if family is Family.UNKNOWN or records.key_version is None or records.value_version is None:
        return _end(
            title=f"Find the writer of the records of key version {records.key_version}",
            sentence=(
                "No release of the catalogue knows this type. A newer Kafka release or another program wrote "
                "it. Only that writer can write the tombstones that let the log cleaner remove them."
            ),
        )
    return _newer_value(
        facts_of_type(catalogue, records.topic, records.key_version),
        release,
        family,
        what=f"{records.record} {records.value_version}",
        value_version=records.value_version,
    )


def _newer_value(
    of_releases: Sequence[tuple[Release, RecordTypeFacts]],
    release: Release,
    family: Family,
    *,
    what: str,
    value_version: int,
) -> RemedyStep:
    """Return the action for a known record type with a value version that is too new.

    A value version that depends on a feature level is no longer written below that level. A version that a release
    always writes can be removed only through another release.
    """
    reads = next((facts.reads for reader, facts in of_releases if reader == release), None)
    writers = [(writer, facts) for writer, facts in of_releases if value_version in facts.writes]
    always = [writer for writer, facts in writers if value_version not in facts.written_from]
    through = tuple(
        other
        for other, facts in of_releases
        if reads is not None
        and value_version in facts.reads
        and facts.writes
        and all(version in reads for version in facts.writes if version not in facts.written_from)
    )
    shadow = _SHADOWED_BY[family]
    if writers and not always:
        level = writers[-1][1].written_from[value_version]
        return _end(
            title=f"Lower {level.feature} below {level.level}, then {shadow}",
            sentence=f"{what} is written only from {level.feature} {level.level}.{_LOWERING.get(family, '')}",
        )
    if not through:
        return _end(
            title=f"Supersede {what} with newer records",
            sentence=(
                f"No release of the catalogue both reads {what} and writes a version that {release} reads. To "
                f"remove the records, {shadow}, with an older version of the writer."
            ),
        )
    if not writers:
        return _end(
            title=f"On {few(newest_patches(through), limit=9)}, {shadow}",
            sentence=(
                f"No release of the catalogue writes {what}. These releases read it and write a version that "
                f"{release} reads."
            ),
        )
    return RemedyStep(
        kind=StepKind.THROUGH,
        title=f"Downgrade through {few(newest_patches(through), limit=9)} and {shadow} there",
        sentence=(
            f"{few(newest_patches(always), limit=9)} and their earlier patch releases always write {what}, whatever "
            "the feature levels. No conversion helps "
            f"while one of them runs. The listed releases read it and write a version that {release} reads. "
            "First do the actions for groups, because a release writes no tombstones for types that it does "
            f"not know (KIP-915). Then downgrade to one of the listed releases and {shadow}. Wait for the log "
            f"cleaner there, then continue to {release}."
        ),
    )


_LOWERING: Mapping[Family, str] = {
    Family.TRANSACTIONAL_IDS: (
        " First commit or abort the open transactions and stop the producers: lowering the level causes a "
        "fatal error in running producers. A restarted producer writes the record of its id in the older "
        "version. The coordinator removes an unused id after transactional.id.expiration.ms (7 days by "
        "default)."
    )
}
