"""What a process has claimed while it acts, and when it last saw that no other database claims a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import RLock

from kafka_rollout.model.claims import Claim


@dataclass(slots=True)
class ClaimedNodes:
    """In the memory of the process, for the action that it makes now. Times are those of its monotonic clock."""

    guard: RLock = field(default_factory=RLock)
    nonce: str = ""
    written: dict[int, tuple[Claim, float]] = field(default_factory=dict)
    """Node id → the claim on its host, and when it was there."""
    changed: set[int] = field(default_factory=set)
    """Nodes that the action has begun to change."""
    seen_at: float = float("-inf")
    """When the newest reading began in which no other database had a claim that refuses."""

    def begin(self, nonce: str) -> None:
        """Forget what another action of this process has claimed."""
        if nonce != self.nonce:
            self.nonce, self.seen_at = nonce, float("-inf")
            self.written.clear()
            self.changed.clear()

    def is_checked(self, node_id: int) -> bool:
        """Return whether the claims of the other nodes were read after the claim of this node was on its host."""
        claimed = self.written.get(node_id)
        return claimed is not None and self.seen_at >= claimed[1]
