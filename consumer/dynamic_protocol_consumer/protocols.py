"""Rebalance protocols (KIP-429) and assignors, with their names in the Kafka protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

Partition = tuple[str, int]
"""Topic and partition number; kafka-python's TopicPartition is one."""


class RebalanceProtocol(IntEnum):
    """EAGER: a member revokes all partitions before it joins.

    COOPERATIVE: it revokes moved partitions after the rebalance.
    """

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
# Both protocols, as in Java's CooperativeStickyAssignor: owning nothing is a special case of COOPERATIVE.
COOPERATIVE_STICKY = Assignor(name="cooperative-sticky", protocols=frozenset(RebalanceProtocol))


def highest_common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """Return the protocol with which a member starts. Raises ValueError if its assignors have no common protocol."""
    assignors = tuple(assignors)
    common = frozenset(RebalanceProtocol).intersection(*(assignor.protocols for assignor in assignors))
    if not assignors or not common:
        names = ", ".join(assignor.name for assignor in assignors) or "none"
        raise ValueError(
            f"The assignors of a consumer need a common rebalance protocol. These have none: {names}."
            f" Configure {COOPERATIVE_STICKY.name} and {RANGE.name}."
        )
    return max(common)
