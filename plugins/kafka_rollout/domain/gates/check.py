"""Gates: which there are, and the checks of their conditions. Input and output are data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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


class GateKind(StrEnum):
    BEFORE_STOP = "before-stop"
    AFTER_START = "after-start"
    FINALIZED = "finalized"
    SNAPSHOT = "snapshot"
    METADATA_VERSION = "metadata-version"
    METADATA_LOG = "metadata-log"  # of a downgrade: the older release can read every node's log
    GROUPS = "groups"  # groups that lose their type are converted, and the path's releases can load what is left
    LEVELS = "levels"  # of a downgrade, at its end: all planned levels, however they were reached
    FINAL_METADATA_VERSION = "final-metadata-version"  # METADATA_VERSION once more, on the older release


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRef:
    """One gate of a run. The two gates of a node have `release_step` (a key of the plan or of a rollback) and
    `node_id`; both are None for a gate of the whole cluster."""

    kind: GateKind
    release_step: str | None = None
    node_id: int | None = None

    def __str__(self) -> str:
        return f"{self.kind.value} of node {self.node_id}" if self.node_id is not None else self.kind.value
