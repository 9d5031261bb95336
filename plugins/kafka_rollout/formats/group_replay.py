"""Replay of group records in the order of the log, by the rules of the group coordinators.

Source: GroupMetadataManager.replay of 3.9.1 to 4.3.1 (`group.coordinator.new.enable` in 3.9). The load stops at a
record that contradicts earlier records: a tombstone of a group that does not exist (3.9), or a streams group record
after committed offsets (4.1). Coordinators write no such logs, but the log cleaner can leave them: it keeps an old
offset and removes older records of the group that have newer versions (KAFKA-20254). The integration test
test_group_replay.py compares this module with the coordinators' own code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kafka_rollout.formats.coordinator_records import VERSION_BYTES, ClassKey, classify
from kafka_rollout.formats.log_types import Bytes, LogFormatError, RecordBatch, RecordSpan
from kafka_rollout.formats.record_batch import readable, records
from kafka_rollout.releases.facts import CoordinatorLogFacts, GroupFamilyFacts

GROUP, MEMBER = "Metadata", "MemberMetadata"  # parts of record names after the family
EPOCH, TARGET, CURRENT = "TargetAssignmentMetadata", "TargetAssignmentMember", "CurrentMemberAssignment"
_OF_MEMBERS = frozenset({MEMBER, TARGET, CURRENT})
_OFFSETS, _CLASSIC = frozenset({0, 1}), 2  # key versions
_COMMIT = 1  # ControlRecordType
_LENGTH_BYTES, _PARTITION_BYTES = 2, 4
_STREAMS = "StreamsGroup"
_FLEXIBLE_CLASSIC = 4  # GroupMetadataValue
_ENDED_BEFORE = {GROUP: (EPOCH, MEMBER, CURRENT, TARGET), MEMBER: (CURRENT, TARGET), EPOCH: (TARGET,)}
_NEVER = 1 << 63  # greater than every offset
_SEARCHED = 50  # up to this number, a search for names in the bytes of a batch is faster than decoding
_GONE = -1  # epoch of a member that has left, and of a group without an assignment


Roles = Mapping[int, tuple[GroupFamilyFacts, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """One group record."""

    offset: int
    key_version: int
    group: bytes
    member: bytes = b""
    """Second text of the key."""
    value: bytes | None
    """With its version; None: a tombstone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The first record of a group at which the load stops."""

    record: GroupRecord
    complaint: str
    """The error of the release; "" if unknown."""


@dataclass(slots=True)
class _Member:
    is_described: bool = False  # by its own record
    has_left: bool = False
    has_tasks: bool = False


@dataclass(slots=True)
class _Group:
    family: str | None = None  # None: classic
    offsets_only: bool = True  # of a classic group: created by offsets alone, or without protocol type
    members: dict[bytes, _Member] = field(default_factory=dict)
    targets: set[bytes] = field(default_factory=set)
    assigned: bool = True  # a new group has the assignment epoch 0


class GroupReplay:
    """The groups of one partition, replayed by one release in the order of the log."""

    def __init__(self, facts: CoordinatorLogFacts) -> None:
        self._roles = facts.group_roles
        self._facts = facts
        self._groups: dict[bytes, _Group] = {}
        self.refused: dict[bytes, Refused] = {}

    def add(self, record: GroupRecord) -> None:
        """Replay one record. Records of a group at which the load has stopped are ignored."""
        if record.group in self.refused:
            return
        group = self._groups.get(record.group)
        if record.key_version in _OFFSETS:
            if record.value is not None and group is None:
                self._groups[record.group] = _Group()
        elif record.key_version == _CLASSIC:
            if record.value is None:
                self._groups.pop(record.group, None)
            else:
                self._groups[record.group] = _Group(offsets_only=_has_no_protocol_type(record.value))
        elif (role := self._roles.get(record.key_version)) and self._is_replayed(record):
            complaint = self._replay(group, record, *role)
            if complaint is not None:
                words = complaint.replace("{group}", _as_text(record.group)).replace(
                    "{member}", _as_text(record.member)
                )
                self.refused[record.group] = Refused(record=record, complaint=words)

    def _is_replayed(self, record: GroupRecord) -> bool:
        """Other records stop the release or are skipped, whatever the state of their group."""
        known = self._facts.record(record.key_version)
        if known is None or ("tombstone" if record.value is None else "value") in known.refuses:
            return False
        return record.value is None or int.from_bytes(record.value[:VERSION_BYTES], "big", signed=True) in known.reads

    def _replay(self, group: _Group | None, record: GroupRecord, rules: GroupFamilyFacts, part: str) -> str | None:
        """Return the error of the release ("" if unknown); None if the load continues."""
        is_there = record.value is not None
        if group is None:
            if not is_there or record.key_version not in rules.founders:
                return rules.not_found or None
            group = self._groups[record.group] = _Group(rules.family)
        elif group.family != rules.family:
            if group.family is not None or not group.offsets_only or not rules.takes_over_offsets:
                return rules.other_type
            group = self._groups[record.group] = _Group(rules.family)
        if part not in _OF_MEMBERS:
            return self._of_group(group, record, part)
        if part == TARGET:
            (group.targets.add if is_there else group.targets.discard)(record.member)
            return None
        return self._of_member(group, record, part, rules)

    def _of_group(self, group: _Group, record: GroupRecord, part: str) -> str | None:
        if part == EPOCH:
            if record.value is None and group.targets:
                return ""
            group.assigned = record.value is not None and _number(record.value) != _GONE
        elif part == GROUP and record.value is None:
            if group.members or group.assigned or (group.targets and group.family != _STREAMS):
                return ""
            del self._groups[record.group]
        return None

    def _of_member(self, group: _Group, record: GroupRecord, part: str, rules: GroupFamilyFacts) -> str | None:
        member, is_there = group.members.get(record.member), record.value is not None
        if member is None and (not is_there or (part == CURRENT and rules.member_not_found)):
            return rules.member_not_found or None
        member = group.members.setdefault(record.member, _Member()) if member is None else member
        if part == MEMBER and not is_there and (not member.has_left or record.member in group.targets):
            return ""
        if rules.member_too_late and member.has_tasks and not member.is_described:
            return rules.member_too_late
        if part == CURRENT:
            member.has_left = record.value is None or _number(record.value) == _GONE
            member.has_tasks = record.value is not None and _has_tasks(record.value)
        elif is_there:
            member.is_described = True
        else:
            del group.members[record.member]
        return None


@dataclass(slots=True, kw_only=True)
class FirstRecords:
    """Offsets of the first record of each kind of one group."""

    kinds: dict[tuple[int, bool], int] = field(default_factory=dict)
    """(key version, is a tombstone) → offset."""
    committed: int | None = None
    """The first committed offset, or None."""
    is_classic: bool = False
    """Its newest GroupMetadata is not a tombstone."""

    def note(self, key_version: int, offset: int, *, is_tombstone: bool) -> None:
        kind = key_version, is_tombstone
        self.kinds[kind] = min(offset, self.kinds.get(kind, offset))


def may_be_refused(roles: Roles, firsts: FirstRecords) -> bool:
    """Return whether the records of a group must be replayed in order. `roles`: CoordinatorLogFacts.group_roles.

    For families without rules about members, the members are treated as one. A record of a single member that comes too
    early is not detected.
    """
    families = {roles[kind[0]][0].family: roles[kind[0]][0] for kind in firsts.kinds if kind[0] in roles}
    if len(families) > 1 or any(family.not_found or family.member_too_late for family in families.values()):
        return True
    return any(_may_be_refused(roles, family, firsts) for family in families.values())


def _may_be_refused(roles: Roles, family: GroupFamilyFacts, firsts: FirstRecords) -> bool:
    """`family`: the only family of the group's records."""
    first = {(roles[kind[0]][1], kind[1]): at for kind, at in firsts.kinds.items() if kind[0] in roles}
    made_at = min((at for (_, is_tombstone), at in first.items() if not is_tombstone), default=_NEVER)
    committed = _NEVER if firsts.committed is None else firsts.committed
    if firsts.is_classic or (not family.takes_over_offsets and committed < made_at):
        return True
    if not family.takes_over_offsets and committed != _NEVER and (GROUP, True) in first:
        return True  # offsets can create the group again
    is_there_from = min(made_at, committed)
    for part, ended_before in _ENDED_BEFORE.items():
        ends = first.get((part, True), -1)
        for before in ended_before if ends > is_there_from else ():
            # A group that any record creates has an assignment, and its member has an epoch.
            begins = is_there_from if before in (EPOCH, CURRENT) else first.get((before, False), ends)
            if begins < ends and not begins < first.get((before, True), ends) < ends:
                return True
    return False


