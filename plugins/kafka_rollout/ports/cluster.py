"""What the steps need of a cluster: its admin API, its nodes, their metrics, logs and Kafka's own classes.

A port that can change the cluster has two protocols: its queries, and its changes. Each change is fenced, by the caller
(control/lock.py) and by the adapter immediately before it sends the change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from kafka_rollout.coordinator_logs.scan import Damage, ScanResult
from kafka_rollout.features.requests import FeatureUpdateResult
from kafka_rollout.gates.control import Reading
from kafka_rollout.gates.coordinators import CoordinatorAnswers
from kafka_rollout.groups.group_records import GroupRecords
from kafka_rollout.metadata_log.log_choice import NodeLog, WrittenSnapshot
from kafka_rollout.metadata_log.losses import LossReport
from kafka_rollout.metadata_log.metadata_scan import MetadataScan
from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.metadata_log.start_order import LoggedPartitions
from kafka_rollout.metadata_log.trim import TrimResult
from kafka_rollout.model.acls import Acl, AclDifferences
from kafka_rollout.model.broker_views import BrokerView
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.configs import ConfigProblem, DynamicConfigs, Setting, SettingValues
from kafka_rollout.model.contents import ClusterInventory, LogStarts
from kafka_rollout.model.host_state import DirectoryFormat, HostState, Installation, StartFile, StartRecord
from kafka_rollout.model.listeners import ListenerCertificate
from kafka_rollout.model.log_directories import LogDirectory
from kafka_rollout.model.node_log import LogPart
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.model.probes import Probe
from kafka_rollout.model.rights import MissingRight, Right
from kafka_rollout.model.starts import ClassPlaces, NamedFile, NodeStart, PluginClass, StartProblems
from kafka_rollout.model.state import (
    CheckpointFile,
    CheckpointSummary,
    GroupState,
    Movements,
    NodeFeatures,
    NodeMetrics,
    PartitionState,
    ProcessState,
    QuorumState,
    RegisteredNodes,
    TransactionState,
)
from kafka_rollout.model.topology import NodeSpec, OutsideCondition
from kafka_rollout.releases.facts import Release


class ClusterQueries(Protocol):
    """What a cluster reports through its own listeners."""

    def cluster_id(self) -> str: ...
    def missing_rights(self, rights: Collection[Right] | None = None) -> tuple[MissingRight, ...]:
        """Those of `rights`, on the brokers, that the user of this tool does not have; None: of all rights of runs
        (model/rights.py), PINNING and those on the controllers included."""

    def features(self, node: NodeSpec) -> NodeFeatures:
        """ApiVersions of this node; a controller is queried on its own listener."""

    def certificates(self, node: NodeSpec, addresses: Sequence[str]) -> tuple[ListenerCertificate, ...]:
        """The certificates that the node presents: at `addresses`, and where this client speaks TLS with it. A listener
        that does not answer has a problem."""

    def quorum(self, *, through_brokers: bool = True) -> QuorumState:
        """The state of the metadata quorum. Without a leader, a query `through_brokers` takes up to the time limit,
        because they wait for one; without it only a cluster whose controllers have no address queries brokers."""

    def registered(self, *, through: Collection[int] | None = None) -> RegisteredNodes:
        """The registered nodes, from one of the brokers `through`. None: from one whose metadata is current, as all
        queries about the whole cluster are answered; empty: from any broker, which can be cut off from the controllers
        and answer with its last metadata."""

    def partitions(
        self,
        *,
        through: Collection[int] | None = None,
        topics: Collection[str] | None = None,
        min_isr_age_s: float | None = 0.0,
    ) -> tuple[PartitionState, ...]:
        """The partitions of these topics that exist; None: all partitions, internal topics included. `through`: as for
        `registered`, the first of them first. `min_isr_age_s`: most seconds since this client read a topic's
        min.insync.replicas; None: the values are not needed, and UNKNOWN_MIN_ISR."""

    def movements(self) -> Movements:
        """Replicas that move between brokers or directories now."""

    def groups(self) -> tuple[GroupState, ...]: ...
    def transactions(self) -> tuple[TransactionState, ...]: ...
    def coordinators(self, node: NodeSpec, partitions: Sequence[PartitionState]) -> CoordinatorAnswers:
        """Ask the node about the coordinator partitions that it leads in `partitions`, and for the groups and
        transactional ids that it coordinates. Raises RefusedError for a missing right."""

    def inventory(
        self, *, configured_groups: Collection[str] = (), leaderless: bool = False, kept: bool = False
    ) -> ClusterInventory:
        """Topics, offsets, groups, dynamic configuration, client-metrics subscriptions, ACLs, SCRAM users and
        quotas. `configured_groups`: ids to query if groups with their own configuration cannot be listed. `leaderless`:
        leave out offsets of partitions that have no leader or no high watermark; else they raise TransientError.
        `kept`: also what retention keeps (ClusterInventory.kept)."""

    def log_starts(self, brokers: Collection[int], above: Mapping[str, int]) -> LogStarts:
        """The log starts above these offsets (by partition), of the partitions that these brokers lead."""

    def views(self, *, groups: Collection[str], topic_settings: Collection[str]) -> Mapping[int, BrokerView]:
        """Broker id → what this broker has of the metadata that clients set. `groups`: ids to query in addition to
        those that the brokers list. `topic_settings`: names to query of all topics; empty: none."""

    def acls(self) -> tuple[Acl, ...] | None:
        """All ACLs; None if the cluster has no authorizer. Raises NotObservableError if a broker cannot list them,
        RefusedError without the right."""

    def settings(self) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        """The settings of kinds that older releases do not support (cluster_contents.SETTINGS). This query works while
        partitions have no leader. Settings of groups are listed from 4.1 on, before only those of existing groups."""

    def dynamic_configs(self) -> DynamicConfigs:
        """What is configured in the cluster's metadata for topics, brokers, groups, client metrics and quotas."""

    def setting(self, name: str) -> SettingValues:
        """One setting of brokers and topics: of all brokers together, of every unfenced broker, of topics."""

    def node_config(self, node: NodeSpec) -> Mapping[str, str]:
        """The configuration file of the node as the node reports it, without secrets and unknown names. Raises
        NotObservableError if the node does not report it."""

    def settings_in_use(self, node: NodeSpec, names: Collection[str] | None = None) -> Mapping[str, Setting]:
        """The effective settings (None: all) of the node's process, as it reports them. Raises NotObservableError if it
        does not."""


