"""What was observed for a plan, and what the plan changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_rollout.base.findings import Checked, Finding
from kafka_rollout.features.registrations import SeenRegistrations
from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.model.configs import DynamicConfigs, NodeConfigs
from kafka_rollout.model.plan import FeatureChange, Lowering, ReleaseStep
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.agreement import Directories
from kafka_rollout.planning.findings.starts import ObservedStarts
from kafka_rollout.releases.facts import Catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanObservation:
    """What was observed for one plan. A node whose value is unknown or not observable is not in a mapping."""

    cluster: ClusterSpec
    """As in the inventory."""
    catalogue: Catalogue
    """With the classes of coordinators that the configuration causes (`with_configured_classes`)."""
    state: ClusterState
    configs: NodeConfigs
    """Node id → setting → current value."""
    starts: ObservedStarts
    """What the nodes read at their starts on the releases ahead (release_overrides applied)."""
    starts_again: ObservedStarts = field(default_factory=ObservedStarts)
    """What the nodes read if they start on their release of now, with their files of now. Empty unless the request
    allows a stop of all controllers or nodes."""
    dynamic: DynamicConfigs | Finding
    """In the metadata; the finding if it cannot be read."""
    java: Mapping[int, int]
    """Node id → feature version (17)."""
    directories: Directories = field(default_factory=dict)
    """As in `NextStart` of the agreement."""
    registrations: MetadataRegistrations | None = None
    """In the metadata log; None if it was not read."""
    registered: SeenRegistrations | None = None
    """The registrations of brokers that run the target already, compared with its levels; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a plan changes, with the checks of this decision."""

    release_steps: tuple[ReleaseStep, ...]
    feature_changes: tuple[FeatureChange, ...]
    lowering: Lowering = Lowering.ONLINE
    """Of metadata.version."""
    checked: tuple[Checked, ...] = ()
