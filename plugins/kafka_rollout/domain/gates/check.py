"""Gate checks: the conditions that must be met before the next step begins. Input and output are data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PROCESS = "process"  # name of the condition that the node has a process


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a gate in one check. `holds`: whether it is met. `evidence`: the measured fact as a sentence."""

    name: str
    holds: bool
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """One check of a gate. `gate`: `before node 3`, `after node 3`, `finalized`, …; `at`: epoch seconds."""

    gate: str
    at: float
    conditions: tuple[Condition, ...]
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return all(condition.holds for condition in self.conditions)

    @property
    def waits_for(self) -> str:
        """The unmet conditions in one line; empty if the check passed."""
        return "; ".join(f"{c.name}: {c.evidence}" for c in self.conditions if not c.holds)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeStop:
    """State of a node before its stop. It is stored because it cannot be observed afterwards.

    `in_isr` and `leads`: partitions as `topic-partition`.
    """

    node_id: int
    release: str
    at: float
    in_isr: frozenset[str]
    leads: frozenset[str]
    was_active_controller: bool
