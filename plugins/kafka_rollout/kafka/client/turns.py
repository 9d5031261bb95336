"""Turns of the brokers for requests about all partitions, which cost a broker of a large cluster much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

PARTITIONS_PER_S = 40_000  # of one broker: 200,000 partitions every 5 s
SMALL_S = 0.25  # a turn that is shorter than this needs no limit


class RequestTurns(Protocol):
    """The turns of one cluster's brokers, which all processes share."""

    def take(self, nodes: Sequence[int]) -> tuple[int, float]:
        """Take the next turn of the broker that is free first; return it, and the seconds until the turn begins.

        At once without a turn if the wait would be too long, and while turns have no length.
        """
        ...

    def set_length(self, node_id: int, seconds: float) -> None:
        """Set the length of the turn that this broker has now, and of all later turns; 0: they need no limit."""
        ...
