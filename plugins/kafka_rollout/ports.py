"""Ports: what the steps ask of the world. Adapters implement them; tests of pure steps use fakes held to the same
contract (tests/contract).

All calls are synchronous. A call that got no answer raises TransientError; a call whose answer is "no" returns it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kafka_rollout.domain.coordinator_logs.scan import ScanResult
from kafka_rollout.domain.gates.check import BeforeStop, GateCheck
from kafka_rollout.domain.groups.records import GroupRecords
from kafka_rollout.domain.metadata_log.losses import LossReport
from kafka_rollout.domain.metadata_log.scan import MetadataScan
from kafka_rollout.domain.metadata_log.trim import TrimResult
from kafka_rollout.domain.model.cluster_contents import ClusterInventory
from kafka_rollout.domain.model.plan import ConfigChange, Plan
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.state import (
    GroupState,
    NodeFeatures,
    NodeMetrics,
    PartitionState,
    ProcessState,
    QuorumState,
    RegisteredNodes,
    StartRecord,
    TransactionState,
)
from kafka_rollout.domain.model.topology import NodeSpec
from kafka_rollout.domain.offline.log_choice import NodeLog, WrittenSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdateResult:
    """The controller's answer for one feature: `error` is Kafka's error name (`NONE` when accepted) and message."""

    feature: str
    error: str
    message: str = ""

    @property
    def accepted(self) -> bool:
        return self.error == "NONE"


class ClusterAdmin(Protocol):
    """Administration of one cluster through its own listeners."""

    def cluster_id(self) -> str: ...
    def features(self, node: NodeSpec) -> NodeFeatures:
        """ApiVersions of this very node (a controller is asked on its own listener)."""
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
        quotas. `configured_groups`: ids to ask for where groups with a configuration of their own cannot be listed."""
        ...

    def settings(self) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        """The inventory's settings of kinds that older releases do not know (cluster_inventory.SETTINGS), alone: what
        can be asked while partitions have no leader. Those of groups are listed from 4.1 on, before only of groups
        that are there."""
        ...

    def elect_preferred_leaders(self, partitions: Sequence[PartitionState]) -> None:
        """Ask for preferred leaders; partitions already led by theirs are no error."""
        ...

    def update_features(
        self, targets: Mapping[str, int], *, validate_only: bool, unsafe: bool = False
    ) -> tuple[FeatureUpdateResult, ...]:
        """UpdateFeatures; the upgrade type follows from each level against the finalized one."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFile:
    """A snapshot of the metadata log on a node: `end_offset`/`epoch` from its name, `modified_at` in epoch seconds."""

    node_id: int
    path: str
    end_offset: int
    epoch: int
    size: int
    modified_at: float


class NodeRuntime(Protocol):
    """How a node's binary is stopped, replaced and started. Every call is idempotent and may be repeated."""

    def process(self, node: NodeSpec) -> ProcessState: ...
    def stop(self, node: NodeSpec, *, deadline_s: float, force: bool = False) -> None:
        """Controlled shutdown; returns when the process is gone.

        After the deadline it is ended by its id if a person asked for `force`, else FatalError: the shutdown goes on.
        """
        ...

    def install(self, node: NodeSpec, release: Release, changes: Sequence[ConfigChange] = ()) -> None:
        """Make `release` the one that the next start runs, with its logging and configuration. Node must be stopped."""
        ...

    def start(self, node: NodeSpec) -> None:
        """Start the installed release unless the process is running already; does not wait for readiness."""
        ...

    def starts(self, node: NodeSpec) -> tuple[StartRecord, ...]: ...
    def log_tail(self, node: NodeSpec, lines: int = 40) -> tuple[str, ...]: ...
    def java_version(self, node: NodeSpec) -> int: ...
    def config(self, node: NodeSpec) -> Mapping[str, str]: ...
    def checkpoints(self, node: NodeSpec) -> tuple[CheckpointFile, ...]:
        """Snapshots of __cluster_metadata-0 on the node, oldest first; empty where the runtime cannot see files."""
        ...

    def copy_checkpoint(self, checkpoint: CheckpointFile, to: Path) -> None: ...

    def log_directories(self, node: NodeSpec) -> Mapping[str, str]:
        """directory.id → path of each of the node's directories that the runtime can look into."""
        ...

    def metadata_log_dir(self, node: NodeSpec) -> Path | None:
        """The node's metadata.log.dir (by default the first of its log.dirs), as this process reaches it; None where
        the runtime cannot see files of the node's host."""
        ...


class Metrics(Protocol):
    def read(self, node: NodeSpec) -> NodeMetrics:
        """All we use of a node's metrics, from both agents; raises TransientError when neither answers."""
        ...


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


class KafkaClasses(Protocol):
    """What only Kafka's own classes can say for certain, run on a release's jars in a separate JVM."""

    def config_problems(self, release: Release, properties: Mapping[str, str]) -> tuple[str, ...]:
        """Why the release would refuse to start with these properties (empty: it would not)."""
        ...

    def load_checkpoint(self, release: Release, path: Path) -> CheckpointSummary:
        """Load a snapshot with MetadataDelta/MetadataImage of the release; raises RefusedError if it cannot."""
        ...


