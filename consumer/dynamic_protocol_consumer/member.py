"""The state of one member in the dynamic rebalance protocol (KAFKA-12477).

A member starts at the highest protocol that all its assignors support. After each rebalance it uses the highest
protocol of the selected assignor. An assignor can only be selected if every member has it. So the first rebalance with
a cooperative assignor proves that all members support COOPERATIVE.

The short circuit: a COOPERATIVE member kept its partitions while it joined. If the selected assignor does not support
COOPERATIVE, the leader computed the assignment without knowing that. Other members may already use the partitions that
this member no longer has. These partitions are lost, not revoked. Commits for them are rejected until they are assigned
to this member again. The same applies to partitions that a member claims from before a rebalance whose result it did
not receive.

In a group of the new protocol (KIP-848) none of this applies. The coordinator returns the first assignor of the member
itself, and the epoch of the member as its generation, which can rise by more than 1. It assigns a partition to another
member only after this one has joined without it (GroupMetadataManager.classicGroupJoinToConsumerGroup, 4.3.1). So
partitions are revoked there, and never lost while the member stays in the group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from dynamic_protocol_consumer.protocols import Assignor, Partition, RebalanceProtocol, highest_common_protocol

_NOTHING: frozenset[Partition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The result of a rebalance for one member, to be done in the order of the fields."""

    lost: frozenset[Partition] = _NOTHING
    """Partitions to give up (on_partitions_lost, on_partitions_revoked)."""
    revoked: frozenset[Partition] = _NOTHING
    """Partitions to give up (on_partitions_lost, on_partitions_revoked)."""
    added: frozenset[Partition] = _NOTHING
    """New partitions (on_partitions_assigned)."""
    rejoin: bool = False
    """The revoked partitions are unassigned until the next rebalance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """State of one member. Its client stores the owned partitions and passes them in."""

    assignors: tuple[Assignor, ...]
    protocol: RebalanceProtocol
    blocked: frozenset[Partition] = _NOTHING
    generation: int | None = None
    """The generation joined last; None outside a group."""
    selected: Assignor | None = None
    """The assignor of a generation that was joined, while its assignment is pending."""
    in_classic_group: bool = True
    """Whether a leader computes the assignments: the JoinGroup response of a group of the new protocol names none."""
    claims_are_stale: bool = False
    """Another rebalance may have assigned the partitions of this member to others."""

    @classmethod
    def start(cls, assignors: Iterable[Assignor]) -> Self:
        """Return a member that has not joined. Raises ValueError if its assignors have no common protocol."""
        assignors = tuple(assignors)
        return cls(assignors=assignors, protocol=highest_common_protocol(assignors))

    def to_revoke_before_joining(self, owned: frozenset[Partition]) -> frozenset[Partition]:
        return owned if self.protocol is RebalanceProtocol.EAGER else _NOTHING

    def joined(self, generation: int, assignor: str, *, in_classic_group: bool = True) -> Self:
        """Apply a JoinGroup response: generation and assignor.

        A generation between two that this member joined was missed, unless both were epochs of the new protocol. If
        the group changed its protocol in between, a missed generation cannot be excluded.
        """
        counts = in_classic_group or self.in_classic_group
        missed_one = counts and self.generation is not None and generation > self.generation + 1
        return replace(
            self,
            generation=generation,
            selected={known.name: known for known in self.assignors}[assignor],
            in_classic_group=in_classic_group,
            claims_are_stale=self.claims_are_stale or missed_one or self._is_short_circuit,
        )

    def assigned(self, *, owned: frozenset[Partition], assigned: frozenset[Partition]) -> tuple[Self, Handover]:
        """Apply a SyncGroup response. Return the member during the handover, and the handover."""
        if self.selected is None:
            raise ValueError("an assignment must follow a JoinGroup")
        gone = owned - assigned
        if self.claims_are_stale:
            lost, revoked = owned, _NOTHING
        elif self._is_short_circuit:
            lost, revoked = gone, _NOTHING
        else:
            lost, revoked = _NOTHING, gone
        after = replace(
            self,
            protocol=max(self.selected.protocols),
            blocked=self.blocked | lost,
            selected=None,
            claims_are_stale=False,
        )
        rejoin = bool(gone) and (self.selected.is_cooperative or not self.in_classic_group)
        return after, Handover(lost=lost, revoked=revoked, added=assigned - (owned - lost), rejoin=rejoin)

    def took_over(self, added: frozenset[Partition]) -> Self:
        """Apply the handover: the member owns these partitions, from their committed offsets, and can commit them."""
        return replace(self, blocked=self.blocked - added)

    def out_of_group(self) -> Self:
        """Apply the removal from the group: all owned partitions are lost, and the commits are fenced."""
        return replace(self, generation=None, selected=None, in_classic_group=True, claims_are_stale=False)

    def refused(self, partitions: Iterable[Partition]) -> frozenset[Partition]:
        """Return the partitions whose offsets this member must not commit."""
        return self.blocked.intersection(partitions)

    @property
    def _is_short_circuit(self) -> bool:
        """Return whether the last generation was computed for members that own nothing."""
        return (
            self.in_classic_group
            and self.protocol is RebalanceProtocol.COOPERATIVE
            and self.selected is not None
            and not self.selected.is_cooperative
        )
