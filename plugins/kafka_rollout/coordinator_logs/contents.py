"""Groups and transactional ids, built from the newest record of each key in the coordinator logs.

The states are derived as the coordinators derive them at load (`maybeUpdateGroupState` of GroupMetadataManager,
ConsumerGroup, ShareGroup and StreamsGroup; TransactionState). A group that only committed offsets has no group record.
The coordinators create an empty classic group for it (OffsetMetadataManager.replay).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

GROUP_METADATA = "GroupMetadata"  # the only group record of the classic protocol
TRANSACTION_LOG = "TransactionLog"
SHARE_SNAPSHOT = "ShareSnapshot"

LISTED = 10_000  # limit of groups and transactional ids in a scan; the counts include all

_MODERN = re.compile(
    r"(Consumer|Share|Streams)Group(Metadata|MemberMetadata|TargetAssignmentMetadata|CurrentMemberAssignment|Topology)"
)
_TRANSACTION_STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"),
    "PrepareEpochFence",
)
_STABLE_MEMBER = 0  # MemberState.STABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRecord:
    """The newest record of one key."""

    topic: str
    partition: int
    record: str
    """Name of its type in the catalogue."""
    key: Mapping[str, Any]
    value: Mapping[str, Any] | None
    """None: a tombstone."""
    offset: int
    tags: frozenset[tuple[int, int, str, int]] = frozenset()
    """Key version, value version, path and number of each tagged field (scan.TaggedFields)."""

    @property
    def owner(self) -> str:
        """The group or the transactional id."""
        key = camel_fields(self.key)
        return str(key.get("group", key.get("groupId", key.get("transactionalId", ""))))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One group."""

    name: str
    type: str
    """Classic, consumer, share or streams."""
    state: str
    members: int
    partition: int
    protocol: str | None = None
    """Protocol type of its members (`consumer`, `connect`)."""
    assignor: str | None = None
    """Assignor of the classic group, or the server-side assignors that members requested."""
    classic_members: int = 0
    """Members of a consumer group that still use the classic protocol (during a conversion)."""
    share_partitions: int = 0
    """Number of share partitions with state."""
    offsets_only: bool = False
    """There is no group record, only committed offsets (tools, and consumers that assign partitions themselves)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalIdSummary:
    """One transactional id."""

    name: str
    state: str
    partition: int
    partitions: int
    """Those of its transaction."""
    updated_at: int
    """Epoch ms; −1: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """Number of groups of one type in one state, and the number of their members."""

    type: str
    state: str
    groups: int
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInventory:
    """The groups and transactional ids of the logs."""

    groups: tuple[GroupSummary, ...] = ()
    transactional_ids: tuple[TransactionalIdSummary, ...] = ()
    group_counts: tuple[GroupCount, ...] = ()
    transactional_id_counts: Mapping[str, int] = field(default_factory=dict)
    commits: Mapping[str, int] = field(default_factory=dict)
    """Topic → offset commit records. The counts include all."""
    groups_left_out: int = 0
    transactional_ids_left_out: int = 0

    def shortened(self) -> GroupInventory:
        """Return at most `LISTED` groups and transactional ids, those with members or in a transaction first."""
        groups = sorted(self.groups, key=lambda group: (-group.members, group.name, group.type))
        ids = sorted(self.transactional_ids, key=lambda known: (-known.partitions, known.name))
        return replace(
            self,
            groups=tuple(groups[:LISTED]),
            transactional_ids=tuple(ids[:LISTED]),
            groups_left_out=self.groups_left_out + max(0, len(groups) - LISTED),
            transactional_ids_left_out=self.transactional_ids_left_out + max(0, len(ids) - LISTED),
        )


