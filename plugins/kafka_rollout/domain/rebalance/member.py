"""One member's side of the dynamic rebalance protocol (KAFKA-12477).

A member starts at the highest protocol common to its assignors and after each rebalance takes the highest that the
selected assignor supports: an assignor can only be selected when every member has it, so the first rebalance that
selects a cooperative one tells each member that all understand COOPERATIVE.

The short circuit: a COOPERATIVE member kept its partitions while it joined. When the selected assignor does not
support COOPERATIVE, whoever computed the assignment did not know that, and the partitions this member no longer has
may be in use by others already. They are lost, not revoked, and commits for them are refused until they are assigned
to it again. The same holds for whatever a member claims from before a rebalance whose outcome it never heard of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from kafka_rollout.domain.rebalance.protocols import Assignor, Partition, RebalanceProtocol, highest_common_protocol

_NOTHING: frozenset[Partition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What a rebalance means for one member, to be done in the order of the fields.

    `lost` and `revoked` are given up (on_partitions_lost and on_partitions_revoked), `added` are new
    (on_partitions_assigned); `rejoin`: what was given up has no owner until the group rebalances once more.
    """

    lost: frozenset[Partition] = _NOTHING
    revoked: frozenset[Partition] = _NOTHING
    added: frozenset[Partition] = _NOTHING
    rejoin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """State of one member. What it owns is kept by its client and handed in."""

    assignors: tuple[Assignor, ...]
    protocol: RebalanceProtocol
    blocked: frozenset[Partition] = _NOTHING
    generation: int | None = None
    """The generation joined last; None outside a group."""
    selected: Assignor | None = None
    """The assignor of a generation that was joined and whose assignment has not come."""
    claims_are_stale: bool = False
    """A rebalance went by in which others may have been given what this member holds."""

    @classmethod
    def start(cls, assignors: Iterable[Assignor]) -> Self:
        """A member that has not joined. UserError when its assignors have no protocol in common."""
        assignors = tuple(assignors)
        return cls(assignors=assignors, protocol=highest_common_protocol(assignors))

    def to_revoke_before_joining(self, owned: frozenset[Partition]) -> frozenset[Partition]:
        return owned if self.protocol is RebalanceProtocol.EAGER else _NOTHING

    def joined(self, generation: int, assignor: str) -> Self:
        """The coordinator answered JoinGroup: this generation, this assignor."""
        missed_one = self.generation is not None and generation > self.generation + 1
        return replace(
            self,
            generation=generation,
            selected={known.name: known for known in self.assignors}[assignor],
            claims_are_stale=self.claims_are_stale or missed_one or self._is_short_circuit,
        )

    def assigned(self, *, owned: frozenset[Partition], assigned: frozenset[Partition]) -> tuple[Self, Handover]:
        """The coordinator answered SyncGroup: the member while it gives up partitions, and all it does now."""
        if self.selected is None:
            raise ValueError("an assignment follows a JoinGroup")
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
        rejoin = bool(gone) and self.selected.is_cooperative
        return after, Handover(lost=lost, revoked=revoked, added=assigned - (owned - lost), rejoin=rejoin)

    def took_over(self, added: frozenset[Partition]) -> Self:
        """The partitions are this member's now: it starts from their committed offsets and may commit them."""
        return replace(self, blocked=self.blocked - added)

    def out_of_group(self) -> Self:
        """The coordinator no longer knows this member: all it owned is lost, and its commits are fenced."""
        return replace(self, generation=None, selected=None, claims_are_stale=False)

    def refused(self, partitions: Iterable[Partition]) -> frozenset[Partition]:
        """Those of the partitions whose offsets this member must not commit."""
        return self.blocked.intersection(partitions)

    @property
    def _is_short_circuit(self) -> bool:
        """Whether the generation joined last was computed by rules under which this member should own nothing."""
        return (
            self.protocol is RebalanceProtocol.COOPERATIVE
            and self.selected is not None
            and not self.selected.is_cooperative
        )