def group_records(buffer: Bytes, *, groups: Collection[bytes], start: int, end: int) -> Iterator[GroupRecord]:
    """Yield the records of these groups in complete batches with start <= offset < end. Unreadable ones are skipped."""
    for batch, data in readable(buffer, start=start, end=end):
        if batch.is_control or (len(groups) <= _SEARCHED and not any(group in data for group in groups)):
            continue
        with suppress(LogFormatError):
            for span in records(batch, data):
                if not start <= span.offset < end or span.key_length < VERSION_BYTES:
                    continue
                version, _ = classify(data, span)
                key = data[span.key_at : span.key_at + span.key_length]
                group, at = text_at(key, VERSION_BYTES)
                if group is None or group not in groups or version is None:
                    continue
                value_ends = span.value_at + span.value_length
                yield GroupRecord(
                    offset=span.offset,
                    key_version=version,
                    group=group,
                    member=text_at(key, at)[0] or b"",
                    value=None if span.value_length < 0 else bytes(data[span.value_at : value_ends]),
                )


def _number(value: bytes) -> int:
    """Return the first field: the epoch of a member or of an assignment."""
    return int.from_bytes(value[VERSION_BYTES : VERSION_BYTES + 4], "big", signed=True)


def _has_tasks(value: bytes) -> bool:
    """StreamsGroupCurrentMemberAssignmentValue: two epochs, a state, then arrays; an empty array is 1 or 0."""
    return not set(value[VERSION_BYTES + 9 :]) <= {0, 1}