@dataclass(slots=True)
class _ModernGroup:
    """State of one group of a newer protocol (KIP-848, KIP-932, KIP-1071), built from its records."""

    partition: int = -1
    epoch: int = -1
    assignment_epoch: int = -1
    has_topology: bool = False
    members: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    assignments: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def add(self, part: str, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        if part == "Metadata":
            self.epoch = value["epoch"]
        elif part == "TargetAssignmentMetadata":
            self.assignment_epoch = value["assignmentEpoch"]
        elif part == "Topology":
            self.has_topology = True
        elif part == "MemberMetadata":
            self.members[key["memberId"]] = value
        else:
            self.assignments[key["memberId"]] = value

    def state(self, kind: str) -> str:
        if not self.members:
            return "Empty"
        if kind == "share":
            return "Stable"
        if kind == "streams" and not self.has_topology:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        settled = all(self._is_settled(self.assignments.get(member, {})) for member in self.members)
        return "Stable" if settled else "Reconciling"

    def _is_settled(self, assignment: Mapping[str, Any]) -> bool:
        return assignment.get("state") == _STABLE_MEMBER and assignment.get("memberEpoch") == self.assignment_epoch

    def summary(self, kind: str, name: str, share_partitions: int) -> GroupSummary:
        assignors = sorted(
            {str(member["serverAssignor"]) for member in self.members.values() if member.get("serverAssignor")}
        )
        return GroupSummary(
            name=name,
            type=kind,
            state=self.state(kind),
            members=len(self.members),
            partition=self.partition,
            protocol=kind,
            assignor=", ".join(assignors) or None,
            classic_members=sum(member.get("classicMemberMetadata") is not None for member in self.members.values()),
            share_partitions=share_partitions,
        )


def take_inventory(
    records: Iterable[StateRecord],
    commits: Mapping[str, int] | None = None,
    committing: Mapping[str, int] | None = None,
) -> GroupInventory:
    """Return the groups and transactional ids that these records describe. Other record types are skipped.

    `records`: at most one per key, the newest. `commits`: topic → offset commit records. `committing`: group with
    committed offsets → its partition.
    """
    groups: list[GroupSummary] = []
    ids: list[TransactionalIdSummary] = []
    modern: defaultdict[tuple[str, str], _ModernGroup] = defaultdict(_ModernGroup)
    share_partitions: Counter[str] = Counter()
    for record in records:
        if record.value is None:
            continue
        key, value = camel_fields(record.key), camel_fields(record.value)
        if record.record == GROUP_METADATA:
            groups.append(_classic(record.partition, key, value))
        elif record.record == TRANSACTION_LOG:
            ids.append(_transactional_id(record.partition, key, value))
        elif record.record == SHARE_SNAPSHOT:
            share_partitions[key["groupId"]] += 1
        elif match := _MODERN.fullmatch(record.record):
            group = modern[match[1].lower(), key["groupId"]]
            group.partition = record.partition
            group.add(match[2], key, value)
    groups += (
        group.summary(kind, name, share_partitions[name] if kind == "share" else 0)
        for (kind, name), group in modern.items()
    )
    described = {group.name for group in groups}
    groups += (
        GroupSummary(name=name, type="classic", state="Empty", members=0, partition=partition, offsets_only=True)
        for name, partition in (committing or {}).items()
        if name not in described
    )
    return GroupInventory(
        groups=tuple(sorted(groups, key=lambda group: (group.name, group.type))),
        transactional_ids=tuple(sorted(ids, key=lambda known: known.name)),
        group_counts=_count_groups(groups),
        transactional_id_counts=dict(sorted(Counter(known.state for known in ids).items())),
        commits=dict(sorted((commits or {}).items())),
    )


def describes_owner(record: str) -> bool:
    """Return whether take_inventory uses records of this type."""
    return record in {GROUP_METADATA, TRANSACTION_LOG, SHARE_SNAPSHOT} or _MODERN.fullmatch(record) is not None


def camel_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields in lower camel case. Kafka's definitions use `groupId` in some records and `GroupId` in others."""
    return {name[:1].lower() + name[1:]: value for name, value in fields.items()}


def _classic(partition: int, key: Mapping[str, Any], value: Mapping[str, Any]) -> GroupSummary:
    members = len(value["members"])
    return GroupSummary(
        name=key["group"],
        type="classic",
        state="Stable" if members else "Empty",
        members=members,
        partition=partition,
        protocol=value["protocolType"] or None,
        assignor=value["protocol"] or None,
    )


def _transactional_id(partition: int, key: Mapping[str, Any], value: Mapping[str, Any]) -> TransactionalIdSummary:
    status = value["transactionStatus"]
    known = 0 <= status < len(_TRANSACTION_STATES)
    return TransactionalIdSummary(
        name=key["transactionalId"],
        state=_TRANSACTION_STATES[status] if known else f"unknown ({status})",
        partition=partition,
        partitions=sum(len(camel_fields(topic)["partitionIds"]) for topic in value["transactionPartitions"] or ()),
        updated_at=value["transactionLastUpdateTimestampMs"],
    )


def _count_groups(groups: Iterable[GroupSummary]) -> tuple[GroupCount, ...]:
    members: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for group in groups:
        members[group.type, group.state].append(group.members)
    return tuple(
        GroupCount(type=kind, state=state, groups=len(numbers), members=sum(numbers))
        for (kind, state), numbers in sorted(members.items())
    )
