"""The coordinator's side of a classic group, as far as offsets depend on it: generations, votes, fencing.

A model of GroupCoordinator (3.x) and of ClassicGroup with GroupMetadataManager (4.x), for the simulation of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from dynamic_protocol_consumer.protocols import Partition

Pick = Callable[[Sequence[str]], str]
"""Chooses where Kafka's choice is that of a hash table."""


def most_voted(preferences: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the assignors that a coordinator can select: those with the most votes, in alphabetical order.

    Each member votes for the first assignor of its own list that all members support (GroupMetadata.selectProtocol,
    from 4.0 ClassicGroup.selectProtocol). Kafka resolves a tie by the order of a hash table, so no code can rely on it.
    Empty if no assignor is supported by all members: Kafka rejects such a member.
    """
    if not preferences:
        return ()
    candidates = set(preferences[0]).intersection(*preferences[1:])
    if not candidates:
        return ()
    votes = [next(name for name in names if name in candidates) for names in preferences]
    most = max(votes.count(name) for name in candidates)
    return tuple(sorted(name for name in candidates if votes.count(name) == most))


class GroupState(Enum):
    EMPTY = auto()
    PREPARING = auto()
    COMPLETING = auto()
    STABLE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a member says as it joins: the assignors it has, what it owns and since which generation."""

    assignors: tuple[str, ...]
    owned: frozenset[Partition]
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """A commit that was accepted although the partition was another member's."""

    partition: Partition
    member: str
    owner: str
    offset: int


@dataclass(slots=True)
class Coordinator:
    """One group. Members are known by the ids given to them."""

    state: GroupState = GroupState.EMPTY
    generation: int = 0
    assignor: str = ""
    leader: str = ""
    claims: dict[str, Claim] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    assignment: dict[str, frozenset[Partition]] = field(default_factory=dict)
    offsets: dict[Partition, tuple[int, str]] = field(default_factory=dict)
    overwrites: list[Overwrite] = field(default_factory=list)

    def join(self, member: str, claim: Claim) -> bool:
        """JoinGroup; False when no assignor would be common to all (INCONSISTENT_GROUP_PROTOCOL)."""
        others = [other.assignors for known, other in self.claims.items() if known != member]
        if not most_voted([*others, claim.assignors]):
            return False
        self.claims[member] = claim
        self.joined.add(member)
        if self.state is not GroupState.PREPARING:
            self._prepare()
            self.joined.add(member)
        return True

    def complete_join(self, pick: Pick) -> None:
        """Everybody joined, or the rebalance timeout passed: who did not join is no member any more."""
        for late in self.claims.keys() - self.joined:
            del self.claims[late]
        self.generation += 1
        self.assignor = pick(most_voted([claim.assignors for claim in self.claims.values()]))
        if self.leader not in self.claims:
            self.leader = pick(sorted(self.claims))
        self.assignment = {}
        self.state = GroupState.COMPLETING

    def sync(self, assignment: Mapping[str, frozenset[Partition]]) -> None:
        """The leader's SyncGroup."""
        self.assignment = dict(assignment)
        self.state = GroupState.STABLE
        self.joined = set()

    def leave(self, member: str) -> None:
        """LeaveGroup, or the end of a session."""
        if self.claims.pop(member, None) is None:
            return
        self.joined.discard(member)
        if not self.claims:
            self.state, self.assignment = GroupState.EMPTY, {}
        elif self.state is not GroupState.PREPARING:
            self._prepare()

    def knows(self, member: str, generation: int) -> bool:
        return member in self.claims and generation == self.generation

    def commit(self, member: str, generation: int, partition: Partition, offset: int) -> bool:
        """OffsetCommit; False when it is fenced or the group is between JoinGroup and SyncGroup."""
        if not self.knows(member, generation) or self.state is GroupState.COMPLETING:
            return False
        for owner, partitions in self.assignment.items():
            if owner != member and partition in partitions:
                self.overwrites.append(Overwrite(partition=partition, member=member, owner=owner, offset=offset))
        before, by = self.offsets.get(partition, (0, member))
        if offset < before and by != member:
            self.overwrites.append(Overwrite(partition=partition, member=member, owner=by, offset=offset))
        self.offsets[partition] = (offset, member)
        return True

    def _prepare(self) -> None:
        self.state = GroupState.PREPARING
        self.joined = set()
