"""Events of a run's record: nodes and gates, feature levels, logs, and downgrades by a snapshot with their undo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.base.durations import duration
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.features.registrations import SeenRegistrations
from kafka_rollout.features.requests import FeatureOutcome
from kafka_rollout.gates.gate import GateCheck, GateKind, GateRef
from kafka_rollout.metadata_log.log_choice import ChosenLog
from kafka_rollout.metadata_log.metadata_scan import LogReadiness, ReplayFailure
from kafka_rollout.model.node_log import SeenLog
from kafka_rollout.model.state import CheckpointSummary
from kafka_rollout.rehearsal.result import RehearsalOutcome
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Event, Words
from kafka_rollout.run.traffic import CoveredVerdict


class NodeEvent(Event):
    """An event of one node in one release step."""

    node_id: int
    release_step: str


class PreparingStop(NodeEvent, kind="preparing-stop"):
    """Recorded before the operator's commands before a stop."""

    commands: int
    at_most_s: float
    """Sum of their time limits."""

    def line(self, words: Words) -> str:
        commands = f"{self.commands} command{'s' if self.commands > 1 else ''} before the stop"
        where = words.place(self.release_step, self.node_id)
        return f"{where}: running {commands}, at most {duration(self.at_most_s)}"


class StopPrepared(NodeEvent, kind="stop-prepared"):
    """The commands before a stop ended without an error."""

    seconds: float

    def line(self, words: Words) -> str:
        return f"{words.place(self.release_step, self.node_id)}: ready to stop in {duration(self.seconds)}"


class Stopping(NodeEvent, kind="stopping"):
    """Recorded before the node is asked to stop."""

    def line(self, words: Words) -> str:
        return f"{words.place(self.release_step, self.node_id)}: stopping"


class Stopped(NodeEvent, kind="stopped"):
    """A node stopped."""

    seconds: float
    forced: bool
    """The process was killed at the end of its deadline."""


class Started(NodeEvent, kind="started"):
    """A node was started. `pid` is None when the process was gone before it was looked up."""

    release: Release
    pid: int | None
    seconds: float

    def line(self, words: Words) -> str:
        return f"{words.place(self.release_step, self.node_id)}: started"


class StartingWithCommands(Event, kind="starting-with-commands"):
    """Recorded before the start of a node with the operator's commands after a start, which are due from now on."""

    node_id: int
    commands: int
    at_most_s: float
    """Sum of their time limits."""

    def line(self, words: Words) -> str:
        many = count(self.commands, "command")
        return f"node {self.node_id}: starting, with {many} after the start, at most {duration(self.at_most_s)}"


class StartFinished(Event, kind="start-finished"):
    """The commands after a start ended without an error."""

    node_id: int
    seconds: float

    def line(self, words: Words) -> str:
        return f"node {self.node_id}: the commands after the start ended in {duration(self.seconds)}"


class StartUnfinished(Event, kind="start-unfinished"):
    """A command after a start failed. A repeated step runs the commands of the node again."""

    node_id: int
    sentence: str

    def line(self, words: Words) -> str:
        return f"node {self.node_id}: warning: {self.sentence}"


class InstalledWithError(NodeEvent, kind="installed-with-error"):
    """The release is installed, and something failed in its installation, such as the script of another package."""

    sentence: str

    def line(self, words: Words) -> str:
        return f"{words.place(self.release_step, self.node_id)}: warning: {self.sentence}"


class RegistrationsRead(Event, kind="registrations-read"):
    """Whether the brokers that can have to register again are registered with the levels to raise."""

    release_step: str
    seen: SeenRegistrations
    pids: Mapping[int, int | None]
    """Node id → its process, None for a node without one. A registration belongs to a process."""

    def line(self, words: Words) -> str:
        return f"registrations with the levels to raise: {self.seen}"


class BatchSplit(Event, kind="batch-split"):
    """An approver decided that the nodes of a batch, which cannot be stopped together, restart in these parts."""

    parts: tuple[tuple[int, ...], ...]
    sentence: str
    """The reason."""
    release_step: str
    """Its key, also of a rollback."""

    def line(self, words: Words) -> str:
        parts = ", then ".join(nodes(part) for part in self.parts)
        return f"the batch is split into {parts}: {self.sentence}"


