"""Port for the administration of one cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from kafka_rollout.domain.features.answers import FeatureUpdateResult
from kafka_rollout.domain.model.cluster_contents import ClusterInventory
from kafka_rollout.domain.model.state import (
    GroupState,
    NodeFeatures,
    PartitionState,
    QuorumState,
    RegisteredNodes,
    TransactionState,
)
from kafka_rollout.domain.model.topology import NodeSpec


class ClusterAdmin(Protocol):
    """Administration of one cluster through its own listeners."""

    def cluster_id(self) -> str: ...
    def features(self, node: NodeSpec) -> NodeFeatures:
        """ApiVersions of this node; a controller is queried on its own listener."""
        ...

    def quorum(self) -> QuorumState: ...
    def registered(self) -> RegisteredNodes: ...
    def partitions(self) -> tuple[PartitionState, ...]:
        """All partitions, internal topics included."""
        ...

    def groups(self) -> tuple[GroupState, ...]: ...
    def transactions(self) -> tuple[TransactionState, ...]: ...
    def inventory(self, *, configured_groups: Collection[str] = ()) -> ClusterInventory:
        """Topics, end offsets, groups, dynamic configuration, client-metrics subscriptions, ACLs, SCRAM users and
        quotas. `configured_groups`: ids to query if groups with their own configuration cannot be listed."""
        ...

    def settings(self) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        """The settings of kinds that older releases do not support (cluster_contents.SETTINGS). This query works while
        partitions have no leader. Settings of groups are listed from 4.1 on, before only those of existing groups."""
        ...

    def elect_preferred_leaders(self, partitions: Sequence[PartitionState]) -> None:
        """Elect preferred leaders; a partition that its preferred leader already leads is not an error."""
        ...

    def update_features(
        self, targets: Mapping[str, int], *, validate_only: bool, unsafe: bool = False
    ) -> tuple[FeatureUpdateResult, ...]:
        """UpdateFeatures; the upgrade type follows from each level and the finalized one."""
        ...

    def close(self) -> None: ...