class MetadataLogs(Protocol):
    """The metadata logs in nodes' directories (NodeRuntime.metadata_log_dir), read and changed with Kafka's classes.

    Every call raises UserError for the log of another cluster than `cluster_id`, and for a damaged one.
    """

    def losses(self, directory: Path, to_level: int, *, cluster_id: str) -> LossReport:
        """What the cluster's metadata would lose at a lower metadata.version. Works on a copy; the node may run."""
        ...

    def scan(
        self, directory: Path, release: Release, *, cluster_id: str, settings: Mapping[str, str] | None = None
    ) -> MetadataScan:
        """Would a node of the release come through this log when it starts? Works on a copy; the node may run.
        `settings`: the node's configuration, for the times in the remedies."""
        ...

    def trim(self, directory: Path, *, release: Release, cluster_id: str) -> TrimResult:
        """Cut a stopped node's log below its newest snapshot, with a backup; called again, it finishes. Raises
        RefusedError where the release could not read what would be left, UserError for a running node."""
        ...

    def replace_bootstrap(self, directory: Path, *, level: int, release: Release, cluster_id: str) -> Path | None:
        """Write a stopped node's bootstrap.checkpoint anew, with no level above `level` and the release's; the copy of
        the old one, None where nothing had to be lowered. Raises RefusedError where the release cannot read it."""
        ...

    def undo_trim(self, directory: Path, *, cluster_id: str) -> TrimResult:
        """Put back what the newest trim removed; raises UserError where the node has written to the log since."""
        ...

    def node_log(self, directory: Path, node_id: int, *, cluster_id: str) -> NodeLog:
        """How far a stopped node's log goes, and what it knows of the quorum. Only reads. Raises UnreadableLogError
        where there is none or it is damaged."""
        ...

    def log_bytes(self, directory: Path, *, cluster_id: str) -> int:
        """Size of the log and its snapshots on disk."""
        ...

    def write_snapshot(
        self,
        directory: Path,
        out: Path,
        *,
        level: int,
        features: Mapping[str, int],
        epoch: int,
        target: Release,
        cluster_id: str,
    ) -> WrittenSnapshot:
        """A snapshot of the end of a stopped node's log at a metadata.version and with features lowered, proved by
        the target's classes. Raises RefusedError where the target could not start from it."""
        ...

    def install(self, directory: Path, snapshot: Path, *, level: int, target: Release, cluster_id: str) -> str:
        """Put a snapshot in the place of a stopped node's whole log, and lower its bootstrap.checkpoint; with a
        backup. Called again, it finishes. A sentence with what was done. Raises UnreadableLogError where the
        directory holds no log, not even a damaged one."""
        ...

    def refuse_used(self, directory: Path, *, cluster_id: str) -> None:
        """Raise RefusedError where the newest installation cannot be taken back: a broker has registered on it."""
        ...

    def undo_install(self, directory: Path, *, cluster_id: str) -> str | None:
        """Put every file back as it was before the newest installation; None where there is none to be taken back.
        Raises RefusedError as `refuse_used` does."""
        ...


class CoordinatorLogs(Protocol):
    def scan_on(self, before: ScanResult, *, anew: bool = False) -> ScanResult:
        """The scan carried on to what the logs hold now; verdicts of the same releases. Reads only. `anew`: all of the
        logs is read again, and what the cleaner has removed since `before` counts no more."""
        ...

    def group_records(self, *, by_spark: bool = False) -> GroupRecords:
        """What __consumer_offsets holds of groups now, all of it read anew. A log that is too long for one process is
        left to Spark with `by_spark`, and raises RefusedError without."""
        ...


class RunStore(Protocol):
    """One run's record: plan, events, what was seen before stops, report. Survives the death of whoever writes."""

    def save_plan(self, plan: Plan) -> None: ...
    def load_plan(self) -> Plan: ...
    def save_before_stop(self, release_step: str, before: BeforeStop, *, anew: bool = False) -> None:
        """Kept once per node and release step: a second save for the same pair keeps the first, unless it is made
        `anew`."""
        ...

    def load_before_stop(self, release_step: str, node_id: int) -> BeforeStop | None: ...
    def record(self, kind: str, data: Mapping[str, Any]) -> None:
        """Append one event (`at` is added); kinds: observed, plan, approval, gate, stopped, started, finalized, …"""
        ...

    def record_check(self, look: GateCheck) -> None: ...
    def events(self) -> tuple[Mapping[str, Any], ...]: ...
    def attachment(self, name: str) -> Any | None:
        """JSON that another part left in the run's folder (`ledger/verdict.json`); None when there is none."""
        ...

    def attach(self, name: str, data: Any) -> None:
        """Leave JSON in the run's folder (`metadata/losses.json`), whole or not at all."""
        ...

    def write_report(self, html: str, data: Mapping[str, Any]) -> tuple[Path, Path]:
        """(report.html, report.json), written whole or not at all."""
        ...

    def private_path(self, name: str) -> Path:
        """A path outside the report store, its folder 0700; the file is to be written with mode 0600."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """`cluster` is the inventory's name, `cluster_id` Kafka's ("" while not known); `holder` is the run; `purpose` a
    sentence; times in epoch seconds."""

    cluster: str
    holder: str
    purpose: str
    acquired_at: float
    expires_at: float
    cluster_id: str = ""


class ChangeLock(Protocol):
    """One change at a time per cluster. A lease: a killed holder blocks others only until `expires_at`."""

    def acquire(
        self, cluster: str, holder: str, purpose: str, *, for_s: float, shorten: bool = False, cluster_id: str = ""
    ) -> Lock:
        """Take or renew (a renewal makes the lease shorter only with `shorten`); raises LockHeldError naming the
        holder, its purpose and when it ends.

        With `cluster_id`, which a lease keeps once it is known, also when that cluster is held under another name."""
        ...

    def acting(self, cluster: str, what: str) -> AbstractContextManager[None]:
        """One process at a time acts on the cluster, also of one holder (a task that runs twice, a run resumed
        twice). Raises TransientError while another one does; ends with the process."""
        ...

    def release(self, cluster: str, holder: str) -> None: ...
    def holder(self, cluster: str) -> Lock | None: ...
    def break_(self, cluster: str, by: str) -> Lock | None:
        """Take the lock away from its holder; `by` is the named person and is recorded."""
        ...
