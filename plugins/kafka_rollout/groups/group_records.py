"""Group records of __consumer_offsets: current records of the newer types, and whether releases can load them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.base.wording import count, few
from kafka_rollout.coordinator_logs.contents import GROUP_METADATA, StateRecord, camel_fields
from kafka_rollout.coordinator_logs.incompatible_records import (
    REMOVED_WITH_GROUPS,
    Family,
    find_incompatible_records,
)
from kafka_rollout.coordinator_logs.remedies import cleaned_when, cleaner_of
from kafka_rollout.coordinator_logs.scan import BrokenRecords, Damage, LoadVerdict, ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.cleaning import DELETE_RETENTION, LONGEST_STOP_MS, CleaningConfig
from kafka_rollout.formats.log_types import RecordKind
from kafka_rollout.gates.gate import GateCondition
from kafka_rollout.model.contents import SERVED_BY
from kafka_rollout.model.groups import CONSUMER, SHARE, STREAMS, DescribedGroup, GroupMember
from kafka_rollout.model.state import GroupState
from kafka_rollout.releases.facts import Catalogue, Release, gap_of_log

_PREFIXES = {"ConsumerGroup": CONSUMER, "ShareGroup": SHARE, "StreamsGroup": STREAMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecords:
    """One read of the log."""

    read_at: float
    offsets: int
    """Number of offsets in the log."""
    alive: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Group type → groups with a current record."""
    newest: tuple[StateRecord, ...] = ()
    """Newest record of each key, tombstones included, without committed offsets; empty if Spark read the log."""
    classes: tuple[RecordKind, ...] = ()
    """Kinds of all records."""
    broken: tuple[BrokenRecords, ...] = ()
    """Records that some release cannot parse, without committed offsets."""
    partitions: tuple[tuple[str, int], ...] = ()
    damage: tuple[Damage, ...] = ()
    """What could not be read."""
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    """Topic configuration, if the cluster reports it."""
    new_group_coordinator: bool | None = False
    """As in ScanResult."""
    is_whole: bool = True
    """All of this was read now. If not, only new records were, and what the log cleaner has removed since an earlier
    reading counts: no condition is met by that."""

    def alive_of(self, kinds: Collection[str]) -> frozenset[str]:
        """Return the groups of these types that have current records."""
        return frozenset(group for kind in kinds for group in self.alive.get(kind, ()))


def alive_by_type(newest: Iterable[StateRecord]) -> dict[str, frozenset[str]]:
    """Return group type → groups of the newer types with a current record, from the newest record of each key."""
    found: dict[str, set[str]] = {kind: set() for kind in _PREFIXES.values()}
    for record in newest:
        kind = next((kind for prefix, kind in _PREFIXES.items() if record.record.startswith(prefix)), None)
        if record.value is not None and kind is not None:
            found[kind].add(str(camel_fields(record.key)["groupId"]))
    return {kind: frozenset(groups) for kind, groups in found.items()}


def conversion_conditions(
    groups: Iterable[GroupState],
    records: GroupRecords,
    kinds: Collection[str],
    *,
    catalogue: Catalogue,
    releases: Sequence[Release],
    before_stops: bool = False,
) -> tuple[GateCondition, ...]:
    """Return the conditions under which the features of these group types can be lowered and `releases` can load the
    log.

    In the order of KIP-848's notes: members return to the classic protocol; the conversion of each group writes
    tombstones for its records; and if a release cannot load such records at all, the log cleaner has removed them.
    Records of groups without members can stay if every release ignores them. `before_stops`: nodes stop next, so the
    settings for faster cleaning must be restored.
    """
    catalogue = catalogue.configured(new_group_coordinator=records.new_group_coordinator)
    loads = tuple(_loads(catalogue, records, release) for release in releases)
    if before_stops:
        loads += _shows_deletions(records.cleaning)
    if not kinds:
        return loads
    of_kinds = {group.group_id: group for group in groups if group.type in kinds}
    active = _active(of_kinds.values())
    alive = records.alive_of(kinds)
    ended = alive - of_kinds.keys()
    idle = sorted((alive & of_kinds.keys()) - active)
    waiting = sorted((active & alive) | ended)
    evidence = (
        f"{count(len(waiting), 'group')} with current records: {few(waiting)}"
        if waiting
        else f"no converted group has a current record in {records.offsets} offsets"
    )
    kept = f"; without members, but with records: {few(idle)}" if idle else ""
    if records.damage:
        evidence = f"{evidence}; unknown for {_unread(records.damage)}"
    tombstones = GateCondition(
        name="the tombstones of their records are written",
        is_met=not active and not ended and not records.damage,
        evidence=evidence + kept,
    )
    return (_members(active, kinds), tombstones, *loads)


def no_members_condition(groups: Iterable[GroupState], kinds: Collection[str]) -> GateCondition:
    """Return the condition that no group of these types has members."""
    return _members(_active(group for group in groups if group.type in kinds), kinds)


def _active(groups: Iterable[GroupState]) -> set[str]:
    return {group.group_id for group in groups if group.members or group.state.lower() != "empty"}


def _members(active: Collection[str], kinds: Collection[str]) -> GateCondition:
    return GateCondition(
        name=f"no {'/'.join(sorted(kinds))} group has members",
        is_met=not active,
        evidence=f"{count(len(active), 'group')} to convert: {few(sorted(active))}" if active else "none",
    )