class ClusterChanges(Protocol):
    """Changes of a cluster's metadata."""

    def unregister_broker(self, node_id: int) -> None:
        """Remove the registration of a broker that is gone; a repeated call does nothing."""

    def set_default_config(self, name: str, value: str, *, validate_only: bool) -> None:
        """Set the cluster-wide default of a broker setting; a repeated call does nothing more. Raises RefusedError for
        a missing right. `validate_only` changes nothing and is not fenced."""

    def update_features(
        self, targets: Mapping[str, int], *, validate_only: bool, unsafe: bool = False
    ) -> tuple[FeatureUpdateResult, ...]:
        """UpdateFeatures; the upgrade type follows from each level and the finalized one. `validate_only` changes
        nothing and is not fenced."""


class ClusterAdmin(ClusterQueries, ClusterChanges, Protocol):
    """Administration of one cluster through its own listeners."""

    def elect_preferred_leaders(self, partitions: Sequence[PartitionState]) -> None:
        """Elect preferred leaders; a partition that its preferred leader already leads is not an error.

        Not fenced: gates request it, and it changes neither a release nor a level.
        """

    def close(self) -> None: ...


class Metrics(Protocol):
    def read(self, node: NodeSpec) -> NodeMetrics:
        """All we use of a node's metrics, from both agents; empty for a node without an agent in the inventory. Raises
        TransientError when no agent answers."""


