"""Remedies that make the coordinator logs loadable for a release: actions, their order and their duration.

Order and reasons follow the notes on downgrades in KIP-848, and KIP-915. Consumers are converted first, because the
conversion of a group writes tombstones for its newer records. Then the log cleaner removes the superseded records, and
finally the tombstones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.base.wording import count
from kafka_rollout.coordinator_logs.contents import GroupSummary
from kafka_rollout.coordinator_logs.incompatible_records import (
    Family,
    IncompatibleRecords,
    find_incompatible_records,
)
from kafka_rollout.coordinator_logs.removal_actions import ONE_ACTION, choose_removal_action
from kafka_rollout.coordinator_logs.scan import OwnerRecords, ScanResult
from kafka_rollout.coordinator_logs.verdicts import producers_in_words
from kafka_rollout.kafka.cleaning import CleaningConfig, SettingChange, defaults_of
from kafka_rollout.releases.facts import Catalogue, Release

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
    """One action. `concerned`: most records first. `within_ms`: longest duration; None: no upper limit."""

    kind: StepKind
    title: str
    sentence: str
    concerned: tuple[Concerned, ...] = ()
    concerned_left_out: int = 0
    settings: tuple[SettingChange, ...] = ()
    within_ms: int | None = None

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
    """The remedy for a release that fails on these logs or ignores some records.

    `waiting_is_enough`: no incompatible record is current, so only the log cleaner must run. None: unknown, because the
    scan did not determine the current records. `steps`: in the order in which to do them.
    """

    release: Release
    offences: tuple[IncompatibleRecords, ...]
    waiting_is_enough: bool | None
    steps: tuple[RemedyStep, ...]

    @property
    def fails(self) -> bool:
        return any(found.stops for found in self.offences)

    @property
    def sentence(self) -> str:
        stopping = [found for found in self.offences if found.stops]
        if not stopping:
            ignored = sum(found.count for found in self.offences)
            return f"{self.release} loads these logs and ignores {_records(ignored)} of unknown types or versions."
        if all(found.pending for found in stopping):
            groups = count(sum(found.count for found in stopping), "deleted group")
            return (
                f"Kafka {self.release} logs a load error for {groups} whose only offsets belong to open "
                "transactions, but it serves their partitions. End these transactions. You do not need to "
                "wait for the log cleaner."
            )
        records = _records(sum(found.count for found in stopping))
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
        alive = sum(found.to_be_removed or 0 for found in stopping)
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
    asked = scan.releases if releases is None else tuple(releases)
    found = ((release, find_incompatible_records(scan, catalogue, release)) for release in asked)
    return tuple(_remedy(scan, catalogue, release, offences) for release, offences in found if offences)


def _remedy(
    scan: ScanResult, catalogue: Catalogue, release: Release, offences: tuple[IncompatibleRecords, ...]
) -> Remedy:
    stopping = [found for found in offences if found.stops]
    to_remove = [found.to_be_removed for found in stopping]
    removals = _removal_steps(scan, catalogue, release, offences)
    faster, after = _cleaning_steps([found for found in stopping if found.cleaned], scan.cleaning)
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
    known = _known(scan)
    by_family: defaultdict[Family, list[IncompatibleRecords]] = defaultdict(list)
    for found in offences:
        if found.to_be_removed != 0:
            by_family[found.family].append(found)
    steps = []
    for family in Family:
        of_family = by_family[family]
        for together in [of_family] if of_family and family in ONE_ACTION else [[found] for found in of_family]:
            concerned = _concerned_by(scan, release, family, together, known)
            action = choose_removal_action(catalogue, release, family, together[0])
            steps.append(
                RemedyStep(
                    kind=StepKind.THROUGH if action.through_releases else StepKind.END,
                    title=action.title,
                    sentence=action.sentence,
                    concerned=tuple(concerned[:NAMED]),
                    concerned_left_out=max(0, len(concerned) - NAMED),
                )
            )
    return steps


def _concerned_by(
    scan: ScanResult,
    release: Release,
    family: Family,
    offences: Sequence[IncompatibleRecords],
    known: Mapping[tuple[str, str], str],
) -> list[Concerned]:
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
            return [Concerned(group, known.get(("group", group), "")) for group in groups]
        case _:
            return _concerned(scan.owners, offences, known)


def _known(scan: ScanResult) -> Mapping[tuple[str, str], str]:
    """Return (kind, name) of a group or id → its state in the inventory."""
    if scan.inventory is None:
        return {}
    known = {("group", group.name): _about(group) for group in scan.inventory.groups}
    return known | {("transactional_id", each.name): each.state for each in scan.inventory.transactional_ids}


def _about(group: GroupSummary) -> str:
    if group.offsets_only:
        return f"{group.type}, committed offsets only"
    still = f", {group.classic_members} of them use the classic protocol" if group.classic_members else ""
    return f"{group.type}, {group.state}, {count(group.members, 'member')}{still}"


def _concerned(
    owners: Iterable[OwnerRecords], offences: Sequence[IncompatibleRecords], known: Mapping[tuple[str, str], str]
) -> list[Concerned]:
    """Return the owners of current records of these kinds, most records first (of all records without --live)."""
    wanted = {(found.topic, found.key_version, found.value_version) for found in offences}
    records: defaultdict[tuple[str, str], int] = defaultdict(int)
    for owner in owners:
        if (owner.topic, owner.key_version, owner.value_version) in wanted and owner.live != 0:
            records[owner.owner, owner.name] += owner.count if owner.live is None else owner.live
    return [Concerned(key[1], known.get(key, "")) for key in sorted(records, key=lambda key: (-records[key], key))]


def _cleaning_steps(
    stopping: Sequence[IncompatibleRecords], cleaning: Mapping[str, CleaningConfig]
) -> tuple[list[RemedyStep], list[RemedyStep]]:
    """Return the cleaning steps for the topics with incompatible records: settings before, wait, settings after."""
    changes: list[SettingChange] = []
    waits: list[RemedyStep] = []
    for topic in sorted({found.topic for found in stopping}):
        config = cleaning.get(topic, defaults_of(topic))
        # The conversion or deletion of a group writes tombstones, which can be of types that the release does not
        # support.
        tombstones = any(o.tombstones or o.out_of_order or not o.known for o in stopping if o.topic == topic)
        waits.append(_wait(topic, config, tombstones=tombstones))
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
        sentence="Frequent cleaning loads the brokers. The scan shows when no incompatible record is left.",
        settings=tuple(changes),
    )
    return [faster], [*waits, restore]


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


def _records(number: int) -> str:
    return "1 record" if number == 1 else f"{number:,} records"


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
