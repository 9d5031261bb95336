"""What was observed for a plan, and what the plan changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_rollout.base.findings import Checked
from kafka_rollout.features.registrations import SeenRegistrations
from kafka_rollout.metadata_log.records import MetadataRegistrations
from kafka_rollout.model.configs import NodeConfigs
from kafka_rollout.model.plan import FeatureChange, Lowering, ReleaseStep
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.agreement import Directories
from kafka_rollout.planning.findings.starts import ObservedStarts
from kafka_rollout.releases.facts import Catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was observed for one plan. A node whose value is unknown or not observable is not in a mapping.

    `cluster`: as in the inventory. `catalogue`: with the classes of coordinators that the configuration causes
    (`with_configured_classes`). `configs`: node id → setting → current value. `starts`: what the nodes read at their
    starts on the releases ahead (release_overrides applied). `java`: node id → feature version (17). `directories`: as
    in `NextStart` of the agreement. `registrations`: in the metadata log; None if it was not read. `registered`: the
    registrations of brokers that run the target already, compared with its levels; None if there is none.
    """

    cluster: ClusterSpec
    catalogue: Catalogue
    state: ClusterState
    configs: NodeConfigs
    starts: ObservedStarts
    java: Mapping[int, int]
    directories: Directories = field(default_factory=dict)
    registrations: MetadataRegistrations | None = None
    registered: SeenRegistrations | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a plan changes, with the checks of this decision. `lowering`: of metadata.version."""

    release_steps: tuple[ReleaseStep, ...]
    feature_changes: tuple[FeatureChange, ...]
    lowering: Lowering = Lowering.ONLINE
    checked: tuple[Checked, ...] = ()