class OutsideValues(Protocol):
    def read(self, outside: OutsideCondition, *, not_before: float = 0.0) -> Reading:
        """The value of a condition of the operator, not older than its interval, and of a reading that began after
        `not_before` (epoch seconds). Raises nothing: an unknown value has its reason."""


class CoordinatorLogs(Protocol):
    """`planned`: the new group coordinator on the releases ahead (planned_group_coordinator); None: as the running
    brokers report. Results carry it, and who judges them configures the catalogue with it."""

    def scan_small(self, *, planned: bool | None) -> ScanResult:
        """Scan logs that this process can read in a few seconds, for all releases of the catalogue. Only reads. Raises
        RefusedError if they are longer. Without tagged fields and owners of records."""

    def scan_new_records(self, before: ScanResult, *, planned: bool | None, complete: bool = False) -> ScanResult:
        """Add the records since a scan, for the same releases. Only reads. `complete`: read the logs from the start, so
        that records that the cleaner has removed since no longer count; so does a scan for the other coordinator."""

    def unread_replicas(self) -> tuple[Damage, ...]:
        """The replicas that no broker returns now, found without a reading of the logs."""

    def group_records(self, *, planned: bool | None, by_spark: bool = False, incremental: bool = False) -> GroupRecords:
        """The groups' records in __consumer_offsets, read from the start. A log that is too long for one process is
        read by Spark if `by_spark`, and raises RefusedError if not. `incremental`: after an earlier reading, add the
        new records alone, for a while (GroupRecords.is_whole)."""


class KafkaClasses(Protocol):
    """What only Kafka's own classes can say for certain, run on a release's jars in a separate JVM."""

    def keep_processes(self) -> AbstractContextManager[None]:
        """Let the questions in the block, also those to metadata logs, share one JVM for each release.

        A JVM that a question changed, or that failed, is not used again. None is left when the outermost block ends."""

    def start_problems(self, release: Release, nodes: Mapping[int, NodeStart]) -> Mapping[int, StartProblems]:
        """Why nodes of the release would refuse to start with what they read, by node id."""

    def dynamic_config_problems(
        self, release: Release, brokers: Mapping[int, Mapping[str, str]], dynamic: DynamicConfigs
    ) -> tuple[ConfigProblem, ...]:
        """Why nodes of the release would not load the dynamic configuration as it is (empty: they would).

        `brokers`: the properties of each broker on the release. A kind whose classes the release does not have gives a
        problem too.
        """

    def acl_differences(
        self, source: Release, others: Sequence[Release], acls: Sequence[Acl], settings: Mapping[str, str]
    ) -> Mapping[Release, AclDifferences]:
        """What the authorizers (StandardAuthorizer) of other releases decide otherwise than that of `source`.

        `settings`: of a node. One JVM for each release."""

    def authentication_probes(
        self, release: Release, nodes: Mapping[int, Mapping[str, str]]
    ) -> Mapping[int, tuple[Probe, ...]]:
        """Give wrong credentials to the release's SASL servers, for the listeners of each node (id → properties)."""

    def setting_documentation(self, release: Release, names: Collection[str]) -> Mapping[str, str]:
        """Return the documentation of broker settings, as HTML, without settings that the release does not have."""

    def load_checkpoint(self, release: Release, path: Path) -> CheckpointSummary:
        """Load a snapshot with MetadataDelta/MetadataImage of the release; raises RefusedError if it cannot."""


