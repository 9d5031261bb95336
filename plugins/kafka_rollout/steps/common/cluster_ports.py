"""One cluster's ports in one place, handed to every step."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_rollout.domain.model.releases import Catalogue
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.ports import (
    ChangeLock,
    ClusterAdmin,
    CoordinatorLogs,
    KafkaClasses,
    MetadataLogs,
    Metrics,
    NodeRuntime,
    RunStore,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPorts:
    """`run_id` names the run and is the holder of the cluster's lock."""

    run_id: str
    cluster: ClusterSpec
    catalogue: Catalogue
    admin: ClusterAdmin
    runtime: NodeRuntime
    metrics: Metrics
    classes: KafkaClasses
    logs: CoordinatorLogs
    metadata_logs: MetadataLogs
    run: RunStore
    lock: ChangeLock
