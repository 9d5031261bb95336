"""The claims of nodes: what a run leaves on the host of a node that it changes, for runs of every database."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A process of a run changes a node. Written before its first change of this node."""

    cluster_id: str
    """Kafka's id."""
    node_id: int
    run_id: str
    nonce: str
    """Random, of this process. The database of the run has it before a host has it."""
    at: float
    """Epoch seconds, by the clock of the process."""
    database: str
    """For a reader: the name of the run's database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims that the host of a node has."""

    open: tuple[Claim, ...] = ()
    """Of runs that have not ended here. A killed run leaves its claim open."""
    closed: Claim | None = None
    """The newest of those that have ended."""
    problem: str = ""
    """Why some are unknown; empty if all were read."""

    @property
    def nonces(self) -> frozenset[str]:
        return frozenset(one.nonce for one in (*self.open, self.closed) if one is not None)

    def without(self, known: Collection[str]) -> Claims:
        """Return those whose nonces are not among `known`, and the problem."""
        closed = None if self.closed is None or self.closed.nonce in known else self.closed
        return replace(self, open=tuple(one for one in self.open if one.nonce not in known), closed=closed)