class NodeQueries(Protocol):
    """The state of a node and its files."""

    def process(self, node: NodeSpec) -> ProcessState: ...
    def host(
        self,
        node: NodeSpec,
        releases: Sequence[Release],
        *,
        changes: Sequence[ConfigChange] = (),
        restarts: bool = False,
        returns: bool = False,
    ) -> HostState | None:
        """The node's host before a run, with the installed ones of `releases`; None for a process of this machine.

        `changes`: of the node's file. `restarts`: the run installs nothing. `returns`: a rollback, whose package only
        `bring` tries."""

    def installation(self, node: NodeSpec) -> Installation:
        """What an installation of another release loses, before the stop. Raises TransientError or RefusedError if it
        is unknown."""

    def short_timeouts(self) -> AbstractContextManager[None]:
        """Give up a host that does not respond after a few seconds, during the block. Slow commands stay allowed."""

    def starts(self, node: NodeSpec) -> tuple[StartRecord, ...]: ...
    def log_tail(self, node: NodeSpec, lines: int = 40, *, own: bool = False) -> tuple[str, ...]:
        """The last lines of the node's log. `own`: only those of its newest process; empty if they are not known."""

    def process_log(self, node: NodeSpec, after: str = "") -> LogPart | None:
        """What the node's newest process has logged since its start, or since `after`, the position of an earlier part.

        The begin is a fact that no client writes. None if no log can be read, or if there was no process."""

    def java_version(self, node: NodeSpec, releases: Sequence[Release]) -> int:
        """The feature version of the Java of the next start on one of the releases; without releases, on any. Raises
        NotObservableError if it is not known."""

    def jvm_arguments(self, node: NodeSpec, release: Release) -> tuple[str, ...]:
        """Arguments of the JVM of the next start on a release, as far as they can be read. Those of the process that
        only a script of another release has are left out. Raises TransientError if unknown."""

    def config(self, node: NodeSpec) -> Mapping[str, str]: ...
    def start_files(self, node: NodeSpec, config: Mapping[str, str]) -> tuple[StartFile, ...]:
        """The files that the next start of the same release reads, with the times of their last changes; empty if the
        runtime sees no files. `config`: of the node."""

    def jvm_problems(self, node: NodeSpec, releases: Sequence[Release]) -> tuple[str, ...]:
        """Why the node's own Java refuses the options of a start on one of the releases, in its words; empty: it
        accepts them. Raises TransientError, UserError or NotObservableError if that is unknown."""

    def unresolved_names(self, node: NodeSpec, names: Sequence[str]) -> tuple[str, ...]:
        """Those of some host names that the node's host cannot resolve now. Raises TransientError, RefusedError or
        NotObservableError if that is unknown."""

    def named_files(self, node: NodeSpec, files: Mapping[str, str]) -> tuple[NamedFile, ...] | None:
        """The state of the files (setting → path) that a configuration names; None if the runtime sees no files."""

    def find_classes(self, node: NodeSpec, release: Release, classes: Sequence[PluginClass]) -> ClassPlaces | None:
        """Where the node finds these classes on the release; None if the runtime sees no files of nodes."""

    def checkpoints(self, node: NodeSpec) -> tuple[CheckpointFile, ...]:
        """Snapshots of __cluster_metadata-0 on the node, oldest first; empty if the runtime cannot read files."""

    def copy_checkpoint(self, checkpoint: CheckpointFile, to: Path) -> None: ...

    def log_directories(self, node: NodeSpec) -> Mapping[str, str]:
        """directory.id → path of each of the node's directories that the runtime can read."""

    def directory_formats(self, node: NodeSpec, config: Mapping[str, str]) -> Mapping[str, DirectoryFormat] | None:
        """Path → format of each directory that a configuration names. None if the runtime cannot read one of them."""

    def log_folders(self, node: NodeSpec, config: Mapping[str, str]) -> Mapping[str, LogDirectory]:
        """Path → the names in each of `log_directories(config)`; none in one that does not exist. Raises
        TransientError, RefusedError or NotObservableError if they are unknown."""

    def metadata_log_dir(self, node: NodeSpec) -> Path | None:
        """The node's metadata.log.dir (by default the first of its log.dirs), as a path on its host. None if the
        runtime cannot read files there, or if a config provider has the path."""


