"""What to do so that a release could load these logs: what is to be ended first, in which order, and how long it takes.

Order and reasons are those of KIP-848's notes on downgrades and of KIP-915: consumers go back first, for converting a
group writes tombstones for its newer records; then the cleaner removes what they shadow, and in the end them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.domain.coordinator_logs.cleaning import CleaningConfig, SettingChange, defaults_of
from kafka_rollout.domain.coordinator_logs.contents import GroupInventory, GroupSummary
from kafka_rollout.domain.coordinator_logs.incompatible_records import (
    NEWER_GROUPS,
    Family,
    IncompatibleRecords,
    find_incompatible_records,
)
from kafka_rollout.domain.coordinator_logs.removal_actions import choose_removal_action
from kafka_rollout.domain.coordinator_logs.scan import OwnerRecords, ScanResult
from kafka_rollout.domain.coordinator_logs.verdicts import producers_in_words
from kafka_rollout.domain.model.releases import Catalogue, Release
from kafka_rollout.domain.model.wording import count

NAMED = 50  # owners that a step names

# Families whose records one step ends whatever their class; of the others every class has its own way.
_ENDED_TOGETHER = frozenset({*NEWER_GROUPS, Family.LOG_ENDS, Family.OPEN_TRANSACTIONS, Family.OUT_OF_ORDER})


class StepKind(StrEnum):
    END = "end"  # convert, delete or end what writes the records
    THROUGH = "through"  # only by way of another release
    HURRY = "hurry"  # settings that make the cleaner come soon
    WAIT = "wait"
    PUT_BACK = "put back"


@dataclass(frozen=True, slots=True)
class Concerned:
    """A group, transactional id or share partition that a step is about, and what the inventory knows of it."""

    name: str
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyStep:
    """One thing to do. `concerned`: most records first. `within_ms`: at most so long; None: unbounded."""

    kind: StepKind
    title: str
    sentence: str
    concerned: tuple[Concerned, ...] = ()
    concerned_left_out: int = 0
    settings: tuple[SettingChange, ...] = ()
    within_ms: int | None = None

    @property
    def settings_in_words(self) -> tuple[str, ...]:
        """`__consumer_offsets: max.compaction.lag.ms=60000`, or what puts it back."""
        if self.kind is not StepKind.PUT_BACK:
            return tuple(f"{change.topic}: {change.name}={change.value}" for change in self.settings)
        return tuple(
            f"{change.topic}: delete {change.name}"
            if change.put_back is None
            else f"{change.topic}: {change.name}={change.put_back}"
            for change in self.settings
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """The way to a release that fails on these logs or ignores records of them.

    `waiting_is_enough`: nothing that stops the release is alive, so the cleaner alone opens the way; None: not known,
    live records were not told from dead ones. `steps` are in the order in which they are to be done.
    """

    release: Release
    offences: tuple[IncompatibleRecords, ...]
    waiting_is_enough: bool | None
    steps: tuple[RemedyStep, ...]

    @property
    def fails(self) -> bool:
        return any(offence.stops for offence in self.offences)

    @property
    def sentence(self) -> str:
        stopping = [offence for offence in self.offences if offence.stops]
        if not stopping:
            ignored = sum(offence.count for offence in self.offences)
            return f"{self.release} loads these logs and passes over {_records(ignored)} that it does not know."
        if all(offence.pending for offence in stopping):
            groups = count(sum(offence.count for offence in stopping), "deleted group")
            return (
                f"{self.release} complains of {groups} with offsets of open transactions only, and serves their "
                "partitions all the same: end the transactions, and no cleaner is waited for."
            )
        records = _records(sum(offence.count for offence in stopping))
        if self.waiting_is_enough is None:
            return (
                f"{records} stop {self.release}. Whether waiting is enough is not known: scan with --live, which tells "
                "live records from those that wait for the cleaner."
            )
        if self.waiting_is_enough:
            return f"{records} stop {self.release}, none of them alive: waiting for the cleaner is enough."
        alive = sum(offence.to_be_ended or 0 for offence in stopping)
        return f"{records} stop {self.release}, {alive:,} of them alive: what writes them is to be ended first."


def find_remedies(
    scan: ScanResult, catalogue: Catalogue, releases: Iterable[Release] | None = None
) -> tuple[Remedy, ...]:
    """One remedy for each release (default: all of the scan's) that fails on records or ignores some, no other.

    The times are by the topics' configuration where the scan has it, by Kafka's defaults where it has not.
    """
    catalogue = catalogue.configured(new_group_coordinator=scan.new_group_coordinator)
    asked = sorted({verdict.release for verdict in scan.verdicts}) if releases is None else list(releases)
    found = ((release, find_incompatible_records(scan, catalogue, release)) for release in asked)
    return tuple(_remedy(scan, catalogue, release, offences) for release, offences in found if offences)


def _remedy(
    scan: ScanResult, catalogue: Catalogue, release: Release, offences: tuple[IncompatibleRecords, ...]
) -> Remedy:
    stopping = [offence for offence in offences if offence.stops]
    to_be_ended = [offence.to_be_ended for offence in stopping]
    endings = _endings(scan, catalogue, release, offences)
    hurry, after = _cleaning_steps([offence for offence in stopping if offence.cleaned], scan.cleaning)
    # Hurried from the start, unless a roll to another release lies between: the settings are for an hour, not for that.
    through = any(step.kind is StepKind.THROUGH for step in endings)
    return Remedy(
        release=release,
        offences=offences,
        waiting_is_enough=False if any(to_be_ended) else None if None in to_be_ended else True,
        steps=(*endings, *hurry, *after) if through else (*hurry, *endings, *after),
    )


def _endings(
    scan: ScanResult, catalogue: Catalogue, release: Release, offences: Sequence[IncompatibleRecords]
) -> list[RemedyStep]:
    """What is to be ended, in the order of the families; dead records need nothing."""
    known = _known(scan)
    by_family: defaultdict[Family, list[IncompatibleRecords]] = defaultdict(list)
    for offence in offences:
        if offence.to_be_ended != 0:
            by_family[offence.family].append(offence)
    steps = []
    for family in Family:
        held = by_family[family]
        for together in [held] if held and family in _ENDED_TOGETHER else [[offence] for offence in held]:
            concerned = _concerned_by(scan, release, family, together, known)
            ending = choose_removal_action(catalogue, release, family, together[0])
            steps.append(
                RemedyStep(
                    kind=StepKind.THROUGH if ending.through_releases else StepKind.END,
                    title=ending.title,
                    sentence=ending.sentence,
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
    """What the inventory says of an owner, by its kind and name."""
    if scan.inventory is None:
        return {}
    inventory = GroupInventory.from_dict(scan.inventory)
    known = {("group", group.name): _about(group) for group in inventory.groups}
    return known | {("transactional_id", each.name): each.state for each in inventory.transactional_ids}


def _about(group: GroupSummary) -> str:
    if group.offsets_only:
        return f"{group.type}, committed offsets only"
    still = f", {group.classic_members} of them classic" if group.classic_members else ""
    return f"{group.type}, {group.state}, {count(group.members, 'member')}{still}"


def _concerned(
    owners: Iterable[OwnerRecords], offences: Sequence[IncompatibleRecords], known: Mapping[tuple[str, str], str]
) -> list[Concerned]:
    """Owners of live records of these classes (of all of them where live was not looked at), most records first."""
    wanted = {(offence.topic, offence.key_version, offence.value_version) for offence in offences}
    records: defaultdict[tuple[str, str], int] = defaultdict(int)
    for owner in owners:
        if (owner.topic, owner.key_version, owner.value_version) in wanted and owner.live != 0:
            records[owner.owner, owner.name] += owner.count if owner.live is None else owner.live
    return [Concerned(key[1], known.get(key, "")) for key in sorted(records, key=lambda key: (-records[key], key))]


def _cleaning_steps(
    stopping: Sequence[IncompatibleRecords], cleaning: Mapping[str, CleaningConfig]
) -> tuple[list[RemedyStep], list[RemedyStep]]:
    """For the topics that hold what stops the release: settings before, waiting and putting back after."""
    changes: list[SettingChange] = []
    waits: list[RemedyStep] = []
    for topic in sorted({offence.topic for offence in stopping}):
        config = cleaning.get(topic, defaults_of(topic))
        # A group that is converted or deleted leaves tombstones that the release does not know, or not where they lie.
        tombstones = any(o.tombstones or o.out_of_order or not o.known for o in stopping if o.topic == topic)
        waits.append(_wait(topic, config, tombstones=tombstones))
        changes += config.hurry(topic, tombstones=tombstones)
    if not changes:
        return [], waits
    hurry = RemedyStep(
        kind=StepKind.HURRY,
        title="Let the cleaner come soon",
        sentence=(
            "By kafka-configs.sh, entity type topics. max.compaction.lag.ms has the active segment closed by the "
            "first append after it, and sends the cleaner whatever the dirty ratio. delete.retention.ms counts from "
            "the first pass over a tombstone as it was then: lower it before the tombstones are cleaned for the "
            "first time."
        ),
        settings=tuple(changes),
    )
    put_back = RemedyStep(
        kind=StepKind.PUT_BACK,
        title="Put the settings back, and scan again",
        sentence="Small segments and a restless cleaner cost the brokers. A scan says when the last record is gone.",
        settings=tuple(changes),
    )
    return [hurry], [*waits, put_back]


def _wait(topic: str, config: CleaningConfig, *, tombstones: bool) -> RemedyStep:
    if not config.compacted:
        return RemedyStep(
            kind=StepKind.WAIT,
            title=f"Wait until the coordinator has deleted the old records of {topic}",
            sentence=(
                f"{topic} is not compacted, no cleaner runs on it. Its coordinator deletes what lies before the oldest "
                "record that it still needs (share.coordinator.state.topic.prune.interval.ms, 5 minutes by default)."
            ),
        )
    soon = config.hurried()
    now_ms, soon_ms = (each.tombstones_gone_within_ms if tombstones else each.pass_within_ms for each in (config, soon))
    passes = (
        "Tombstones of types that the release does not know stop it too. The cleaner removes them in its second pass, "
        f"delete.retention.ms ({in_words(config.delete_retention_ms)}) after the first one."
        if tombstones
        else "One pass of the cleaner removes what newer records shadow."
    )
    bound = (
        "nothing bounds it but the log's size: a partition's turn comes when its closed and not yet cleaned segments "
        f"are more than {config.min_cleanable_dirty_ratio:.0%} of it"
        if now_ms is None
        else f"at most {in_words(now_ms)}"
    )
    source = "the topic's configuration" if config.known else "Kafka's defaults (the topic's own were not read)"
    hurried = "" if soon_ms in (None, now_ms) else f"; with the settings above at most {in_words(soon_ms or 0)}"
    return RemedyStep(
        kind=StepKind.WAIT,
        title=f"Wait for the cleaner on {topic}",
        sentence=(
            f"{passes} By {source}, {bound}{hurried}. The active segment is never cleaned: an append closes it when "
            f"it holds {config.segment_bytes / 2**20:g} MiB or its first record is {in_words(config.closed_after_ms)} "
            "old, so in a partition that nothing is written to the last records stay. No pass goes beyond an open "
            "transaction."
        ),
        within_ms=soon_ms,
    )


def cleaned_when(topic: str, config: CleaningConfig) -> str:
    """When the cleaner has removed from a partition what tombstones ended, and the tombstones, and how it comes sooner:
    for one line. In a partition that nobody writes to it never comes."""
    now_ms, soon_ms = config.tombstones_gone_within_ms, config.hurried().tombstones_gone_within_ms
    when = "only the log's size says when it is cleaned" if now_ms is None else f"cleaned within {in_words(now_ms)}"
    changes = ", ".join(f"{change.name}={change.value}" for change in config.hurry(topic))
    hurry = f"; within {in_words(soon_ms)} with {changes} on {topic} for a while" if changes and soon_ms else ""
    appends = "; both passes of the cleaner need something to be written there: a commit or a rebalance of a group"
    return f"{when}{hurry}{appends if config.compacted else ''}"


def _records(number: int) -> str:
    return "1 record" if number == 1 else f"{number:,} records"


def in_words(milliseconds: int) -> str:
    """`7 d`, `1 d 2 h`, `3 min 30 s`, `500 ms`: the two largest units that are not 0."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    parts, rest = [], milliseconds // 1000
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, seconds)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])