def _loads(catalogue: Catalogue, records: GroupRecords, release: Release) -> GateCondition:
    verdicts = evaluate_records(
        catalogue,
        records.classes,
        [release],
        broken=records.broken,
        partitions=records.partitions,
        damage=records.damage,
    )
    failing = [verdict for verdict in verdicts if verdict.verdict.blocks]
    name = f"{release} can load {GROUPS_TOPIC}"
    if not failing and any(verdict.verdict is LoadVerdict.UNKNOWN for verdict in verdicts):
        why = f"unknown for {_unread(records.damage)}" if records.damage else f"unknown: {_gap(catalogue, release)}"
        return GateCondition(name=name, is_met=False, evidence=why)
    if not failing:
        ignored = sum(verdict.ignored for verdict in verdicts)
        return GateCondition(
            name=name, is_met=True, evidence=f"it ignores {count(ignored, 'record')}" if ignored else ("all records")
        )
    failure = failing[0].first_failure
    where = failing[0].place
    first = where if failure is None else f"{where} at offset {failure.offset}: {failure.reason}"
    evidence = f"{count(len(failing), 'partition')} not, {first}; {_until_it_can(catalogue, records, release)}"
    if failing[0].replicas:
        evidence = f"{evidence}. {cleaner_of(failing[0].replicas)}"
    return GateCondition(name=name, is_met=False, evidence=evidence)


def _gap(catalogue: Catalogue, release: Release) -> str:
    return catalogue.get(release).gaps.get(gap_of_log(GROUPS_TOPIC), "the release is not evaluated")


def _unread(damage: Sequence[Damage]) -> str:
    partitions = {(place.topic, place.partition) for place in damage}
    return (
        f"{count(len(partitions), 'partition')}, which could not be read completely, "
        f"first {damage[0].place}: {damage[0].sentence}"
    )


def _shows_deletions(cleaning: CleaningConfig) -> tuple[GateCondition, ...]:
    """Return the condition that the settings for faster cleaning are restored, if they are set."""
    if cleaning.shows_deletions:
        return ()
    evidence = (
        f"{DELETE_RETENTION} of {GROUPS_TOPIC} is {cleaning.delete_retention_ms}. A node that is down for longer keeps "
        "deleted groups and offsets, and shows them when it leads. When the other conditions are met, restore the "
        f"settings; {DELETE_RETENTION} must be at least {LONGEST_STOP_MS}"
    )
    name = f"the settings for faster cleaning of {GROUPS_TOPIC} are restored"
    return (GateCondition(name=name, is_met=False, evidence=evidence),)


def _until_it_can(catalogue: Catalogue, records: GroupRecords, release: Release) -> str:
    """Return the remaining actions. For types that no release knows, only the log cleaner can help."""
    scan = ScanResult(
        cluster="",
        scanned_at=records.read_at,
        logs=(),
        classes=records.classes,
        broken=records.broken,
        verdicts=(),
        new_group_coordinator=records.new_group_coordinator,
    )
    stopping = [found for found in find_incompatible_records(scan, catalogue, release) if found.stops]
    cleaned = [found for found in stopping if not found.pending]
    if others := [found.title for found in cleaned if found.family not in (*REMOVED_WITH_GROUPS, Family.UNKNOWN)]:
        return f"no group conversion removes them: {few(others)}; `kafka-rollout scan` lists the removal actions"
    if not cleaned:
        return "end the transactions that commit offsets for such groups; you do not need to wait for the log cleaner"
    if all(found.out_of_order for found in cleaned):
        end = "delete the groups with incompatible record order, then: "
    else:
        alive = sorted(records.alive_of(SERVED_BY.values()))
        end = f"convert or delete {few(alive)}, which have current records, then: " if alive else ""
    return f"{end}{cleaned_when(GROUPS_TOPIC, records.cleaning)}"


_MEMBER_METADATA = "ConsumerGroupMemberMetadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedMember:
    """A member as recorded in the coordinator log."""

    assignors: tuple[str, ...]
    all_assignors_known: bool


def logged_members(records: Iterable[StateRecord]) -> dict[str, dict[str, LoggedMember]]:
    """Return group id → member id → member, from the newest record of each key.

    The record of a classic group contains only the selected assignor. A classic member of a consumer group (during a
    conversion) is recorded with all its assignors, and a member of the new protocol with its requested server assignor.
    """
    found: dict[str, dict[str, LoggedMember]] = {}
    for record in records:
        if record.value is None:
            continue
        if record.record == GROUP_METADATA:
            selected = tuple(filter(None, [record.value["protocol"]]))
            for member in record.value["members"]:
                logged = LoggedMember(assignors=selected, all_assignors_known=False)
                found.setdefault(record.key["group"], {})[member["memberId"]] = logged
        elif record.record == _MEMBER_METADATA:
            key = camel_fields(record.key)
            found.setdefault(key["groupId"], {})[key["memberId"]] = _of_consumer_group(camel_fields(record.value))
    return found


def _of_consumer_group(value: Mapping[str, Any]) -> LoggedMember:
    classic = value.get("classicMemberMetadata")
    if classic is not None:
        names = tuple(camel_fields(protocol)["name"] for protocol in camel_fields(classic)["supportedProtocols"])
        return LoggedMember(assignors=names, all_assignors_known=True)
    asked = value["serverAssignor"]
    return LoggedMember(assignors=(asked,) if asked else (), all_assignors_known=True)


def with_records(groups: Iterable[DescribedGroup], records: Iterable[StateRecord]) -> tuple[DescribedGroup, ...]:
    """Return the same groups with the assignors of their members that only the coordinator logs contain."""
    logged = logged_members(records)
    return tuple(
        replace(group, members=tuple(_with_record(member, logged.get(group.group_id, {})) for member in group.members))
        for group in groups
    )


def _with_record(member: GroupMember, logged: Mapping[str, LoggedMember]) -> GroupMember:
    known = logged.get(member.member_id)
    if known is None or not known.all_assignors_known:
        return member
    return replace(member, assignors=known.assignors, all_assignors_known=True)
