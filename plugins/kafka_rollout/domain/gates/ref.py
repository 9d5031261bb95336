"""Names of gates: the kind of a gate, and for the gates of a node also the release step and the node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