class RollbackPlanned(Event, kind="rollback-planned"):
    """A rollback begins: its batches in their order, each with the key of its release step and its nodes."""

    batches: tuple[tuple[str, tuple[int, ...]], ...]


class Trimmed(NodeEvent, kind="trimmed"):
    """The node's metadata log was trimmed."""

    sentence: str
    backup: str | None
    start_offset: int | None
    """Its new start; None when nothing was left to do."""

    def line(self, words: Words) -> str:
        return f"node {self.node_id}: {self.sentence}"


class BootstrapReplaced(NodeEvent, kind="bootstrap-replaced"):
    """The node's bootstrap.checkpoint was written again at `level`; `backup` is None when it was done before."""

    level: int
    backup: str | None


class GateChecked(Event, kind="gate"):
    """One check of a gate. Not every check is recorded: see roll.gate_checks."""

    ref: GateRef
    check: GateCheck

    def line(self, words: Words) -> str:
        if self.check.passes:
            return ""
        return f"{words.gate(self.ref)}: {self.check.waits_for}"


class LogSeen(Event, kind="log-seen"):
    """What the log of a node's process has shown so far."""

    node_id: int
    seen: SeenLog


class GateEnded(Event):
    """`gate` names the gate for a reader; `message` says how long it took and what it waited for."""

    ref: GateRef
    gate: str
    message: str


class GatePassed(GateEnded, kind="gate-held"):
    """The checks of a gate passed, and every check of its soak."""

    def line(self, words: Words) -> str:
        if self.ref.release_step is None or self.ref.node_id is None:
            return f"{words.gate(self.ref)}: {self.message}"
        if self.ref.kind is not GateKind.AFTER_START:
            return ""  # the following stop shows it too
        return f"{words.place(self.ref.release_step, self.ref.node_id)}: done"


class GateFailed(GateEnded, kind="gate-failed"):
    """A gate did not pass: its timeout expired, or its node cannot pass any more."""

    reason: str = ""
    """Why, without the time that it took."""

    @property
    def sentence(self) -> str:
        return f"Gate {self.gate} {self.message.rstrip('.')}."

    def line(self, words: Words) -> str:
        return f"{words.gate(self.ref)}: the gate {self.message}"


class Rehearsed(Event, kind="rehearsal"):
    """The change was tried on a copy."""

    outcome: RehearsalOutcome
    sentence: str
    seconds: float
    node_seconds: Mapping[str, float]
    """Release step and node → seconds."""
    findings: tuple[str, ...]
    """As text."""

    def line(self, words: Words) -> str:
        return self.sentence


class Validated(Event, kind="validated"):
    """The controller's validate-only answers."""

    levels: Mapping[str, int]
    """Feature → level."""
    answers: Mapping[str, str]
    """Feature → error and message."""


class FeatureSupport(Event, kind="feature-support"):
    """Whether every node supports the levels; `findings` as text."""

    levels: Mapping[str, int]
    ok: bool
    findings: tuple[str, ...]


class DefaultSet(Event, kind="default-set"):
    """The run set the cluster-wide default of a broker setting, and every broker reports it."""

    key: str
    value: str
    before: str | None
    """The default when the plan was made; None if there was none."""

    def line(self, words: Words) -> str:
        return f"cluster-wide default: {self.key} = {self.value}"


class Finalizing(Event, kind="finalizing"):
    """Recorded before UpdateFeatures is sent."""

    levels: Mapping[str, int]
    epoch_before: int | None
    """The highest epoch of finalized features seen before."""


class Finalized(Event, kind="finalized"):
    """The controller finalized the levels, as a broker reports them."""

    levels: Mapping[str, int]
    epoch_after: int | None
    """An epoch whose finalized features include the levels."""

    def line(self, words: Words) -> str:
        return f"finalized: {', '.join(f'{name} {level}' for name, level in self.levels.items())}"


class FeatureRace(Event, kind="feature-race"):
    """Whether a node with a narrower range joined while levels were finalized (KIP-584); `findings` as text."""

    ok: bool
    findings: tuple[str, ...]


class FeatureResults(Event, kind="feature-results"):
    """The result of each requested feature."""

    outcomes: tuple[FeatureOutcome, ...]

    def line(self, words: Words) -> str:
        if all(one.result.ok for one in self.outcomes):
            return ""
        return "; ".join(f"{one.feature}: {one.result} {one.sentence}".strip() for one in self.outcomes)


