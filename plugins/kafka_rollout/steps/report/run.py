"""Builds the report of a run from its history and one last observation of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.gates.check import GateKind
from kafka_rollout.model.node_log import LogExcerpt
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.state import ClusterState, NodeState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.planning.lowering import LevelUndo
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.report.run_report import (
    CheckReport,
    CurrentLevel,
    FailedGate,
    FeaturesReport,
    GateReport,
    NodeReport,
    NodeTimesReport,
    PlannedLevel,
    RunReport,
)
from kafka_rollout.run.events import Approval, Event, Observed, events_of, newest
from kafka_rollout.run.projections.nodes import (
    GateHistory,
    NodeTimes,
    find_last_node_event,
    gate_histories,
    node_times,
    stop_is_unfinished,
)
from kafka_rollout.run.step_events import FeatureSupport, IncrementalScan, SnapshotLoaded, Validated
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe
from kafka_rollout.steps.common.node_steps import read_log_excerpt
from kafka_rollout.steps.gates.waiting import log_of
from kafka_rollout.steps.live.level_undo import UNDOS
from kafka_rollout.steps.planning.comparison import COMPARED
from kafka_rollout.steps.planning.rehearsal import REHEARSAL_RESULT
from kafka_rollout.steps.report.batches import find_batches
from kafka_rollout.steps.report.outcome import outcome_of

SCAN_VERDICT = "scan/verdict.json"
TRAFFIC_VERDICT = "traffic/verdict.json"
GROUPS_WATCHED = "groups/watch.json"
_KEPT_CHECKS = 20
_KEPT_DIFFERENCES = 500


def build_report(
    ports: ClusterPorts, plan: Plan, *, dry_run: bool = False, proofs: Sequence[GateKind] = ()
) -> RunReport:
    """Build the report from the run history and one last observation of the cluster. It contains no credentials.

    `proofs`: gates without which changed levels are not proved.
    """
    events = tuple(event for event in ports.run.events() if event.at)  # without lines cut by a kill
    try:
        state: ClusterState | None = observe(ports)
        unanswered = ""
    except TransientError as error:
        state, unanswered = None, error.sentence
    gates = gate_histories(events)
    outcome, sentence = outcome_of(ports, plan, state, events, gates, dry_run=dry_run, proofs=proofs)
    began = events[0].at if events else ports.clock.now()
    ended = events[-1].at if events else began
    return RunReport(
        run_id=ports.run_id,
        cluster=plan.cluster,
        cluster_id=plan.cluster_id,
        direction=plan.direction,
        way=plan.way,
        source=plan.source,
        target=plan.target,
        plan_hash=plan.hash,
        outcome=outcome,
        sentence=sentence,
        began_at=began,
        ended_at=ended,
        duration_s=round(ended - began, 3),
        release_steps=plan.release_steps,
        findings=plan.findings,
        accept_unavailable=plan.accept_unavailable,
        config_changes=plan.config_changes,
        default_changes=plan.default_changes,
        nodes=tuple(_node(ports, node, state, events, gates) for node in ports.cluster.nodes),
        gates=tuple(_gate(gate) for gate in gates),
        approvals=events_of(events, Approval),
        features=_features(plan, state, events, ports.run.attachment(UNDOS)),
        current_metadata_version=tuple(_current(ports, node, state) for node in ports.cluster.nodes),
        feature_support=newest(events, FeatureSupport),
        rehearsal=ports.run.attachment(REHEARSAL_RESULT),
        scan=ports.run.attachment(SCAN_VERDICT),
        scan_tails=events_of(events, IncrementalScan),
        traffic=ports.run.attachment(TRAFFIC_VERDICT),
        state_comparisons=tuple(
            {"after": after.value, **_shortened(compared)}
            for after, name in COMPARED.items()
            if (compared := ports.run.attachment(name)) is not None
        ),
        groups=ports.run.attachment(GROUPS_WATCHED),
        snapshot=newest(events, SnapshotLoaded),
        unanswered=(unanswered,) if unanswered else tuple(state.unanswered if state else ()),
        batches=find_batches(plan, events, gates),
    )


def find_logs(ports: ClusterPorts, failed: FailedGate | None, events: Sequence[Event]) -> tuple[LogExcerpt, ...]:
    """Return the log of the node whose gate failed, as it was then, or of the node that is still stopped."""
    last = find_last_node_event(events)
    if failed is not None and failed.node_id is not None:
        kept = ports.run.attachment(log_of(failed.node_id), LogExcerpt)
        node_id = failed.node_id
    elif last is not None and stop_is_unfinished(events, last.release_step, last.node_id):
        kept, node_id = None, last.node_id
    else:
        return ()
    return (kept or read_log_excerpt(ports, ports.cluster.node(node_id)),)


def _shortened(compared: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored comparison with the first differences; the run history has all."""
    differences = compared["differences"]
    return {**compared, "differences": differences[:_KEPT_DIFFERENCES], "differences_found": len(differences)}


