"""The observed state of a running cluster and its quorum. A value that was not reported is None, never a default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka_rollout.base.findings import Need
from kafka_rollout.model.claims import Claims
from kafka_rollout.model.finalized_levels import UNKNOWN_LEVELS, FinalizedLevels
from kafka_rollout.model.quorum_addresses import Address
from kafka_rollout.model.rights import MissingRight
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import KRAFT_VERSION, Release, VersionRange

UNKNOWN_MIN_ISR = 1 << 31  # more than any number of replicas, so that no condition is met by a value that was not read
UNKNOWN_CLIENT = "unknown"  # name and version of a client that does not report them (ClientInformation.EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFeatures:
    """The ApiVersions response of one node."""

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, int]
    """The maximum level of each feature."""
    epoch: int | None
    """None if the node does not report it (KIP-584)."""
    finalized_min: Mapping[str, int] = field(default_factory=dict)
    """The minimum (deprecation in KIP-584). Both are empty if the node reports levels without an epoch
    (`without_quorum`): before it knows any metadata, it reports its minimum metadata.version as finalized (KAFKA-19964,
    FeaturesPublisher)."""
    in_zookeeper_mode: bool = False
    """Whether the node serves requests that only brokers in ZooKeeper mode serve."""
    without_quorum: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """The process of a node as the runtime reports it."""

    pid: int | None
    """None: no process, or `problem`."""
    problem: str = ""
    """Why the runtime cannot see whether there is one, for example because the host does not respond."""
    started_at: float | None = None
    """Epoch seconds."""
    installed: Release | None = None
    running: Release | None = None
    """The release whose jars the process has loaded; None if the runtime cannot see them. Without a runtime, the
    release by the supported levels (identify_by_levels)."""
    version: str = ""
    """As the name of the loaded jar has it, for example `7.9.1-ccs`; "" if unknown."""
    restarts: int = 0
    """Starts by the service manager because the process had exited, since its last start by a run or an operator."""
    is_stopping: bool | None = None
    """The service manager is ending it; None: the runtime cannot see that."""
    is_unfinished: bool = False
    """A package started it, and the run that installed the package has not restored the configuration of the node, so
    the installation must be repeated."""
    claims: Claims = field(default_factory=Claims)
    """What runs of any database have left on the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSoftware:
    """Connections by client library, from the metrics of the socket server (KIP-511)."""

    name: str
    version: str
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCount:
    """Requests of one API and version since the broker started (RequestMetrics).

    The client is reported with deprecated versions only (DeprecatedRequestsPerSec, from 3.7 on).
    """

    api: str
    version: int
    count: int
    client_name: str = UNKNOWN_CLIENT
    client_version: str = UNKNOWN_CLIENT


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """A request in the log of a broker."""

    api: str
    """As the log has it, such as `OFFSET_FETCH`."""
    version: int
    client_name: str
    client_version: str
    client_id: str
    address: str
    """Without port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetrics:
    """The metrics of one node. The two CurrentMetadataVersion values come from two independent agents."""

    release: Release | None = None
    """The one by which it is evaluated."""
    version: str = ""
    """As the node reports it (app-info), for example `7.9.1-ccs`."""
    java_version: int | None = None
    current_metadata_version_prometheus: int | None = None
    current_metadata_version_jolokia: int | None = None
    finalized_levels: Mapping[str, int] = field(default_factory=dict)
    snapshot_age_ms: int | None = None
    """LatestSnapshotGenerated* of SnapshotEmitter. They are None if the release has no such metrics; 0 bytes until the
    process has written a snapshot."""
    snapshot_bytes: int | None = None
    """LatestSnapshotGenerated* of SnapshotEmitter. They are None if the release has no such metrics; 0 bytes until the
    process has written a snapshot."""
    partition_count: int | None = None
    """GlobalPartitionCount, all partitions of the cluster; None for a node that is not a controller."""
    clients: tuple[ClientSoftware, ...] = ()
    requests: tuple[RequestCount, ...] = ()
    """RequestsPerSec; empty if the agents do not report it, because a running broker has requests of other nodes."""
    deprecated_requests: tuple[RequestCount, ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    """Name (model/counters.py) → value; a counter that no agent exports is missing."""
    unanswered: Mapping[str, str] = field(default_factory=dict)
    """Agent of the inventory that did not respond (`prometheus`, `jolokia`) → the reason; it separates a missing
    response from a metric that the release does not have."""
    unreadable: tuple[str, ...] = ()
    """`agent: metric: reason` of each metric that an agent could not read, or with a value that cannot be its own: it
    is unknown if the other agent does not have it."""

    @property
    def is_read(self) -> bool:
        """Whether an agent responded with any value; a node without an agent has none."""
        return bool(
            self.version
            or self.release
            or self.java_version
            or self.clients
            or self.requests
            or self.deprecated_requests
            or self.counters
            or self.partition_count is not None
            or self.current_metadata_version_prometheus is not None
            or self.current_metadata_version_jolokia is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node of the inventory as observed."""

    node_id: int
    process: ProcessState
    features: NodeFeatures | None
    """None if it did not respond (`problem`: the reason)."""
    metrics: NodeMetrics | None
    """None if it did not respond (`problem`: the reason)."""
    problem: str = ""
    other_claims: Claims = field(default_factory=Claims)
    """Those of its process that no run of this database has left."""
    log_error: str = ""
    """The first error in its log, if it did not respond and the log was read."""

    @property
    def release(self) -> Release | None:
        """The running release, from app-info or the jars of the process; never the installed release."""
        reported = self.metrics.release if self.metrics else None
        return reported or self.process.running

    @property
    def version(self) -> str:
        """The version as the node reports it, or as its jars have it; "" if unknown."""
        reported = self.metrics.version if self.metrics else ""
        return reported or self.process.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Movements:
    """Replicas that move now."""

    reassigned: tuple[str, ...] = ()
    """Topic-partitions."""
    directories: tuple[str, ...] = ()
    """Topic-partitions, each with its broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """A voter or observer of the metadata quorum."""

    replica_id: int
    log_end_offset: int
    """−1 if unknown."""
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    directory_id: str = ""
    """Of the directory of its metadata log, in Kafka's text form; "" if the leader does not know it (a static quorum,
    or a release before KIP-853). Times: epoch ms by the leader's clock, or None. The leader's own times are the time of
    its response (RaftUtil)."""


FETCH_TIMEOUT_MS = 2_000  # default of controller.quorum.fetch.timeout.ms
# A follower fetches at least every 500 ms (KafkaRaftClient.MAX_FETCH_WAIT_MS). After the fetch timeout it stops to
# follow the leader. The margin is for pauses of a busy node.
FETCH_MARGIN_MS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """The response to DescribeQuorum."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]
    fetch_timeout_ms: int = FETCH_TIMEOUT_MS
    """The longest controller.quorum.fetch.timeout.ms of the controllers, or its default."""
    voter_addresses: Mapping[int, tuple[Address, ...]] = field(default_factory=dict)
    """Voter → its address for each listener (KIP-853). In a dynamic quorum the only ones at which nodes reach it."""
    joins_itself: frozenset[int] = frozenset()
    """Voters that also observe, from another directory, and join by themselves (controller.quorum.auto.join.enable)."""

    @property
    def replaced_voters(self) -> frozenset[int]:
        """Voters of which another directory observes: the directory that has the vote is gone (KIP-853)."""
        observing = {r.replica_id: r.directory_id for r in self.observers}
        return frozenset(
            voter.replica_id
            for voter in self.voters
            if voter.replica_id in observing
            and (not voter.directory_id or voter.directory_id != observing[voter.replica_id])
        )

    @property
    def voter_ids(self) -> frozenset[int]:
        return frozenset(voter.replica_id for voter in self.voters)

    @property
    def has_spare(self) -> bool:
        """Whether one voter can stop: a quorum of one or two voters needs each of them."""
        return len(self.voters) > majority(len(self.voters))

    def observer(self, replica_id: int) -> ReplicaState | None:
        return next((one for one in self.observers if one.replica_id == replica_id), None)

    def lag(self, replica_id: int) -> int | None:
        """Return the number of records between the leader's log end and the replica; None if the quorum does not list
        it.

        For a node that is both voter and observer, the voter counts: its directory is gone, and the directory that
        observes has no vote (KIP-853).
        """
        leader, replica = self.replica(self.leader_id), self.replica(replica_id)
        if leader is None or replica is None or replica.log_end_offset < 0:
            return None
        return max(0, leader.log_end_offset - replica.log_end_offset)

    def replica(self, replica_id: int) -> ReplicaState | None:
        replicas = {r.replica_id: r for r in (*self.observers, *self.voters)}
        return replicas.get(replica_id)

    def since_ms(self, time_ms: int | None) -> int | None:
        """Return the time between `time_ms` and the response, both by the leader's clock; None if one is unknown."""
        leader = self.replica(self.leader_id)
        if time_ms is None or leader is None or leader.last_caught_up_ms is None:
            return None
        return max(0, leader.last_caught_up_ms - time_ms)

    @property
    def fetch_limit_ms(self) -> int:
        return self.fetch_timeout_ms + FETCH_MARGIN_MS

    @property
    def is_a_replica_silent(self) -> bool:
        """Whether a replica other than the leader has not fetched within the limit."""
        fetched = [self.since_ms(r.last_fetch_ms) for r in (*self.voters, *self.observers)]
        return any(ms is not None and ms > self.fetch_limit_ms for ms in fetched)

    def is_fetching(self, replica_id: int) -> bool:
        """Return whether the quorum shows that this node runs: it leads, or one of its directories fetched within the
        limit."""
        of_node = (one for one in (*self.voters, *self.observers) if one.replica_id == replica_id)
        fetched = (self.since_ms(one.last_fetch_ms) for one in of_node)
        return replica_id == self.leader_id or any(ms is not None and ms <= self.fetch_limit_ms for ms in fetched)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredNodes:
    """Nodes that are registered in the cluster."""

    brokers: frozenset[int]
    fenced: frozenset[int] | None
    """None if the release cannot list fenced brokers."""
    controllers: frozenset[int] | None
    """None if the release has no controller registrations (before 3.7, KIP-919)."""
    controller_addresses: Mapping[int, Address] = field(default_factory=dict)
    """Controller → the address that it has registered, for the listener at which this tool asked."""
    broker_addresses: Mapping[int, Address] = field(default_factory=dict)
    """The same of brokers."""

    @property
    def unfenced(self) -> frozenset[int]:
        """The brokers that are not fenced. A release that cannot list fenced ones does not list them in `brokers`."""
        return self.brokers - (self.fenced or frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition. `leader` −1: no leader."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_insync_replicas: int
    """The setting of the topic, or UNKNOWN_MIN_ISR. Of a topic without an own value: the highest of the brokers that
    can lead the partition, because a leader uses its own. Conditions use `min_isr`."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def has_known_min_isr(self) -> bool:
        return self.min_insync_replicas != UNKNOWN_MIN_ISR

    @property
    def min_isr(self) -> int:
        """The in-sync replicas that acks=all needs: never more than there are (Partition.effectiveMinIsr,
        ReplicationControlManager.getTopicEffectiveMinIsr); UNKNOWN_MIN_ISR if the setting is unknown.

        Brokers before 3.7.0 have no such limit. They refuse acks=all for a setting above the number of replicas at any
        time, so no stop changes this (MIN_ISR_ABOVE_RF).
        """
        return min(self.min_insync_replicas, len(self.replicas)) if self.has_known_min_isr else UNKNOWN_MIN_ISR

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.min_isr

    @property
    def is_missing_replicas(self) -> bool:
        """Whether a replica is out of sync."""
        return len(self.isr) < len(self.replicas)

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else -1

    @property
    def can_stop_together(self) -> int:
        """How many of its brokers can be stopped together: afterwards min.insync.replicas and one more are in sync.

        One broker alone needs no further replica, so the number is at least 1.
        """
        return max(1, len(self.isr) - self.min_isr - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """One group."""

    group_id: str
    type: str
    """Classic, consumer, share or streams, as in Kafka (classic if the release does not report it)."""
    state: str
    protocol_type: str = ""
    members: int | None = 0
    """None if the number was not reported."""

    @property
    def is_active(self) -> bool:
        """Whether it can have members: an unknown number counts by the state."""
        return bool(self.members) or self.state.lower() not in {"empty", "dead"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    transactional_id: str
    state: str
    producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The state of the whole cluster."""

    cluster_id: str
    observed_at: float
    """Epoch seconds."""
    nodes: Mapping[int, NodeState]
    quorum: QuorumState | None
    registered: RegisteredNodes
    partitions: tuple[PartitionState, ...]
    groups: tuple[GroupState, ...] = ()
    transactions: tuple[TransactionState, ...] = ()
    unanswered: tuple[str, ...] = ()
    """The queries without a response."""
    not_observable: tuple[str, ...] = ()
    """The queries that a cluster without a runtime refused."""
    asked_at: float = float("-inf")
    """When the query of the nodes began, by the monotonic clock of this process."""
    compares_claims: bool = True
    """Whether `other_claims` of the nodes are those that a database does not know. Else they are all."""
    needs: Mapping[str, Need] = field(default_factory=dict)
    """Sentence of one of both → what is unknown without its answer."""
    logged_requests: tuple[LoggedRequest, ...] = ()
    """Those in the logs of brokers that counted old request versions."""
    missing_rights: tuple[MissingRight, ...] = ()
    """Rights to change that the users of this tool do not have."""
    registered_levels: Mapping[int, Mapping[str, VersionRange]] = field(default_factory=dict)
    """Controller id → range by feature, as registered in the metadata log; only if the inventory lacks a registered
    controller, empty if unknown."""
    active_controller: NodeMetrics | None = None
    """The metrics of the leader of the quorum, read before `partitions`; None: not read."""
    read_from: tuple[int, ...] = ()
    """The broker that reported `registered` and `partitions` was one of these, whose metadata is current; empty: the
    quorum shows none."""
    quorum_in_use: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Node id → the settings of controller.quorum.* that its process has read (voters and bootstrap servers); without
    nodes that do not report them."""
    has_current_levels: bool = True
    """False: `levels_now` found no broker that has applied what was committed, so `finalized` is unknown."""
    is_partial: bool = False
    """`partitions` are those of some topics only, without min.insync.replicas."""

    @property
    def finalized(self) -> FinalizedLevels:
        """Finalized levels of the node with the highest epoch (KIP-584: the higher epoch wins)."""
        answers = [n.features for n in self.nodes.values() if n.features is not None and n.features.epoch is not None]
        best = max(answers, key=lambda f: f.epoch or 0, default=None)
        return UNKNOWN_LEVELS if best is None or not self.has_current_levels else FinalizedLevels(best.finalized)

    @property
    def has_dynamic_quorum(self) -> bool:
        """Whether the voters are in the metadata log (KIP-853), and not in the files alone.

        The voters then have directory ids. The finalized kraft.version is no evidence: a controller before 4.1 writes
        the level on request, and the quorum stays static. It counts only if the quorum is unknown.
        """
        if self.quorum is not None:
            return any(voter.directory_id for voter in self.quorum.voters)
        return any(n.features.finalized.get(KRAFT_VERSION, 0) > 0 for n in self.nodes.values() if n.features)

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


def find_ended_claims(state: ClusterState) -> tuple[str, ...]:
    """Return the nonces of the claims that runs of other databases left, and that have ended."""
    closed = (node.other_claims.closed for node in state.nodes.values())
    return tuple(sorted({one.nonce for one in closed if one is not None}))


def majority(voters: int) -> int:
    return voters // 2 + 1


def find_unlisted_brokers(cluster: ClusterSpec, state: ClusterState) -> frozenset[int]:
    """Return the registered brokers, fenced brokers included, that the inventory does not list."""
    registered = state.registered.brokers | (state.registered.fenced or frozenset())
    return registered - {node.node_id for node in cluster.brokers}


def find_unlisted_replicas(cluster: ClusterSpec, state: ClusterState) -> Mapping[int, int]:
    """Return id → number of partitions of the brokers that only replica lists name.

    Below 4.0, such a broker can be registered and fenced, which no request shows (KIP-1073).
    """
    registered = state.registered.brokers | (state.registered.fenced or frozenset())
    known = registered | {node.node_id for node in cluster.brokers}
    return Counter(one for partition in state.partitions for one in partition.replicas if one not in known)


def find_unlisted_controllers(cluster: ClusterSpec, state: ClusterState) -> frozenset[int]:
    """Return the registered controllers (KIP-919) and the voters of the quorum that the inventory does not list."""
    voters = {voter.replica_id for voter in state.quorum.voters} if state.quorum else set()
    registered = (state.registered.controllers or frozenset()) | voters
    return registered - {node.node_id for node in cluster.controllers}


# A running quorum always shows some lag. The active controller appends at least one no-op record every 500 ms
# (metadata.max.idle.interval.ms), and followers fetch it a moment later.
LAG_RECORDS = 20
CAUGHT_UP_MS = 5_000


def check_caught_up(quorum: QuorumState, replica_id: int) -> tuple[bool, str]:
    """Return whether a voter or observer is caught up with the leader in offset and in time, and the evidence.

    Few missing records prove nothing without the time: with metadata.max.idle.interval.ms=0 an idle cluster writes
    none for hours. All times are the leader's. An unknown time is not caught up; every KRaft release from 3.3 on
    reports them (KIP-836).
    """
    if quorum.leader_id < 0:
        return False, "the quorum has no leader"
    if replica_id == quorum.leader_id:
        return True, f"node {replica_id} leads the quorum"
    is_met, evidence = _check_fetches(quorum, replica_id)
    if is_met or replica_id not in quorum.replaced_voters:
        return is_met, evidence
    action = (
        "it replaces the old voter itself (controller.quorum.auto.join.enable), so do not change the voters"
        if replica_id in quorum.joins_itself
        else "remove the old voter and add the new one (kafka-metadata-quorum.sh remove-controller, add-controller)"
    )
    return False, f"{describe_replaced(quorum, replica_id)}: {action}"


def describe_replaced(quorum: QuorumState, replica_id: int) -> str:
    """Return which directory of a replaced voter runs and which has the vote; without ids if they are unknown."""
    voter, observer = quorum.replica(replica_id), quorum.observer(replica_id)
    runs = f"directory {observer.directory_id}" if observer and observer.directory_id else "another directory"
    votes = f"directory {voter.directory_id}" if voter and voter.directory_id else "a directory that does not fetch"
    return f"node {replica_id} runs with {runs}, and the voter is {votes}"


def _check_fetches(quorum: QuorumState, replica_id: int) -> tuple[bool, str]:
    """Return whether the log of a follower is caught up by the leader's view, and the evidence."""
    lag, replica = quorum.lag(replica_id), quorum.replica(replica_id)
    if lag is None or replica is None:
        return False, f"quorum leader {quorum.leader_id} does not report the log end offset of node {replica_id}"
    behind = f"{lag} records behind the leader"
    behind_ms = quorum.since_ms(replica.last_caught_up_ms)
    if lag > LAG_RECORDS and (behind_ms is None or behind_ms > CAUGHT_UP_MS):
        return False, behind
    fetched_ms = quorum.since_ms(replica.last_fetch_ms)
    if fetched_ms is None:
        return False, f"{behind}, but quorum leader {quorum.leader_id} does not report when it fetched last"
    if fetched_ms > quorum.fetch_limit_ms:
        return False, f"{behind}, but its last fetch was {fetched_ms} ms ago (limit: {quorum.fetch_limit_ms} ms)"
    if lag > LAG_RECORDS:
        return True, f"{behind}, caught up {behind_ms} ms ago"
    return True, f"{behind}, last fetch {fetched_ms} ms ago"


def check_current(quorum: QuorumState, node_id: int, seen: NodeState | None) -> tuple[bool, str]:
    """Return whether a broker has fetched and applied the newest metadata, and the evidence.

    The epoch in ApiVersions is the offset of the broker's metadata image (KRaftMetadataCache.features, 3.3 to 4.4).
    `seen`: the node, queried after the quorum; None or without features: only what it fetched is checked.
    """
    caught_up, evidence = check_caught_up(quorum, node_id)
    if not caught_up or seen is None or seen.features is None:
        return caught_up, evidence
    applied, committed = seen.features.epoch, quorum.high_watermark
    if applied is None:
        return False, "it reports no epoch of its metadata"
    if applied < committed - LAG_RECORDS:
        return False, f"it has applied its metadata up to offset {applied}, and {committed} is committed"
    return True, f"{evidence}, applied up to offset {applied}"


def find_current_brokers(
    cluster: ClusterSpec, quorum: QuorumState | None, seen: Mapping[int, NodeState]
) -> tuple[int, ...]:
    """Return the brokers of the inventory whose metadata is current; empty if the quorum does not show it."""
    if quorum is None:
        return ()
    ids = (node.node_id for node in cluster.brokers)
    return tuple(node_id for node_id in ids if check_current(quorum, node_id, seen.get(node_id))[0])


def begin_with_another(node_ids: Sequence[int], at: float) -> tuple[int, ...]:
    """Return the ids, beginning with another one each second. `at`: epoch seconds.

    A response about all partitions is expensive for the broker of a large cluster: not every one is asked of the first.
    """
    first = int(at) % len(node_ids) if node_ids else 0
    return (*node_ids[first:], *node_ids[:first])


def check_spare_voters(quorum: QuorumState, without: int, *, accepts_none: bool = False) -> tuple[bool, str]:
    """Return whether the caught-up voters without node `without` are a majority of all voters, and the evidence.

    `accepts_none`: where no voter can be spared, it is enough that every other one is caught up.
    """
    others = [v.replica_id for v in quorum.voters if v.replica_id != without]
    well = sorted(i for i in others if check_caught_up(quorum, i)[0])
    needed = majority(len(quorum.voters))
    told = f"voters {', '.join(map(str, well)) or 'none'} are caught up, {needed} of {len(quorum.voters)} are needed"
    if accepts_none and not quorum.has_spare:
        return len(well) == len(others), f"{told}. It is accepted that the quorum is unavailable until the restart"
    return len(well) >= needed, told