class SnapshotLoaded(Event, kind="snapshot"):
    """A snapshot of the metadata log, as Kafka's own classes loaded it.

    `end_offset` and `epoch` name the snapshot.
    """

    summary: CheckpointSummary
    node_id: int
    end_offset: int
    epoch: int
    finalized_by_offset: int | None
    """The offset at which this run's levels are finalized."""
    proved: bool
    """The snapshot has the planned levels."""


class ScanEvaluated(Event, kind="scan"):
    """Whether `release` could still load the coordinator logs; `findings` as text."""

    release: Release
    records: int
    partitions: int
    ok: bool
    sentence: str
    findings: tuple[str, ...]


class IncrementalScan(Event, kind="scan-tail"):
    """The coordinator logs after the run's scan."""

    release_step: str
    offsets: int
    """Their number."""
    since: float
    """Epoch seconds of that scan."""
    seconds: float
    findings: tuple[str, ...]
    """New ones, as text."""

    def line(self, words: Words) -> str:
        number = f"{self.offsets:,} new offsets" if self.offsets else "no new records"
        new = f": {'; '.join(self.findings)}" if self.findings else ""
        return f"coordinator logs: {number} since the scan{new}"


class LossesReported(Event, kind="losses"):
    """Number of losses of metadata at the lower level."""

    from_level: int
    to_level: int
    losses: int
    default_only: int
    unsafe: bool
    first: tuple[str, ...]
    """Sentences of at most 20 of them."""
    document: str
    """The name of the whole report in the run history."""

    def line(self, words: Words) -> str:
        lost = f"{self.losses} losses" if self.losses else "no loss"
        return f"metadata.version {self.from_level} → {self.to_level}: {lost}"


class ScanStage(StrEnum):
    """When all metadata logs were scanned."""

    BEFORE = "before"  # before anything was changed
    READY = "ready"  # when the levels were lowered


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogFound:
    """One node's metadata log, for one release."""

    node_id: int
    release: Release
    verdict: str
    readiness: LogReadiness
    bootstrap_too_new: bool
    starts_at: str
    """From where the release would read, in words."""
    start_offset: int
    end_offset: int
    first_failure: ReplayFailure | None
    last_failing: int | None
    """The last offset that the release cannot replay."""
    remedies: tuple[str, ...]


class MetadataScanned(Event, kind="metadata-scan"):
    """Every metadata log that the runtime can read, for every release of the plan."""

    stage: ScanStage
    nodes: tuple[MetadataLogFound, ...]


class ComparedAfter(StrEnum):
    """The change after which a cluster is compared with its state before the run."""

    ROLL = "roll"
    APPROVAL = "approval"  # of the levels, right before they are raised
    LEVELS = "levels"
    DOWNGRADE = "downgrade"
    ROLLBACK = "rollback"  # to the source of the plan


class ContentsTaken(Event, kind="inventory"):
    """The cluster's contents, and before an upgrade its configuration, were stored."""

    counts: Mapping[str, int]
    """Part → number."""


class ContentsCompared(Event, kind="inventory-compared"):
    """The cluster's contents and configuration after a change, and the number of differences."""

    counts: Mapping[str, int]
    differences: int
    after: ComparedAfter = ComparedAfter.DOWNGRADE
    failing: int = 0
    """Number of those that need an approver."""
    first: tuple[str, ...] = ()
    """The first sentences of these."""
    digest: str = ""
    """The hash of these."""
    uncompared: tuple[str, ...] = ()
    """Parts of the contents that exist and could not be read, before the run or now."""

    def line(self, words: Words) -> str:
        counting = f", {self.failing} not in the plan: {few(self.first)}" if self.failing else ""
        unread = f", not compared: {few(self.uncompared)}" if self.uncompared else ""
        return f"compared with the state before: {self.differences or 'no'} differences{counting}{unread}"


class TrafficCompared(Event, kind="ledger"):
    """Acknowledged and consumed records of the test traffic."""

    verdict: CoveredVerdict


class TrafficNotFound(Event, kind="no-traffic"):
    """There is no process of the test traffic that a killed call can have started."""


