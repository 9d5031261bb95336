"""Gates: the conditions that let the next step begin. Pure: looks in, evidence out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PROCESS = "process"  # the condition that a node has one


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a gate at one look: `holds`, and `evidence` in a sentence (what was seen)."""

    name: str
    holds: bool
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """One look at a gate. `gate` is `before node 3`, `after node 3`, `finalized`, …; `at` in epoch seconds."""

    gate: str
    at: float
    conditions: tuple[Condition, ...]
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return all(condition.holds for condition in self.conditions)

    @property
    def waits_for(self) -> str:
        """What the gate waits for, in one line; empty when it holds."""
        return "; ".join(f"{c.name}: {c.evidence}" for c in self.conditions if not c.holds)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeStop:
    """What a node was in before its stop; can only be seen before it, so it is recorded before it.

    `in_isr` and `leads` are partitions as `topic-partition`.
    """

    node_id: int
    release: str
    at: float
    in_isr: frozenset[str]
    leads: frozenset[str]
    was_active_controller: bool
