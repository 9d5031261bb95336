"""Rebalances and unassigned time of groups during a run, from repeated checks.

A rebalance that starts and ends between two checks is detected only by its effects: other members, other assignments or
a higher epoch. Times are as precise as the interval between the checks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kafka_rollout.model.groups import COOPERATIVE_STICKY, DescribedGroup, PartitionId


@dataclass(slots=True, kw_only=True)
class GroupHistory:
    """One group so far.

    A partition counts after it was first assigned. During a rebalance of a classic group no coordinator reports the
    assignment: members of an eager assignor have revoked all partitions, members of a cooperative one keep them.
    """

    group_id: str
    type: str = ""
    assignor: str = ""
    most_members: int = 0
    rebalances: int = 0
    watched_s: float = 0.0
    unseen_s: float = 0.0
    """Seconds without a description."""
    unowned_s: defaultdict[PartitionId, float] = field(default_factory=lambda: defaultdict(float))
    """Partition → seconds unassigned."""
    _owners: dict[PartitionId, str] = field(default_factory=dict)
    _members: frozenset[str] = frozenset()
    _epoch: int | None = None
    _rebalancing: bool = False
    _seen_before: bool = False
    _known: set[PartitionId] = field(default_factory=set)

    def add(self, group: DescribedGroup | None, since_s: float) -> None:
        """Record one check, `since_s` seconds after the previous one; None if no coordinator described the group."""
        self.watched_s += since_s
        if group is None or group.problem:
            self.unseen_s += since_s
            return
        members = frozenset(member.member_id for member in group.members)
        owners = self._owners_now(group, members)
        self.rebalances += self._rebalances_in(group, members, owners)
        for partition in self._known - owners.keys():
            self.unowned_s[partition] += since_s
        self._known |= owners.keys()
        self.type, self.assignor = group.type, group.assignor or self.assignor
        self.most_members = max(self.most_members, len(members))
        self._owners, self._members, self._epoch = owners, members, group.epoch
        self._rebalancing, self._seen_before = group.is_rebalancing, True

    def _owners_now(self, group: DescribedGroup, members: frozenset[str]) -> dict[PartitionId, str]:
        if not group.is_rebalancing:
            return {partition: member.member_id for member in group.members for partition in member.assigned}
        if self.assignor != COOPERATIVE_STICKY:
            return {}
        return {partition: owner for partition, owner in self._owners.items() if owner in members}

    def _rebalances_in(self, group: DescribedGroup, members: frozenset[str], owners: dict[PartitionId, str]) -> int:
        if not self._seen_before:
            return 0
        if group.epoch is not None and self._epoch is not None:
            return max(0, group.epoch - self._epoch)
        if group.is_rebalancing or self._rebalancing:
            return int(group.is_rebalancing and not self._rebalancing)
        return int(members != self._members or owners != self._owners)

    def to_dict(self) -> dict[str, Any]:
        worst = max(self.unowned_s, key=lambda partition: self.unowned_s[partition], default=None)
        return {
            "group": self.group_id,
            "type": self.type,
            "assignor": self.assignor,
            "members": self.most_members,
            "rebalances": self.rebalances,
            "partitions": len(self._known),
            "unowned_partition_s": round(sum(self.unowned_s.values()), 1),
            "longest_unowned_s": round(self.unowned_s[worst], 1) if worst else 0.0,
            "longest_unowned": f"{worst[0]}-{worst[1]}" if worst else None,
            "unowned_s": {f"{topic}-{number}": round(s, 1) for (topic, number), s in sorted(self.unowned_s.items())},
            "watched_s": round(self.watched_s, 1),
            "unseen_s": round(self.unseen_s, 1),
        }


@dataclass(slots=True, kw_only=True)
class MonitoredGroups:
    """All groups of a cluster over time. Times: seconds of a monotonic clock."""

    groups: dict[str, GroupHistory] = field(default_factory=dict)
    checks: int = 0
    longest_pause_s: float = 0.0
    _last: float | None = None

    def add(self, groups: Iterable[DescribedGroup], at: float) -> None:
        since_s = 0.0 if self._last is None else at - self._last
        self._last = at
        self.checks += 1
        self.longest_pause_s = max(self.longest_pause_s, since_s)
        by_id = {group.group_id: group for group in groups}
        for group_id in self.groups.keys() | by_id.keys():
            if group_id in self.groups:
                self.groups[group_id].add(by_id.get(group_id), since_s)
            else:
                self.groups[group_id] = GroupHistory(group_id=group_id)
                self.groups[group_id].add(by_id[group_id], 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; groups that rebalanced come first."""
        groups = [group.to_dict() for group in self.groups.values()]
        return {
            "checks": self.checks,
            "longest_pause_s": round(self.longest_pause_s, 1),
            "groups": sorted(groups, key=lambda one: (-one["unowned_partition_s"], -one["rebalances"], one["group"])),
        }