class NodeChanges(Protocol):
    """How a node's binary is stopped, replaced and started. Every call is idempotent and may be repeated."""

    def claim(self, node: NodeSpec, claim: Claim) -> Claims:
        """Leave an open claim on the host of the node; return all claims that are there then."""

    def end_claims(self, node: NodeSpec, claims: Sequence[Claim], *, changed: bool) -> None:
        """Remove open claims. The newest of them stays as the closed one if the node was `changed`."""

    def bring(self, node: NodeSpec, release: Release, *, back: Release | None = None) -> bool:
        """Put the files of a release on the node's host, if they are missing there. The node can run.

        Return whether it has put files there, which no check of the host has seen. `back`: to which a rollback would
        return; its package must be available too.
        """

    def prepare_stop(self, node: NodeSpec) -> None:
        """Run the operator's commands before a stop; nothing if the node has no process or no commands. A repeated call
        runs them again. Raises FatalError for a command that fails."""

    def stop(self, node: NodeSpec, *, deadline_s: float, force: bool = False) -> None:
        """Controlled shutdown; returns when the process has ended.

        After the deadline `force`, which an approver requests, kills the process; without it FatalError is raised.
        """

    def install(
        self,
        node: NodeSpec,
        release: Release,
        changes: Sequence[ConfigChange] = (),
        *,
        held: Sequence[str] = (),
    ) -> str:
        """Make `release` the one that the next start runs, with its logging and configuration. Node must be stopped.

        Return what failed although the release is installed, as a sentence; empty if nothing did.
        `held`: the packages that were held before the stop, of Installation.
        """

    def start(self, node: NodeSpec) -> None:
        """Start the installed release unless the process is running already; does not wait for readiness."""

    def finish_start(self, node: NodeSpec) -> None:
        """Run the operator's commands after a start; nothing if the node has no process or no commands. A repeated call
        runs them again. Raises FatalError for a command that fails."""


class NodeRuntime(NodeQueries, NodeChanges, Protocol):
    """Nodes by their processes and hosts."""


class PreparedSnapshot(Protocol):
    """A snapshot of a running node's log, and the classes that wrote it, which still run."""

    def write(self, node: NodeSpec, out: Path, *, epoch: int, end_offset: int) -> WrittenSnapshot:
        """Write the end of a stopped node's log as a snapshot to `out`, and load it with the target's classes.

        `end_offset`: of the snapshot's name, not before the end of the log."""


