"""The plan: the ordered steps from what is observed to what is wanted, frozen and identified by a hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.findings import Finding
from kafka_rollout.domain.model.releases import METADATA_VERSION, Release


class Direction(StrEnum):
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"


class ReleaseStepPosition(StrEnum):
    """Where a release step stands in the DAG's graph: by way of a tolerant release first (KIP-915), then to the
    target."""

    VIA = "via"
    TARGET = "target"


class Undo(StrEnum):
    """Whether today's Kafka can take a feature back to the level it had."""

    POSSIBLE = "possible"
    IMPOSSIBLE = "impossible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStep:
    """One node's turn in a release step. `section` is `controllers` (combined nodes included) or `brokers`."""

    node_id: int
    name: str
    section: str
    active_controller: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseStep:
    """One pass over all nodes from a release to the next; `reason` says why the release step exists."""

    from_release: Release
    to_release: Release
    reason: str
    order: tuple[NodeStep, ...]

    @property
    def key(self) -> str:
        """Identifies the release step in a run's record: `3.9.1-to-4.3.1`."""
        return f"{self.from_release}-to-{self.to_release}"

    def reversed(self) -> ReleaseStep:
        """The way back of this release step: same gates, nodes in the reverse order."""
        return ReleaseStep(
            from_release=self.to_release,
            to_release=self.from_release,
            reason=f"Roll back to {self.from_release}.",
            order=tuple(reversed(self.order)),
        )

    def node_step(self, node_id: int) -> NodeStep | None:
        return next((node_step for node_step in self.order if node_step.node_id == node_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureChange:
    """One feature to be finalized; `current` 0 where it is not finalized. `undo_source` is who says so."""

    feature: str
    current: int
    target: int
    undo: Undo
    undo_source: str
    loss: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One line of a node's configuration that the roll brings in or takes out (`value` None) with a release."""

    node_id: int
    release: Release
    key: str
    value: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Frozen by the first task of a run. `release_steps` is empty when every node already runs the target.

    `unsafe`: levels that fall are asked for as UNSAFE_DOWNGRADE (KIP-1155: go on although something is lost).
    `offline`: released Kafka refuses the level, so it is brought about with all nodes stopped, and the binary with it.
    """

    cluster: str
    cluster_id: str
    direction: Direction
    source: Release
    target: Release
    release_steps: tuple[ReleaseStep, ...]
    feature_changes: tuple[FeatureChange, ...]
    config_changes: tuple[ConfigChange, ...]
    findings: tuple[Finding, ...]
    unsafe: bool = False
    offline: bool = False

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of what the plan does; findings are looked at anew and are not part of it."""
        what = {key: value for key, value in asdict(self).items() if key != "findings"}
        return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def online_changes(self) -> tuple[FeatureChange, ...]:
        """The changes that the controller is asked for: offline it is not asked for metadata.version."""
        return tuple(c for c in self.feature_changes if not (self.offline and c.feature == METADATA_VERSION))

    @property
    def offline_changes(self) -> tuple[FeatureChange, ...]:
        """The others: they come about while all nodes are stopped."""
        return tuple(change for change in self.feature_changes if change not in self.online_changes)

    @property
    def way(self) -> str:
        """From where to where, in a few words."""
        return f"{self.source} → {self.target}" if self.source != self.target else f"features, on {self.target}"

    @property
    def levels(self) -> dict[str, int]:
        """The planned level of every feature that is changed."""
        return {change.feature: change.target for change in self.feature_changes}

    @property
    def blockers(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == "blocker")

    def release_step(self, key: str) -> ReleaseStep:
        """A release step, or the way back of one, by its key."""
        for release_step in self.release_steps:
            if release_step.key == key:
                return release_step
            if release_step.reversed().key == key:
                return release_step.reversed()
        raise UserError(
            f"The plan has no release step {key}.",
            remedy=f"It has {', '.join(h.key for h in self.release_steps) or 'none'}.",
        )

    def release_step_at(self, position: ReleaseStepPosition) -> ReleaseStep | None:
        """The release step at a place of the DAG, whose graph is drawn before the plan is known: the last release step
        is TARGET."""
        if position is ReleaseStepPosition.TARGET:
            return self.release_steps[-1] if self.release_steps else None
        return self.release_steps[0] if len(self.release_steps) > 1 else None