class TrafficChecked(Event, kind="traffic-so-far"):
    """The test traffic so far was compared, before a step that cannot be undone."""

    unproved: tuple[str, ...]
    """What is lost or unknown, as sentences."""
    why: str = ""
    """Why the records were not compared, as a sentence."""

    def line(self, words: Words) -> str:
        found = few(self.unproved) if self.unproved else "nothing is lost"
        return f"test traffic so far: {found} {self.why}".rstrip()


class EarlierRunsRead(Event, kind="earlier-runs"):
    """What other runs of the cluster found and no approver accepted was read, before levels are raised."""

    unaccepted: tuple[str, ...]
    """As sentences that name the run."""

    def line(self, words: Words) -> str:
        return f"not accepted after earlier runs: {few(self.unaccepted) or 'nothing'}"


class OfflineEvent(Event):
    """An event of a downgrade by a snapshot, offline or live. Its kind starts with `offline-` or `live-`."""


class OfflineSentence(OfflineEvent):
    """An event with its result as a sentence."""

    sentence: str

    def line(self, words: Words) -> str:
        return self.sentence


class OfflineNodeEvent(OfflineSentence):
    node_id: int

    def line(self, words: Words) -> str:
        is_named = f"ode {self.node_id}" in self.sentence
        return self.sentence if is_named else f"node {self.node_id}: {self.sentence}"


class OfflineStopping(OfflineSentence, kind="offline-stopping"):
    """Recorded before the first stop."""

    voters: tuple[int, ...]
    """Of the quorum."""
    unwritable: tuple[str, ...]
    """Topic-partitions that were below their min.insync.replicas already."""


class OfflineLogChosen(OfflineEvent, kind="offline-chosen"):
    """The metadata log from which the snapshot is written."""

    log: ChosenLog

    def line(self, words: Words) -> str:
        return f"the metadata log of node {self.log.node_id} is chosen"


class OfflineSnapshotWritten(OfflineEvent, kind="offline-snapshot"):
    """The snapshot at the lower level was written."""

    file: str
    """Its name."""
    from_level: int
    """Of metadata.version."""
    to_level: int
    """Of metadata.version."""
    records: int
    proved_by: tuple[Release, ...]
    lost: tuple[str, ...]
    """A sentence per loss."""
    host: str = ""
    """The machine that holds the file; empty in an event of an earlier version."""

    def line(self, words: Words) -> str:
        return f"the snapshot at metadata.version {self.to_level} is written: {count(self.records, 'record')}"


class OfflineInstalled(OfflineNodeEvent, kind="offline-installed"):
    """The snapshot is installed on a node."""

    had_log: bool
    """False: the node's directory held no log and was left as it was."""


class OfflineLeftBehind(OfflineNodeEvent, kind="offline-left-behind"):
    """The cluster works without this node: its log was lost, or its host did not respond."""


class OfflineUnreached(OfflineNodeEvent, kind="offline-unreached"):
    """The host of this node did not respond when the snapshot was installed. The node is not started without it."""


class OfflineNoReturn(OfflineSentence, kind="offline-no-return"):
    """Recorded before the first broker starts: from here on there is no undo."""


class OfflineUndoing(OfflineSentence, kind="offline-undoing"):
    """Recorded before an undo."""

    epoch: int = 0
    """Above every epoch of the controllers; 0 in an event of an earlier version."""


class OfflineRestored(OfflineNodeEvent, kind="offline-put-back"):
    """A node's metadata log was restored from its backup."""


class OfflineUndone(OfflineSentence, kind="offline-undone"):
    """The undo is done."""

    nodes: tuple[int, ...]
    """Those whose metadata logs were restored."""


class LiveLowered(OfflineSentence, kind="live-lowered"):
    """The controllers serve at the lower level."""

    without_controller_s: float
    """At most, without an active controller."""


class LiveFailed(OfflineSentence, kind="live-failed"):
    """The level was not lowered, and the controllers run on their old logs again. `sentence`: with the reason."""


class LiveKept(OfflineSentence, kind="live-kept"):
    """The undo of a live downgrade ended before it was done, because a leader was elected on the snapshot."""


class OfflineWritable(OfflineSentence, kind="offline-writable"):
    """Every partition has a leader and its min.insync.replicas again."""


class OfflineServed(OfflineSentence, kind="offline-served"):
    """Every broker serves requests again."""

    unserved_at: float
    """Epoch seconds of the last check that failed; 0 for none."""
