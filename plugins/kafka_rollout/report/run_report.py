"""The report of a run: all its actions and observations, as one value. Its JSON form is report.json.

The names of the fields are its keys; `format` is their version. Times: epoch seconds; durations: seconds. The
conclusion, from the other values: which gate failed, what was proved, and what was not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from kafka_rollout.base.findings import Finding
from kafka_rollout.base.json_forms import Form, from_json, to_json
from kafka_rollout.base.wording import count, few
from kafka_rollout.gates.gate import GateCondition, GateKind
from kafka_rollout.gates.reasons import reason_of
from kafka_rollout.metadata_log.outage import (
    Outage,
    expected,
)
from kafka_rollout.model.contents import list_uncompared
from kafka_rollout.model.host_state import StartRecord
from kafka_rollout.model.node_log import LogExcerpt
from kafka_rollout.model.plan import (
    ConfigChange,
    DefaultChange,
    Direction,
    FeatureChange,
    Lowering,
    Plan,
    ReleaseStep,
)
from kafka_rollout.planning.lowering import LevelUndo
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.run.events import Approval, Event
from kafka_rollout.run.ports import RunStore
from kafka_rollout.run.projections.runs import RunEnd
from kafka_rollout.run.step_events import (
    BootstrapReplaced,
    FeatureResults,
    FeatureSupport,
    IncrementalScan,
    MetadataScanned,
    OfflineEvent,
    OfflineLogChosen,
    SnapshotLoaded,
    Trimmed,
    Validated,
)
from kafka_rollout.run.traffic import BEFORE
from kafka_rollout.run.view import GateState, RunView, StepState

FORMAT = 2
Document = Mapping[str, Any]
"""A document of the run history in its stored form. An earlier version can have stored it."""


def event_form(event: Event) -> dict[str, Any]:
    """Return `at`, `kind` and the fields of an event with the keys of the report."""
    data: dict[str, Any] = to_json(event)
    match event:
        case SnapshotLoaded():
            data |= data.pop("summary")
        case OfflineLogChosen():
            data |= data.pop("log")
        case FeatureResults():
            data = {"at": event.at, "results": feature_results(event)}
    return {**data, "kind": event.kind}


def feature_results(event: FeatureResults) -> dict[str, str]:
    """Return feature → result and reason."""
    return {one.feature: f"{one.result.value} {one.sentence}".strip() for one in event.outcomes}


_EVENT = Form(event_form)


class Outcome(StrEnum):
    FINISHED = "finished"
    ROLLED_NOT_FINALIZED = "rolled_not_finalized"
    ROLLED_BACK = "rolled_back"
    STOPPED = "stopped"
    REFUSED = "refused"
    DRY_RUN = "dry_run"


UNFINISHED = frozenset({Outcome.STOPPED, Outcome.ROLLED_BACK})
_AT_TARGET = frozenset({Outcome.FINISHED, Outcome.ROLLED_NOT_FINALIZED})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """One step of a run, or the node steps of one release step."""

    id: str
    label: str
    state: StepState
    reason: str = ""
    """Why it was skipped, has failed or waits; the number of nodes that are done."""
    at: float | None = None
    """When it got its state (epoch s), of a step that has begun when it began; None if open."""


def _release_step_form(step: ReleaseStep) -> dict[str, Any]:
    return {
        "key": step.key,
        "from": str(step.from_release),
        "to": str(step.to_release),
        "reason": step.reason,
        "order": to_json(step)["order"],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimesReport:
    """A node step, from its stop (or start, if the node was down) to the end of its gate."""

    release_step: str
    began_at: float | None
    started_at: float | None
    ended_at: float | None
    stop_s: float | None
    start_s: float | None
    gate_s: float | None
    total_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    node_id: int
    name: str
    roles: tuple[str, ...]
    release: Release | None
    """None if the node did not respond."""
    starts: tuple[StartRecord, ...]
    """Of this run."""
    starts_per_release: Mapping[str, int]
    node_steps: tuple[NodeTimesReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """Nodes that the plan restarts together."""

    release_step: str
    node_ids: tuple[int, ...]
    rack: str
    ends: str
    """Why the batch has no further node."""
    parts: tuple[tuple[int, ...], ...]
    """The parts in which they restarted; one part if the batch was not split."""
    split: str
    """Why it was split."""
    began_at: float | None
    """Of its first node step; None before the first stop."""
    ended_at: float | None
    """Of its last node step; None before the last gate has passed."""
    duration_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    at: float
    passes: bool
    conditions: tuple[GateCondition, ...]
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    gate: str
    kind: GateKind
    release_step: str | None
    node_id: int | None
    state: GateState
    message: str
    checks: tuple[CheckReport, ...]
    """The first and the last of the recorded checks."""
    checks_recorded: int
    began_at: float | None
    ended_at: float | None
    waited_s: float | None

    @property
    def is_passed(self) -> bool:
        return self.state in {GateState.PASSED, GateState.PASSES}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedGate:
    """The gate at which the run stopped."""

    gate: str
    kind: GateKind
    release_step: str | None
    node_id: int | None
    began_at: float | None
    ended_at: float | None
    message: str
    reason: str
    """Why its last check did not pass; the cause first."""
    unmet: tuple[GateCondition, ...]
    """Conditions of its last check."""
    met: int
    """Number of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLevel(FeatureChange):
    shown_undo: LevelUndo | None
    """The method as the approval showed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesReport:
    before: Mapping[str, int]
    """Feature → finalized level."""
    after: Mapping[str, int]
    """Feature → finalized level."""
    planned: tuple[PlannedLevel, ...]
    answers: tuple[Validated, ...]
    """The controller's validate-only answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentLevel:
    """metadata.version as one node reports it."""

    node_id: int
    prometheus: int | None
    jolokia: int | None
    api_versions: int | None
    source: str
    """Where the value comes from, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The report of an upgrade."""

    format: int = FORMAT
    run_id: str
    run: int
    """The number of the run."""
    cluster: str
    cluster_id: str
    direction: Direction
    way: str
    source: Release
    target: Release
    plan_hash: str
    outcome: Outcome
    sentence: str
    began_at: float
    ended_at: float
    duration_s: float
    release_steps: tuple[Annotated[ReleaseStep, Form(_release_step_form)], ...]
    findings: tuple[Finding, ...]
    accept_unavailable: tuple[str, ...]
    config_changes: tuple[ConfigChange, ...]
    default_changes: tuple[DefaultChange, ...]
    nodes: tuple[NodeReport, ...]
    gates: tuple[GateReport, ...]
    approvals: tuple[Approval, ...]
    features: FeaturesReport
    current_metadata_version: tuple[CurrentLevel, ...]
    feature_support: Annotated[FeatureSupport, _EVENT] | None
    rehearsal: Document | None
    scan: Document | None
    scan_tails: tuple[Annotated[IncrementalScan, _EVENT], ...]
    traffic: Document | None
    state_comparisons: tuple[Document, ...]
    groups: Document | None
    snapshot: Annotated[SnapshotLoaded, _EVENT] | None
    unanswered: tuple[str, ...]
    """A sentence per query without an answer at the end."""
    steps: tuple[StepLine, ...] = ()
    next_action: str = ""
    """What an operator does now."""
    failed_gate: FailedGate | None = None
    logs: tuple[LogExcerpt, ...] = ()
    """Of nodes whose gate failed."""
    proved: tuple[str, ...] = ()
    """A sentence per fact."""
    not_proved: tuple[str, ...] = ()
    """A sentence per fact."""
    warnings: tuple[str, ...] = ()
    """A sentence per failure on a host that did not stop the run and needs an operator."""
    batches: tuple[BatchReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOutage:
    began_at: float
    served_at: float | None
    seconds: float | None
    """At most; None while the outage continues."""
    seconds_at_least: float
    writable_s: float | None
    sentence: str

    @classmethod
    def of(cls, outage: Outage) -> MeasuredOutage:
        return cls(
            began_at=outage.began_at,
            served_at=outage.served_at,
            seconds=_rounded(outage.seconds),
            seconds_at_least=round(outage.seconds_at_least, 1),
            writable_s=_rounded(outage.writable_s),
            sentence=outage.sentence,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageReport:
    expected_s: float | None
    """If no controller is killed."""
    expected_at_most_s: float | None
    """If a controller is killed."""
    expected: str | None
    """Both in words."""
    measured: tuple[MeasuredOutage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DowngradeReport(RunReport):
    unsafe: bool
    lowering: Lowering
    """The way in which metadata.version is lowered."""
    losses: Document | None
    metadata_logs: tuple[MetadataScanned, ...]
    trims: tuple[Annotated[Trimmed, _EVENT], ...]
    bootstraps: tuple[Annotated[BootstrapReplaced, _EVENT], ...]
    outage: OutageReport | None
    offline_steps: tuple[Annotated[OfflineEvent, _EVENT], ...]
    """Of a live downgrade too."""


def _results_form(results: FeatureResults | None) -> dict[str, Any]:
    return {} if results is None else event_form(results)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureReport(RunReport):
    """The report of a separate change of features."""

    results: Annotated[FeatureResults | None, Form(_results_form)]


R = TypeVar("R", bound=RunReport)


def extended(report: RunReport, kind: type[R], **more: Any) -> R:
    """Return the report as one of class `kind`. `more`: its further fields, and those that replace others."""
    return kind(**{one.name: getattr(report, one.name) for one in fields(report)} | more)


def stored_end(run: RunStore) -> RunEnd | None:
    """Return the end of a run as its stored report has it; None without a report that can be read. Another version can
    have written it."""
    stored = run.attachment("report.json")
    try:
        return None if stored is None else from_json(RunEnd, stored)
    except ValueError:
        return None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def find_failed_gate(report: RunReport) -> FailedGate | None:
    """Return the gate at which the run stopped, or because of which it was rolled back; None without one.

    A run at its target has left each gate that only waited: an approver accepted what held it.
    """
    at_target = report.outcome in _AT_TARGET
    open_gates = [one for one in report.gates if not one.is_passed and (one.state is GateState.FAILED or not at_target)]
    if not open_gates:
        return None
    failed = max(open_gates, key=lambda gate: gate.ended_at or 0.0)
    newest = failed.checks[-1] if failed.checks else None
    conditions = () if newest is None else newest.conditions
    return FailedGate(
        gate=failed.gate,
        kind=failed.kind,
        release_step=failed.release_step,
        node_id=failed.node_id,
        began_at=failed.began_at,
        ended_at=failed.ended_at,
        message=failed.message,
        reason=reason_of(conditions),
        unmet=tuple(one for one in conditions if not one.is_met),
        met=sum(one.is_met for one in conditions),
    )


def list_proofs(report: RunReport, *, is_compared: bool) -> Iterator[str]:
    """Yield a sentence for each fact that the run proved, with its evidence in numbers.

    `is_compared`: the cluster was compared with its state before the run since the last change.
    """
    if report.outcome in {Outcome.DRY_RUN, Outcome.REFUSED}:
        return
    proofs = (*_PROOFS, *(_PROOFS_BY_COMPARISON if is_compared else ()))
    yield from filter(None, (proof(report) for proof in proofs))


def _prove_release(report: RunReport) -> str:
    final = report.source if report.outcome is Outcome.ROLLED_BACK else report.target
    if not report.nodes or any(node.release != final for node in report.nodes):
        return ""
    restarted = sum(bool(node.starts) for node in report.nodes)
    return f"All {count(len(report.nodes), 'node')} run Kafka {final}; {restarted} of them restarted in this run."


def _prove_gates(report: RunReport) -> str:
    steps = [one for node in report.nodes for one in node.node_steps]
    if not steps or any(one.ended_at is None for one in steps):
        return ""
    gates = [gate for gate in report.gates if gate.kind is GateKind.AFTER_START]
    checks = count(sum(gate.checks_recorded for gate in gates), "recorded check")
    return f"After each restart the node passed its gate: {count(len(steps), 'gate')}, {checks}."


def _prove_levels(report: RunReport) -> str:
    after = report.features.after
    reached = [one for one in report.features.planned if after.get(one.feature, 0) == one.target and one.target]
    levels = ", ".join(f"{one.feature} {one.target}" for one in reached)
    return f"These levels are finalized: {levels}." if levels else ""


def _prove_level_of_nodes(report: RunReport) -> str:
    level, seen = report.features.after.get(METADATA_VERSION), report.current_metadata_version
    is_proved = bool(seen) and len(seen) == len(report.nodes) and all(_levels(one) == {level} for one in seen)
    return f"Every node reports metadata.version {level} itself." if is_proved else ""


def _prove_snapshot(report: RunReport) -> str:
    if report.snapshot is None or not report.snapshot.proved:
        return ""
    loaded = report.snapshot.summary
    return (
        f"The classes of Kafka {loaded.release} load the metadata snapshot of node {report.snapshot.node_id} "
        f"(end offset {report.snapshot.end_offset}) with the planned levels: {loaded.topics} topics, "
        f"{loaded.partitions} partitions."
    )


def _prove_traffic(report: RunReport) -> str:
    if report.traffic is None or not report.traffic.get("ok"):
        return ""
    number = f"{report.traffic['acknowledged']:,}"
    through = "" if any(one["kind"] == BEFORE for one in report.traffic["discrepancies"]) else " through every restart"
    return f"Test traffic ran{through}: {number} records were acknowledged, and all are in the log."


def _prove_state(report: RunReport) -> str:
    if not report.state_comparisons or any(one.get("digest") for one in report.state_comparisons):
        return ""
    return (
        "Topics, configuration, ACLs and groups are as before the run, except for the differences of the plan and the "
        "changes of clients."
    )


def _prove_coordinator_logs(report: RunReport) -> str:
    if not report.scan_tails or any(tail.findings for tail in report.scan_tails):
        return ""
    offsets = sum(tail.offsets for tail in report.scan_tails)
    return f"The older release loads what was written to the coordinator logs since the scan ({offsets:,} offsets)."


_PROOFS = (
    _prove_release,
    _prove_gates,
    _prove_levels,
    _prove_level_of_nodes,
    _prove_snapshot,
    _prove_traffic,
    _prove_coordinator_logs,
)
_PROOFS_BY_COMPARISON = (_prove_state,)


def list_gaps(report: RunReport, *, is_compared: bool) -> Iterator[str]:
    """Yield a sentence for each fact that the run did not prove, because it was not observed.

    `is_compared`: as of `list_proofs`.
    """
    if report.outcome in {Outcome.DRY_RUN, Outcome.REFUSED}:
        return
    if silent := [f"node {node.node_id}" for node in report.nodes if node.release is None]:
        yield f"The release of {few(silent)} is unknown: there was no response."
    if report.traffic is None:
        yield "No test traffic ran: whether clients lost records was not checked."
    elif not report.traffic.get("ok"):
        yield "The check of the test traffic did not pass."
    if report.release_steps and not report.state_comparisons:
        yield "The state of the cluster was not compared with its state before the run."
    elif not is_compared:
        yield "The state of the cluster was not compared with its state before the run since the last change."
    for compared in report.state_comparisons[-1:]:
        for name in list_uncompared(compared["unasked"]):
            yield f"Not compared with the state before the run: {name}. {compared['unasked'][name]}"
    for sentence in report.unanswered:
        yield f"A query failed: {sentence}"


def _levels(seen: object) -> set[int]:
    values = (getattr(seen, name) for name in ("prometheus", "jolokia", "api_versions"))
    return {value for value in values if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    release: Release | None = None
    """The run moved every node to it; None if it moved none."""
    levels: Mapping[str, int] = field(default_factory=dict)
    """Feature → finalized level, of the features that the plan changes."""


def proved_by(plan: Plan, outcome: Outcome) -> Proved:
    """Return what the outcome proves. An outcome is `finished` only after all gates that prove the levels passed."""
    is_rolled = outcome in {Outcome.FINISHED, Outcome.ROLLED_NOT_FINALIZED}
    is_finalized = outcome is Outcome.FINISHED
    return Proved(
        release=plan.target if is_rolled and plan.changes_release else None,
        levels={change.feature: change.target for change in plan.feature_changes if is_finalized},
    )


def outage_report(view: RunView, expected_s: tuple[float, float] | None) -> OutageReport:
    """Return the outages for the report. `expected_s`: seconds if no controller is killed, and if one is."""
    total_s, longest_s = expected_s or (None, None)
    return OutageReport(
        expected_s=total_s,
        expected_at_most_s=longest_s,
        expected=None if expected_s is None else expected(*expected_s),
        measured=tuple(MeasuredOutage.of(one) for one in view.outages),
    )