def _has_no_protocol_type(value: bytes) -> bool:
    """GroupMetadataValue begins with the protocol type."""
    flexible = int.from_bytes(value[:VERSION_BYTES], "big") >= _FLEXIBLE_CLASSIC
    return value[VERSION_BYTES : VERSION_BYTES + 1] == b"\1" if flexible else value[VERSION_BYTES:][:2] == b"\0\0"


def _as_text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


@dataclass(slots=True, kw_only=True)
class PendingCommits:
    """Deleted groups with offsets of open transactions in one partition of __consumer_offsets. Bytes name a group.

    Source: GroupMetadataManager.doLoadGroupsAndOffsets, the same in 3.4.0 and 3.9. An offset that a transaction commits
    is pending, by producer id, until the marker of the transaction. A control batch without a record (left by the log
    cleaner) is not a marker. A tombstone outside a transaction does not remove a pending offset, and one inside does
    not remove another offset. A group is deleted if its newest GroupMetadata record is a tombstone. After all records,
    the coordinator also creates groups for pending offsets. It logs an error for a group that is deleted and has only
    pending offsets.
    """

    groups: frozenset[bytes] | None = None
    """The groups to examine. None: all groups; then only `suspects` and `doubtful` are available, because other offsets
    are not stored."""
    _producer: int | None = None  # of the batch, if it belongs to a transaction
    _deleted: dict[bytes, bool] = field(default_factory=dict)  # group → its newest GroupMetadata is a tombstone
    _loaded: defaultdict[bytes, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    _waiting: dict[int, defaultdict[bytes, set[bytes]]] = field(default_factory=dict)  # producer → group → offsets
    _emptied: set[bytes] = field(default_factory=set)  # groups of which an offset was removed
    _refused_from: dict[bytes, int] = field(default_factory=dict)

    def add(self, buffer: Bytes, *, start: int, end: int) -> None:
        """Add the records of complete batches with start <= offset < end. Unreadable batches are skipped."""
        for batch, data in readable(buffer, start=start, end=end):
            with suppress(LogFormatError):
                self._add(batch, data, start, end)

    def begin(self, batch: RecordBatch, data: bytes) -> None:
        """Begin a batch: apply a marker, or note the producer of the records that follow."""
        if not batch.is_control:
            self._producer = batch.producer_id if batch.is_transactional else None
            return
        for marker in records(batch, data):
            kind = int.from_bytes(data[marker.key_at + 2 : marker.key_at + 4], "big", signed=True)
            for group, offsets in self._waiting.pop(batch.producer_id, {}).items():
                if kind == _COMMIT and self.groups is not None:
                    self._loaded[group] |= offsets
                self._evaluate(group, marker.offset)
            return

    def add_record(self, data: bytes, record: RecordSpan, what: ClassKey) -> None:
        version = what[0]
        if version not in _OFFSETS and version != _CLASSIC:
            return
        key = data[record.key_at : record.key_at + record.key_length]
        group, at = text_at(key, VERSION_BYTES)
        if group is None or (self.groups is not None and group not in self.groups):
            return
        is_there = record.value_length >= 0
        if version == _CLASSIC:
            self._deleted[group] = not is_there
        else:
            topic, at = text_at(key, at)
            if topic is None:
                return
            self._note_offset(group, key[VERSION_BYTES : at + _PARTITION_BYTES], is_there)
        self._evaluate(group, record.offset)

    def suspects(self) -> frozenset[bytes]:
        """Return deleted groups with pending offsets. Only for a log that was added from its start."""
        return frozenset(group for group in self.waiting() if self._deleted.get(group))

    def doubtful(self, alive: Collection[bytes]) -> frozenset[bytes]:
        """Return groups that can fail by the added records alone. `alive`: groups that are known not to be deleted."""
        deleted = {group for group, is_deleted in self._deleted.items() if is_deleted}
        touched = {*self.waiting(), *self._emptied}
        return frozenset(deleted | (touched - self._deleted.keys() - set(alive)))

    def refused(self) -> Mapping[bytes, tuple[int, tuple[int, ...]]]:
        """Return group → (offset from which the load fails, producers with pending offsets).

        Only for a log that was added from its start.
        """
        waiting = self.waiting()
        return {group: (offset, tuple(sorted(waiting[group]))) for group, offset in self._refused_from.items()}

    def waiting(self) -> Mapping[bytes, set[int]]:
        """Return group → producers with pending offsets."""
        found: defaultdict[bytes, set[int]] = defaultdict(set)
        for producer, groups in self._waiting.items():
            for group, offsets in groups.items():
                if offsets:
                    found[group].add(producer)
        return found

    def _add(self, batch: RecordBatch, data: bytes, start: int, end: int) -> None:
        self.begin(batch, data)
        if batch.is_control or (self.groups is not None and not any(group in data for group in self.groups)):
            return
        for record in records(batch, data):
            if start <= record.offset < end:
                self.add_record(data, record, classify(data, record))

    def _note_offset(self, group: bytes, offset_of: bytes, is_there: bool) -> None:
        if self._producer is not None:
            waiting = self._waiting.setdefault(self._producer, defaultdict(set))[group]
            if is_there:
                waiting.add(offset_of)
            else:
                waiting.discard(offset_of)
            return
        if not is_there:
            self._emptied.add(group)
        if self.groups is not None:
            loaded = self._loaded[group]
            if is_there:
                loaded.add(offset_of)
            else:
                loaded.discard(offset_of)

    def _evaluate(self, group: bytes, offset: int) -> None:
        if self.groups is None:
            return
        waits = any(groups.get(group) for groups in self._waiting.values())
        if waits and self._deleted.get(group) and not self._loaded[group]:
            self._refused_from.setdefault(group, offset)
        else:
            self._refused_from.pop(group, None)


def text_at(key: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the string with a length prefix at `at`, and the position after it; None if it is incomplete."""
    begin = at + _LENGTH_BYTES
    length = int.from_bytes(key[at:begin], "big", signed=True)
    return (key[begin : begin + length], begin + length) if 0 <= length <= len(key) - begin else (None, at)