def _gate(gate: GateHistory) -> GateReport:
    checks = gate.checks
    kept = checks if len(checks) <= _KEPT_CHECKS else (*checks[: _KEPT_CHECKS // 2], *checks[-_KEPT_CHECKS // 2 :])
    return GateReport(
        gate=gate.gate,
        kind=gate.ref.kind,
        release_step=gate.ref.release_step,
        node_id=gate.ref.node_id,
        state=gate.state,
        message=gate.message,
        checks=tuple(
            CheckReport(at=one.at, passes=one.passes, conditions=one.conditions, details=one.details) for one in kept
        ),
        checks_recorded=len(checks),
        began_at=gate.began_at,
        ended_at=gate.ended_at,
        waited_s=_rounded(gate.waited_s),
    )


def _node(
    ports: ClusterPorts,
    node: NodeSpec,
    state: ClusterState | None,
    events: Sequence[Event],
    gates: Sequence[GateHistory],
) -> NodeReport:
    began, ended = (events[0].at, events[-1].at) if events else (0.0, 0.0)
    starts = tuple(start for start in ports.runtime.starts(node) if began <= start.started_at <= ended)
    seen = state.nodes.get(node.node_id) if state else None
    after = {
        gate.ref.release_step: gate
        for gate in gates
        if gate.ref.kind is GateKind.AFTER_START and gate.ref.node_id == node.node_id
    }
    return NodeReport(
        node_id=node.node_id,
        name=node.name,
        roles=tuple(sorted(role.value for role in node.roles)),
        release=seen.release if seen else None,
        starts=starts,
        starts_per_release=dict(Counter(str(start.release) for start in starts)),
        node_steps=tuple(
            _node_step(release_step, times, after.get(release_step))
            for release_step, times in node_times(events, node.node_id).items()
        ),
    )


def _node_step(release_step: str, times: NodeTimes, gate: GateHistory | None) -> NodeTimesReport:
    ended = gate.ended_at if gate is not None and gate.is_passed else None
    return NodeTimesReport(
        release_step=release_step,
        began_at=times.began_at,
        started_at=times.started_at,
        ended_at=ended,
        stop_s=times.stop_s,
        start_s=times.start_s,
        gate_s=_rounded(gate.waited_s) if gate is not None else None,
        total_s=round(ended - times.began_at, 3) if ended is not None and times.began_at is not None else None,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _features(
    plan: Plan, state: ClusterState | None, events: Sequence[Event], shown: Mapping[str, Any] | None
) -> FeaturesReport:
    undos = {one["feature"]: from_json(LevelUndo, one) for one in shown["undos"]} if shown is not None else {}
    observed = events_of(events, Observed)
    return FeaturesReport(
        before=observed[0].finalized if observed else {},
        after=state.finalized if state else {},
        planned=tuple(
            PlannedLevel(**asdict(change), shown_undo=undos.get(change.feature)) for change in plan.feature_changes
        ),
        answers=events_of(events, Validated),
    )


def _current(ports: ClusterPorts, node: NodeSpec, state: ClusterState | None) -> CurrentLevel:
    seen = state.nodes.get(node.node_id) if state else None
    metrics = seen.metrics if seen else None
    return CurrentLevel(
        node_id=node.node_id,
        prometheus=metrics.current_metadata_version_prometheus if metrics else None,
        jolokia=metrics.current_metadata_version_jolokia if metrics else None,
        api_versions=seen.features.finalized.get(METADATA_VERSION) if seen and seen.features else None,
        source=_source(ports, seen),
    )


def _source(ports: ClusterPorts, seen: NodeState | None) -> str:
    if seen is None or (seen.metrics is None and seen.features is None):
        return "no response"
    release = seen.release
    if release is None:
        return "ApiVersions (the metrics do not report the release)"
    if release in ports.catalogue and not ports.catalogue.get(release).has_current_metadata_version_metric:
        return f"ApiVersions (release {release} has no CurrentMetadataVersion metric)"
    metrics = seen.metrics
    values = (metrics.current_metadata_version_prometheus, metrics.current_metadata_version_jolokia) if metrics else ()
    sources = [name for name, value in zip(("Prometheus", "Jolokia"), values, strict=False) if value is not None]
    if not sources and metrics is not None and not metrics.unanswered:
        return "ApiVersions (no metrics agent exports CurrentMetadataVersion)"
    return "CurrentMetadataVersion (Prometheus and Jolokia)"
