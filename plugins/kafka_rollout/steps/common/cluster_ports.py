"""The ports of one cluster, passed to every step."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_rollout.domain.model.releases import Catalogue
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.ports.change_lock import ChangeLock
from kafka_rollout.ports.clock import Clock
from kafka_rollout.ports.cluster import ClusterAdmin, CoordinatorLogs, KafkaClasses, MetadataLogs, Metrics, NodeRuntime
from kafka_rollout.ports.run_store import RunStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPorts:
    """The ports of one cluster. `run_id`: id of the run and holder of the cluster's lock."""

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
    clock: Clock
