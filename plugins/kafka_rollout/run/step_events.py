"""Events of a run's record: nodes and gates, feature levels, coordinator logs and metadata logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.features.answers import FeatureOutcome
from kafka_rollout.gates.check import GateCheck, GateRef
from kafka_rollout.metadata_log.scan import Readiness, ReplayFailure
from kafka_rollout.model.state import CheckpointSummary
from kafka_rollout.rehearsal.result import Outcome
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Event
from kafka_rollout.run.traffic_verdict import TrafficVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent(Event):
    """An event of one node in one release step."""

    node_id: int
    release_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparingStop(NodeEvent, kind="preparing-stop"):
    """Recorded before the operator's commands before a stop. `at_most_s`: sum of their time limits."""

    commands: int
    at_most_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPrepared(NodeEvent, kind="stop-prepared"):
    """The commands before a stop ended without an error."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(NodeEvent, kind="stopping"):
    """Recorded before the node is asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(NodeEvent, kind="stopped"):
    """A node stopped. `forced`: the process was killed at the end of its deadline."""

    seconds: float
    forced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(NodeEvent, kind="started"):
    """A node was started. `pid` is None when the process was gone before it was looked up."""

    release: Release
    pid: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSplit(Event, kind="batch-split"):
    """The nodes of a batch could not be stopped together: they restart in these parts. `sentence`: the reason.

    `release_step`: its key, also of a rollback; empty in events of version 0.2.0.
    """

    parts: tuple[tuple[int, ...], ...]
    sentence: str
    release_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed(NodeEvent, kind="trimmed"):
    """The node's metadata log was trimmed. `start_offset`: its new start; None when nothing was left to do."""

    sentence: str
    backup: str | None
    start_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapReplaced(NodeEvent, kind="bootstrap-replaced"):
    """The node's bootstrap.checkpoint was written again at `level`; `backup` is None when it was done before."""

    level: int
    backup: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateChecked(Event, kind="gate"):
    """One check of a gate. Not every check is recorded: see steps.gates.checks."""

    ref: GateRef
    check: GateCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEnded(Event):
    """`gate` names the gate for a reader; `message` says how long it took and what it waited for."""

    ref: GateRef
    gate: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePassed(GateEnded, kind="gate-held"):
    """The checks of a gate passed, and every check of its soak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFailed(GateEnded, kind="gate-failed"):
    """A gate did not pass: its timeout expired, or its node cannot pass any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed(Event, kind="rehearsal"):
    """The change was tried on a copy. `node_seconds`: release step and node → seconds; `findings` as text."""

    outcome: Outcome
    sentence: str
    seconds: float
    node_seconds: Mapping[str, float]
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated(Event, kind="validated"):
    """The controller's validate-only answers. `levels`: feature → level; `answers`: feature → error and message."""

    levels: Mapping[str, int]
    answers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSupport(Event, kind="feature-support"):
    """Whether every node supports the levels; `findings` as text."""

    levels: Mapping[str, int]
    ok: bool
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultSet(Event, kind="default-set"):
    """The run set the cluster-wide default of a broker setting, and every broker reports it.

    `before`: the default when the plan was made; None if there was none.
    """

    key: str
    value: str
    before: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalizing(Event, kind="finalizing"):
    """Recorded before UpdateFeatures is sent. `epoch_before`: the highest epoch of finalized features seen before."""

    levels: Mapping[str, int]
    epoch_before: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalized(Event, kind="finalized"):
    """`epoch_after`: an epoch whose finalized features include the levels."""

    levels: Mapping[str, int]
    epoch_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRace(Event, kind="feature-race"):
    """Whether a node with a narrower range joined while levels were finalized (KIP-584); `findings` as text."""

    ok: bool
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureResults(Event, kind="feature-results"):
    """The result of each requested feature."""

    outcomes: tuple[FeatureOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLoaded(Event, kind="snapshot"):
    """A snapshot of the metadata log, as Kafka's own classes loaded it.

    `end_offset` and `epoch` name the snapshot; `finalized_by_offset`: the offset at which this run's levels are
    finalized; `proved`: the snapshot has the planned levels.
    """

    summary: CheckpointSummary
    node_id: int
    end_offset: int
    epoch: int
    finalized_by_offset: int | None
    proved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanEvaluated(Event, kind="scan"):
    """Whether `release` could still load the coordinator logs; `findings` as text."""

    release: Release
    records: int
    partitions: int
    ok: bool
    sentence: str
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalScan(Event, kind="scan-tail"):
    """The coordinator logs after the run's scan. `offsets`: their number; `since`: epoch seconds of that scan;
    `findings`: new ones, as text."""

    release_step: str
    offsets: int
    since: float
    seconds: float
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossesReported(Event, kind="losses"):
    """Number of losses of metadata at the lower level. `first`: sentences of at most 20 of them."""

    from_level: int
    to_level: int
    losses: int
    default_only: int
    unsafe: bool
    first: tuple[str, ...]


class ScanStage(StrEnum):
    """When all metadata logs were scanned."""

    BEFORE = "before"  # before anything was changed
    READY = "ready"  # when the levels were lowered


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogFound:
    """One node's metadata log, for one release. `last_failing`: the last offset that the release cannot replay;
    `starts_at`: from where the release would read, in words."""

    node_id: int
    release: Release
    verdict: str
    readiness: Readiness
    bootstrap_too_new: bool
    starts_at: str
    start_offset: int
    end_offset: int
    first_failure: ReplayFailure | None
    last_failing: int | None
    remedies: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataScanned(Event, kind="metadata-scan"):
    """Every metadata log that the runtime can read, for every release of the plan."""

    stage: ScanStage
    nodes: tuple[MetadataLogFound, ...]


class ComparedAfter(StrEnum):
    """The change after which a cluster is compared with its state before the run."""

    ROLL = "roll"
    LEVELS = "levels"
    DOWNGRADE = "downgrade"  # its contents only; a failed comparison fails the step


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentsTaken(Event, kind="inventory"):
    """The cluster's contents, and before an upgrade its configuration, were stored. `counts`: part → number."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentsCompared(Event, kind="inventory-compared"):
    """The cluster's contents and configuration after a change, and the number of differences.

    `failing`: number of those that need an approver, `first`: their first sentences, `digest`: their hash. Records of
    earlier versions have none of these.
    """

    counts: Mapping[str, int]
    differences: int
    after: ComparedAfter = ComparedAfter.DOWNGRADE
    failing: int = 0
    first: tuple[str, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCompared(Event, kind="ledger"):
    """Acknowledged and consumed records of the test traffic."""

    verdict: TrafficVerdict
