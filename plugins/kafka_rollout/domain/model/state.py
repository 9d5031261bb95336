"""What was observed of a running cluster, in one look. Values nobody answered for are None, never a default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_rollout.domain.model.releases import Release, VersionRange


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFeatures:
    """One node's own answer to ApiVersions. `epoch` is None where the node reports none (KIP-584).

    `finalized` is the maximum level of each feature, `finalized_min` the minimum (KIP-584's deprecation).
    """

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, int]
    epoch: int | None
    finalized_min: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """A node's process as the runtime sees it; `pid` None: no process. `started_at` in epoch seconds."""

    pid: int | None
    started_at: float | None = None
    installed: Release | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """One start of a node's process."""

    release: Release
    started_at: float
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSoftware:
    """Connections by client library, as the socket server's metrics tell (KIP-511)."""

    name: str
    version: str
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeprecatedRequest:
    """Requests that a 4.x broker no longer serves (KIP-896), from DeprecatedRequestsPerSec; `count` since start."""

    api: str
    version: int
    client_name: str
    client_version: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetrics:
    """One node's metrics. The two CurrentMetadataVersion values come from two independent agents.

    `snapshot_age_ms`/`snapshot_bytes`: SnapshotEmitter's LatestSnapshotGenerated*; None where the release lacks them,
    0 bytes while the process has not written one. `partition_count`: all partitions of the cluster as a controller
    counts them (GlobalPartitionCount), None from a node that is none. `unanswered`: agents that did not answer
    (`prometheus`, `jolokia`), which tells a None of theirs from a metric that the release does not have.
    """

    release: Release | None = None
    java_version: int | None = None
    current_metadata_version_prometheus: int | None = None
    current_metadata_version_jolokia: int | None = None
    finalized_levels: Mapping[str, int] = field(default_factory=dict)
    snapshot_age_ms: int | None = None
    snapshot_bytes: int | None = None
    partition_count: int | None = None
    clients: tuple[ClientSoftware, ...] = ()
    deprecated_requests: tuple[DeprecatedRequest, ...] = ()
    unanswered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node of the inventory as observed; `features`/`metrics` None when it did not answer (`problem` says why)."""

    node_id: int
    process: ProcessState
    features: NodeFeatures | None
    metrics: NodeMetrics | None
    problem: str = ""

    @property
    def release(self) -> Release | None:
        """The running release: app-info's, never the installed one."""
        return self.metrics.release if self.metrics else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """A voter or observer of the metadata quorum; `log_end_offset` −1 when unknown, times in epoch ms or None."""

    replica_id: int
    log_end_offset: int
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]

    def lag(self, replica_id: int) -> int | None:
        """Records a replica is behind the leader's log end; None when the replica is unknown to the quorum. Of a node
        that is both, the voter counts: its directory is gone, and the one that observes has no vote (KIP-853)."""
        replicas = {r.replica_id: r for r in (*self.observers, *self.voters)}
        leader, replica = replicas.get(self.leader_id), replicas.get(replica_id)
        if leader is None or replica is None or replica.log_end_offset < 0:
            return None
        return max(0, leader.log_end_offset - replica.log_end_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredNodes:
    """Nodes that the cluster itself knows. `fenced` is None where the release cannot list fenced brokers.

    `controllers` is None where the release has no controller registrations to ask for (before 3.7, KIP-919).
    """

    brokers: frozenset[int]
    fenced: frozenset[int] | None
    controllers: frozenset[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """`leader` −1: leaderless. `min_isr` is the topic's effective min.insync.replicas."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """`type` is Kafka's: classic, consumer, share, streams (classic where the release does not say).

    `members` is None where nobody could say.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str = ""
    members: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    transactional_id: str
    state: str
    producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """One look at the whole cluster; `observed_at` in epoch seconds, `unanswered` the questions nobody answered."""

    cluster_id: str
    observed_at: float
    nodes: Mapping[int, NodeState]
    quorum: QuorumState | None
    registered: RegisteredNodes
    partitions: tuple[PartitionState, ...]
    groups: tuple[GroupState, ...] = ()
    transactions: tuple[TransactionState, ...] = ()
    unanswered: tuple[str, ...] = ()

    @property
    def finalized(self) -> Mapping[str, int]:
        """Finalized levels by the node with the highest epoch (KIP-584: the higher epoch wins)."""
        answers = [n.features for n in self.nodes.values() if n.features is not None]
        best = max(answers, key=lambda f: -1 if f.epoch is None else f.epoch, default=None)
        return {} if best is None else best.finalized

    @property
    def releases(self) -> frozenset[Release]:
        return frozenset(n.release for n in self.nodes.values() if n.release is not None)
