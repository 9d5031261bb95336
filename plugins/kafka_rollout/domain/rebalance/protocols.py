"""Rebalance protocols (KIP-429) and the assignors that speak them, by the names that go over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kafka_rollout.domain.model.errors import UserError

Partition = tuple[str, int]
"""Topic and number; kafka-python's TopicPartition is one."""


class RebalanceProtocol(IntEnum):
    """EAGER: everything is revoked before joining. COOPERATIVE: what moves is revoked after the rebalance."""

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignor:
    """An assignor's name and the protocols it supports."""

    name: str
    protocols: frozenset[RebalanceProtocol]

    @property
    def is_cooperative(self) -> bool:
        return RebalanceProtocol.COOPERATIVE in self.protocols


RANGE = Assignor(name="range", protocols=frozenset({RebalanceProtocol.EAGER}))
# Both, as Java's CooperativeStickyAssignor says: owning nothing is a special case of cooperating.
COOPERATIVE_STICKY = Assignor(name="cooperative-sticky", protocols=frozenset(RebalanceProtocol))


def highest_common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """The protocol a member starts with; UserError when its assignors have none in common."""
    assignors = tuple(assignors)
    common = frozenset(RebalanceProtocol).intersection(*(assignor.protocols for assignor in assignors))
    if not assignors or not common:
        names = ", ".join(assignor.name for assignor in assignors) or "none"
        raise UserError(
            f"The assignors of a consumer need a rebalance protocol in common; these have none: {names}.",
            remedy=f"Configure {COOPERATIVE_STICKY.name} and {RANGE.name}.",
        )
    return max(common)


def most_voted(preferences: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The assignors a coordinator may select: those with the most votes, in alphabetical order.

    Each member, given by its assignors in order of preference, votes for the first of its own that all members
    support (GroupMetadata.selectProtocol, from 4.0 ClassicGroup.selectProtocol). Kafka settles a draw by the order of
    a hash table, so nothing may rely on it. Empty when no assignor is supported by all: Kafka refuses such a member.
    """
    if not preferences:
        return ()
    candidates = set(preferences[0]).intersection(*preferences[1:])
    if not candidates:
        return ()
    votes = [next(name for name in names if name in candidates) for names in preferences]
    most = max(votes.count(name) for name in candidates)
    return tuple(sorted(name for name in candidates if votes.count(name) == most))
