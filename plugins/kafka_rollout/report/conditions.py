"""Conditions of a cluster for which everybody's DAGs can wait, each by one observation of all nodes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.base.errors import UserError
from kafka_rollout.gates.gate import GateCheck
from kafka_rollout.gates.whole_cluster import check_finalized, check_healthy, check_metadata_version
from kafka_rollout.observation.cluster_ports import ReadPorts, observe_without_groups
from kafka_rollout.releases.facts import METADATA_VERSION


class ConditionKind(StrEnum):
    HEALTHY = "healthy"
    FEATURE_LEVEL = "feature level"
    METADATA_VERSION = "metadata version"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCondition:
    """What a cluster must be. Raises UserError for a level that is missing or negative."""

    kind: ConditionKind
    feature: str = ""
    """Of FEATURE_LEVEL."""
    level: int | None = None
    """Of FEATURE_LEVEL: this or a higher one. Of METADATA_VERSION: exactly this one; None: the finalized one."""

    def __post_init__(self) -> None:
        if self.kind is ConditionKind.FEATURE_LEVEL and not self.feature:
            raise UserError("The feature is missing.", remedy="Name it, for example metadata.version.")
        needs_level = self.kind is ConditionKind.FEATURE_LEVEL
        if (needs_level and self.level is None) or (self.level is not None and self.level < 0):
            raise UserError(
                f"A feature level is a number from 0 on, not {self.level}.",
                remedy="Set it as `kafka-features.sh describe` shows it.",
            )

    def check(self, ports: ReadPorts) -> GateCheck:
        """Observe the cluster and check the condition once. Raises TransientError and RefusedError as `observe`."""
        state = observe_without_groups(ports)
        match self.kind:
            case ConditionKind.HEALTHY:
                return check_healthy(ports.cluster, state)
            case ConditionKind.FEATURE_LEVEL:
                wanted = max(self.level or 0, state.finalized.known().get(self.feature, 0))
                return check_finalized(ports.cluster, state, {self.feature: wanted})
            case ConditionKind.METADATA_VERSION:
                level = state.finalized.known()[METADATA_VERSION] if self.level is None else self.level
                return check_metadata_version(ports.cluster, ports.catalogue, state, level)