class MetadataLogQueries(Protocol):
    """The contents of nodes' metadata logs, and snapshots of them in folders of this machine."""

    def losses(
        self,
        node: NodeSpec,
        to_level: int | None,
        *,
        source: Release,
        targets: Sequence[Release],
        features: Mapping[str, int],
        settings: Mapping[str, str],
        cluster_id: str,
    ) -> LossReport:
        """The losses of the cluster's metadata at a metadata.version (None: the current one) and on `targets`, which
        will run on it, by the classes of the releases. Reads a copy; the node can run. `features`: levels that are
        lowered before. `settings`: of a node, for its authorizer. Raises RefusedError if a target cannot start."""

    def scan(
        self, node: NodeSpec, release: Release, *, cluster_id: str, settings: Mapping[str, str] | None = None
    ) -> MetadataScan:
        """Whether a node of the release can start with this log. Reads a copy; the node can run. `settings`: the node's
        configuration, for the times in the remedies."""

    def registrations(self, node: NodeSpec, *, cluster_id: str) -> MetadataRegistrations:
        """Registered levels of brokers and controllers, and the state of a ZooKeeper migration. Reads a copy; the node
        can run."""

    def partitions(self, node: NodeSpec, *, cluster_id: str) -> LoggedPartitions:
        """The partitions with their in-sync replicas, and the brokers that are unfenced. Reads a copy; the node can
        run."""

    def node_log(self, node: NodeSpec, *, cluster_id: str) -> NodeLog:
        """The end of a stopped node's log, and its quorum state. Only reads. Raises UnreadableLogError for a missing or
        damaged log."""

    def log_bytes(self, node: NodeSpec) -> int:
        """Size of the log and its snapshots on disk."""

    def free_bytes(self, node: NodeSpec) -> int:
        """Free bytes of the file system of the log, for the node's user."""

    def write_snapshot(
        self,
        node: NodeSpec,
        out: Path,
        *,
        level: int,
        features: Mapping[str, int],
        epoch: int,
        source: Release,
        target: Release,
        settings: Mapping[str, str],
        cluster_id: str,
    ) -> WrittenSnapshot:
        """Write a snapshot of the end of a stopped node's log at a metadata.version and with lowered features.

        The classes of `source`, the release that runs, write it, or those of a newer release before 4.0. The classes of
        source and target load it; what the target does not keep or means otherwise is a loss. Raises RefusedError if
        one of them cannot start from it. `settings`: of a node, for the authorizers."""

    def prepared_snapshot(
        self,
        node: NodeSpec,
        *,
        level: int,
        features: Mapping[str, int],
        source: Release,
        target: Release,
        settings: Mapping[str, str],
        cluster_id: str,
    ) -> AbstractContextManager[PreparedSnapshot]:
        """Write and prove a snapshot of a running node's log, from a copy, to write it again quickly after the stop."""

    def prepare_install(self, node: NodeSpec, out: Path, *, level: int, target: Release, cluster_id: str) -> None:
        """Write to `out` what `install` needs in addition to the snapshot, while the node runs."""

    def refuse_used(self, node: NodeSpec, snapshot: str, *, cluster_id: str) -> None:
        """Raise RefusedError if the installation of this snapshot (the name of its file) cannot be undone: a broker has
        registered on it."""


class MetadataLogChanges(Protocol):
    """Changes of stopped nodes' metadata logs."""

    def trim(self, node: NodeSpec, *, release: Release, cluster_id: str) -> TrimResult:
        """Remove a stopped node's log before its newest snapshot, with a backup; a repeated call finishes. Raises
        RefusedError if the release could not read the rest, UserError for a running node."""

    def replace_bootstrap(self, node: NodeSpec, *, level: int, release: Release, cluster_id: str) -> Path | None:
        """Write a stopped node's bootstrap.checkpoint again, with no level above `level` and the release's; the copy of
        the old one, None if no level was lowered. Raises RefusedError if the release cannot read it."""

    def install(
        self,
        node: NodeSpec,
        snapshot: Path,
        *,
        level: int,
        target: Release,
        cluster_id: str,
        candidate: bool = False,
    ) -> str:
        """Replace a stopped node's whole log by a snapshot and lower its bootstrap.checkpoint, with a backup; a
        repeated call finishes. Returns a sentence. `candidate`: the node, which is a voter, starts as a candidate; only
        for one node. Raises UnreadableLogError for a directory without a log."""

    def undo_install(self, node: NodeSpec, snapshot: str, *, cluster_id: str, keep_epoch: bool = False) -> str | None:
        """Restore every file as before the installation of this snapshot (the name of its file); None if it is not
        installed: earlier ones stay. `keep_epoch`: except quorum-state, because running nodes can know its epoch.
        Raises RefusedError as `refuse_used` does and, with `keep_epoch`, if a leader was elected on the snapshot."""

    def raise_epoch(self, node: NodeSpec, *, epoch: int, cluster_id: str) -> None:
        """Store an epoch without a vote in a stopped controller's quorum-state, unless it knows this or a later one."""


class MetadataLogs(MetadataLogQueries, MetadataLogChanges, Protocol):
    """The metadata logs in nodes' directories (NodeRuntime.metadata_log_dir), read and changed with Kafka's classes.

    Every call raises UserError for the log of another cluster than `cluster_id`, and for a damaged one; RefusedError if
    the runtime cannot read the directory. Paths in results and sentences are those on the node's host.
    """
