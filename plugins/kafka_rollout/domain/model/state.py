"""The observed state of a running cluster. A value that was not reported is None, never a default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_rollout.domain.model.releases import Release, VersionRange


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFeatures:
    """The ApiVersions response of one node. `epoch`: None if the node does not report it (KIP-584).

    `finalized`: the maximum level of each feature; `finalized_min`: the minimum (deprecation in KIP-584).
    """

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, int]
    epoch: int | None
    finalized_min: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """The process of a node as the runtime reports it. `pid` None: no process. `started_at`: epoch seconds."""

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
    """Connections by client library, from the metrics of the socket server (KIP-511)."""

    name: str
    version: str
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeprecatedRequest:
    """Requests that a 4.x broker rejects (KIP-896), from DeprecatedRequestsPerSec.

    `count`: since the broker started.
    """

    api: str
    version: int
    client_name: str
    client_version: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetrics:
    """The metrics of one node. The two CurrentMetadataVersion values come from two independent agents.

    `snapshot_age_ms` and `snapshot_bytes`: LatestSnapshotGenerated* of SnapshotEmitter. They are None if the release
    has no such metrics; 0 bytes until the process has written a snapshot. `partition_count`: GlobalPartitionCount, all
    partitions of the cluster; None for a node that is not a controller. `unanswered`: agents that did not respond
    (`prometheus`, `jolokia`); it separates a missing response from a metric that the release does not have.
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
    """One node of the inventory as observed.

    `features` and `metrics`: None if it did not respond (`problem`: the reason).
    """

    node_id: int
    process: ProcessState
    features: NodeFeatures | None
    metrics: NodeMetrics | None
    problem: str = ""

    @property
    def release(self) -> Release | None:
        """The running release, from app-info; never the installed release."""
        return self.metrics.release if self.metrics else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """A voter or observer of the metadata quorum. `log_end_offset`: −1 if unknown. Times: epoch ms, or None."""

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
        """Return the number of records between the leader's log end and the replica; None if the quorum does not list
        it.

        For a node that is both voter and observer, the voter counts: its directory is gone, and the directory that
        observes has no vote (KIP-853).
        """
        replicas = {r.replica_id: r for r in (*self.observers, *self.voters)}
        leader, replica = replicas.get(self.leader_id), replicas.get(replica_id)
        if leader is None or replica is None or replica.log_end_offset < 0:
            return None
        return max(0, leader.log_end_offset - replica.log_end_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredNodes:
    """Nodes that are registered in the cluster. `fenced`: None if the release cannot list fenced brokers.

    `controllers`: None if the release has no controller registrations (before 3.7, KIP-919).
    """

    brokers: frozenset[int]
    fenced: frozenset[int] | None
    controllers: frozenset[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition. `leader` −1: no leader. `min_isr`: the effective min.insync.replicas of the topic."""

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
    """One group. `type`: classic, consumer, share or streams, as in Kafka (classic if the release does not report it).

    `members`: None if the number was not reported.
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
    """The state of the whole cluster. `observed_at`: epoch seconds. `unanswered`: the queries without a response."""

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
        """Finalized levels of the node with the highest epoch (KIP-584: the higher epoch wins)."""
        answers = [n.features for n in self.nodes.values() if n.features is not None]
        best = max(answers, key=lambda f: -1 if f.epoch is None else f.epoch, default=None)
        return {} if best is None else best.finalized

    @property
    def releases(self) -> frozenset[Release]:
        return frozenset(n.release for n in self.nodes.values() if n.release is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFile:
    """A snapshot of the metadata log on a node: `end_offset`/`epoch` from its name, `modified_at` in epoch seconds."""

    node_id: int
    path: str
    end_offset: int
    epoch: int
    size: int
    modified_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSummary:
    """A snapshot as loaded by a release's own classes; redacted: counts and levels, no credentials."""

    release: str
    features: Mapping[str, int]
    brokers: tuple[int, ...]
    controllers: tuple[int, ...]
    topics: int
    partitions: int
    records: int
    sha256: str
