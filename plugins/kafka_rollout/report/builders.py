"""Builds the reports of runs from their history and one last observation of the cluster.

The outcome is one word and one sentence. The observed state has priority over the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.wording import count, few
from kafka_rollout.control.approval import expected_outage_s
from kafka_rollout.features.requests import feature_changes
from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.lowering.outage_facts import UNDOS, outage_sentence
from kafka_rollout.model.node_log import LogExcerpt
from kafka_rollout.model.plan import Batch, Lowering, Plan, ReleaseStep
from kafka_rollout.model.state import ClusterState, NodeState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, levels_now, observe
from kafka_rollout.observation.node_logs import read_log_excerpt
from kafka_rollout.observation.node_steps import rollback_release_steps
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.lowering import LevelUndo
from kafka_rollout.preparation.frozen_plan import SCAN_BEFORE_ROLL
from kafka_rollout.preparation.lost_metadata import LOSSES
from kafka_rollout.preparation.plan_making import REHEARSAL_RESULT
from kafka_rollout.preparation.state_comparison import COMPARED, CONTENTS_COMPARED
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.report.run_report import (
    BatchReport,
    CheckReport,
    CurrentLevel,
    DowngradeReport,
    FailedGate,
    FeatureReport,
    FeaturesReport,
    GateReport,
    NodeReport,
    NodeTimesReport,
    Outcome,
    PlannedLevel,
    RunReport,
    extended,
    outage_report,
)
from kafka_rollout.roll.gate_checks import log_of
from kafka_rollout.run.events import Approval, Observed, RollbackClosed, Voided
from kafka_rollout.run.projections.nodes import node_step_times
from kafka_rollout.run.step_events import (
    BatchSplit,
    BootstrapReplaced,
    FeatureRace,
    FeatureResults,
    FeatureSupport,
    Finalizing,
    IncrementalScan,
    LiveLowered,
    MetadataScanned,
    OfflineEvent,
    SnapshotLoaded,
    Started,
    TrafficCompared,
    Trimmed,
    Validated,
)
from kafka_rollout.run.traffic import TrafficVerdict, with_coverage
from kafka_rollout.run.view import GateHistory, NodeView, RunView

SCAN_VERDICT = "scan/verdict.json"
TRAFFIC_VERDICT = "traffic/verdict.json"
GROUPS_WATCHED = "groups/watch.json"
_KEPT_CHECKS = 20
_KEPT_DIFFERENCES = 500


def record_traffic(ports: ClusterPorts, verdict: TrafficVerdict) -> TrafficVerdict:
    """Record and return the result of the test traffic, with the node steps that it does not cover.

    Its series is only in the attachment.
    """
    verdict = with_coverage(verdict, node_step_times(ports.run.events()))
    ports.run.attach(TRAFFIC_VERDICT, {**asdict(verdict), "ok": verdict.ok})
    ports.run.record(TrafficCompared(verdict=replace(verdict, series=())))
    return verdict


def build_report(run: Run, *, dry_run: bool = False, proofs: Sequence[GateKind] = ()) -> RunReport:
    """Build the report from the run history and one last observation of the cluster. It contains no credentials.

    `proofs`: gates without which changed levels are not proved.
    """
    view = RunView.of(event for event in run.history.events() if event.at)  # without lines cut by a kill
    try:
        state: ClusterState | None = observe(run.ports)
        unanswered = ""
    except TransientError as error:
        state, unanswered = None, error.sentence
    outcome, sentence = outcome_of(run, state, view, dry_run=dry_run, proofs=proofs)
    began = run.ports.clock.now() if view.first_at is None else view.first_at
    ended = began if view.last_at is None else view.last_at
    return RunReport(
        run_id=run.ports.run_id,
        cluster=run.plan.cluster,
        cluster_id=run.plan.cluster_id,
        direction=run.plan.direction,
        way=run.plan.way,
        source=run.plan.source,
        target=run.plan.target,
        plan_hash=run.plan.hash,
        outcome=outcome,
        sentence=sentence,
        began_at=began,
        ended_at=ended,
        duration_s=round(ended - began, 3),
        release_steps=run.plan.release_steps,
        findings=run.plan.findings,
        accept_unavailable=run.plan.accept_unavailable,
        config_changes=run.plan.config_changes,
        default_changes=run.plan.default_changes,
        nodes=tuple(_node(run.ports, node, state, view) for node in run.cluster.nodes),
        gates=tuple(_gate(gate) for gate in view.gates.values()),
        approvals=view.all(Approval),
        features=_features(run.plan, state, view, run.history.attachment(UNDOS)),
        current_metadata_version=tuple(_current(run.ports, node, state) for node in run.cluster.nodes),
        feature_support=view.newest(FeatureSupport),
        rehearsal=run.history.attachment(REHEARSAL_RESULT),
        scan=run.history.attachment(SCAN_VERDICT),
        scan_tails=view.all(IncrementalScan),
        traffic=run.history.attachment(TRAFFIC_VERDICT),
        state_comparisons=tuple(
            {"after": after.value, **_shortened(compared)}
            for after, name in COMPARED.items()
            if (compared := run.history.attachment(name)) is not None
        ),
        groups=run.history.attachment(GROUPS_WATCHED),
        snapshot=view.newest(SnapshotLoaded),
        unanswered=(unanswered,) if unanswered else tuple(state.unanswered if state else ()),
        batches=find_batches(run.plan, view),
    )


def find_logs(ports: ClusterPorts, failed: FailedGate | None, view: RunView) -> tuple[LogExcerpt, ...]:
    """Return the log of the node whose gate failed, as it was then, or of the node that is still stopped."""
    if failed is not None and failed.node_id is not None:
        kept = ports.run.attachment(log_of(failed.node_id), LogExcerpt)
        node_id = failed.node_id
    elif (stopped := view.unfinished_stop) is not None:
        kept, node_id = None, stopped.node_id
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


def _node(ports: ClusterPorts, node: NodeSpec, state: ClusterState | None, view: RunView) -> NodeReport:
    began, ended = view.first_at or 0.0, view.last_at or 0.0
    starts = tuple(start for start in ports.runtime.starts(node) if began <= start.started_at <= ended)
    seen = state.nodes.get(node.node_id) if state else None
    steps = [one for one in view.nodes.values() if one.node_id == node.node_id and one.began_at is not None]
    return NodeReport(
        node_id=node.node_id,
        name=node.name,
        roles=tuple(sorted(role.value for role in node.roles)),
        release=seen.release if seen else None,
        starts=starts,
        starts_per_release=dict(Counter(str(start.release) for start in starts)),
        node_steps=tuple(_node_step(one, view) for one in sorted(steps, key=lambda one: one.began_at or 0.0)),
    )


def _gate_after(view: RunView, release_step: str, node_id: int) -> GateHistory | None:
    return view.gates.get(GateRef(kind=GateKind.AFTER_START, release_step=release_step, node_id=node_id))


def _node_step(node: NodeView, view: RunView) -> NodeTimesReport:
    gate = _gate_after(view, node.release_step, node.node_id)
    ended = gate.ended_at if gate is not None and gate.is_passed else None
    return NodeTimesReport(
        release_step=node.release_step,
        began_at=node.began_at,
        started_at=node.started_at,
        ended_at=ended,
        stop_s=node.stop_s,
        start_s=node.start_s,
        gate_s=_rounded(gate.waited_s) if gate is not None else None,
        total_s=round(ended - node.began_at, 3) if ended is not None and node.began_at is not None else None,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _features(plan: Plan, state: ClusterState | None, view: RunView, shown: Mapping[str, Any] | None) -> FeaturesReport:
    undos = {one["feature"]: from_json(LevelUndo, one) for one in shown["undos"]} if shown is not None else {}
    observed = view.all(Observed)
    return FeaturesReport(
        before=observed[0].finalized if observed else {},
        after=state.finalized if state else {},
        planned=tuple(
            PlannedLevel(**asdict(change), shown_undo=undos.get(change.feature)) for change in plan.feature_changes
        ),
        answers=view.all(Validated),
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


def outcome_of(
    run: Run,
    state: ClusterState | None,
    view: RunView,
    *,
    dry_run: bool,
    proofs: Sequence[GateKind],
) -> tuple[Outcome, str]:
    """Return the outcome and a sentence."""
    if dry_run:
        return Outcome.DRY_RUN, f"Dry run: nothing was changed. The plan has {len(run.plan.blockers)} blocker(s)."
    started = view.newest(Started)
    if state is None:
        return Outcome.STOPPED, "The cluster did not respond when the report was written. See the last gate."
    back = {release_step.key for release_step in rollback_release_steps(run.plan)}
    if started is not None and (started.release_step in back or view.is_rollback_refused):
        if _all_run(run.ports, state, run.plan.source):
            return Outcome.ROLLED_BACK, f"Every node runs {run.plan.source} again."
        closed = view.newest(RollbackClosed)
        why = "" if closed is None else f" {closed.sentence}"
        return Outcome.STOPPED, f"The rollback to {run.plan.source} is not finished: {_running(state)}.{why}"
    if _all_run(run.ports, state, run.plan.target):
        if found := view.unaccepted(run.plan.hash):
            sentence = f"Every node runs {run.plan.target}, but the cluster differs from its state before the run"
            return Outcome.STOPPED, f"{sentence}: {few(found.first)}"
        return _after_the_roll(run, state, view, proofs)
    if started is None:
        return Outcome.REFUSED, f"Nothing was changed: {refusal_of(run.plan, view)}"
    return Outcome.STOPPED, f"The change to {run.plan.target} stopped: {_running(state)}. {view.last_failure}".strip()


def _after_the_roll(run: Run, state: ClusterState, view: RunView, proofs: Sequence[GateKind]) -> tuple[Outcome, str]:
    left = feature_changes(run.ports.catalogue, state, run.plan.target)
    if left:
        levels = ", ".join(f"{change.feature} {change.current} → {change.target}" for change in left)
        return (
            Outcome.ROLLED_NOT_FINALIZED,
            f"Every node runs {run.plan.target}. Not finalized yet: {levels}. Start a new run to finalize.",
        )
    if run.plan.feature_changes and (missing := missing_proofs(view, proofs)):
        sentence = (
            f"Every node runs {run.plan.target} at the finalized levels, but these checks are missing: {missing}."
        )
        return Outcome.STOPPED, sentence
    return Outcome.FINISHED, f"Every node runs {run.plan.target}, and all its features are finalized."


def missing_proofs(view: RunView, proofs: Sequence[GateKind]) -> str:
    """List the kinds in `proofs` of which the run has passed no gate; empty if it passed all."""
    passed = {gate.ref.kind for gate in view.gates.values() if gate.is_passed}
    return ", ".join(kind.value for kind in proofs if kind not in passed)


def _all_run(ports: ClusterPorts, state: ClusterState, release: Release) -> bool:
    return all(
        (seen := state.nodes.get(node.node_id)) is not None and seen.release == release for node in ports.cluster.nodes
    )


def _running(state: ClusterState) -> str:
    releases = sorted((node_id, str(node.release or "no response")) for node_id, node in state.nodes.items())
    return ", ".join(f"node {node_id}: {release}" for node_id, release in releases)


def refusal_of(plan: Plan, view: RunView) -> str:
    """Return why the run changed nothing, as a part of a sentence."""
    if plan.blockers:
        return (
            f"the plan has {len(plan.blockers)} blocker(s), the first is {plan.blockers[0].code}: "
            f"{plan.blockers[0].sentence}"
        )
    match view.refusal:
        case Voided(blockers=blockers):
            return f"the approval is no longer valid: {'; '.join(blockers)}"
        case Approval() as given:
            return f"{given.by} answered '{given.decision}' ({given.reason})."
    return view.last_failure or "it was not approved."


def find_batches(plan: Plan, view: RunView) -> tuple[BatchReport, ...]:
    """Return the batches of the plan, then those of a rollback that have begun; none for a plan without batches."""
    if not plan.has_batches:
        return ()
    forth = [_report(step, batch, view) for step in plan.release_steps for batch in step.batches]
    back = [_report(step, batch, view) for step in rollback_release_steps(plan) for batch in step.batches]
    return (*forth, *(batch for batch in back if batch.began_at is not None))


def _report(step: ReleaseStep, batch: Batch, view: RunView) -> BatchReport:
    nodes = [view.nodes.get((step.key, node_id)) for node_id in batch.node_ids]
    began = min((one.began_at for one in nodes if one is not None and one.began_at is not None), default=None)
    gates = [_gate_after(view, step.key, node_id) for node_id in batch.node_ids]
    ends = [one.ended_at for one in gates if one is not None and one.is_passed and one.ended_at is not None]
    ended = max(ends) if len(ends) == len(batch.node_ids) else None
    splits = [
        split
        for split in view.all(BatchSplit)
        if split.release_step in {step.key, ""} and set(batch.node_ids) >= {one for part in split.parts for one in part}
    ]
    return BatchReport(
        release_step=step.key,
        node_ids=batch.node_ids,
        rack=batch.rack,
        ends=batch.ends,
        parts=splits[0].parts if splits else (batch.node_ids,),
        split=splits[0].sentence if splits else "",
        began_at=began,
        ended_at=ended,
        duration_s=round(ended - began, 3) if began is not None and ended is not None else None,
    )


def build_downgrade_report(run: Run, *, dry_run: bool, proofs: Sequence[GateKind]) -> DowngradeReport:
    view = RunView.of(run.history.events())
    report = extended(
        build_report(run, dry_run=dry_run, proofs=proofs),
        DowngradeReport,
        scan=run.history.attachment(SCAN_BEFORE_ROLL),
        unsafe=run.plan.unsafe,
        lowering=run.plan.lowering,
        losses=run.history.attachment(LOSSES),
        metadata_logs=view.all(MetadataScanned),
        trims=view.all(Trimmed),
        bootstraps=view.all(BootstrapReplaced),
        inventory=run.history.attachment(CONTENTS_COMPARED),
        outage=outage_report(view, expected_outage_s(run.ports)) if run.plan.lowering is Lowering.OFFLINE else None,
        offline_steps=view.all(OfflineEvent),
    )
    if dry_run:
        return report
    outcome, sentence = _downgrade_outcome(run.plan, report, missing_proofs(view, proofs), acted=view.has_acted)
    if run.plan.lowering is Lowering.OFFLINE and (took := outage_sentence(view, expected_outage_s(run.ports))):
        sentence = f"{sentence} {took}"
    if run.plan.lowering is Lowering.LIVE and (lowered := view.newest(LiveLowered)) is not None:
        sentence = f"{sentence} {lowered.sentence}"
    return replace(report, outcome=outcome, sentence=sentence)


def _downgrade_outcome(plan: Plan, report: DowngradeReport, missing: str, *, acted: bool) -> tuple[Outcome, str]:
    """The observed state has priority over the history."""
    so_far, sentence = report.outcome, report.sentence
    if so_far is Outcome.ROLLED_BACK:
        before, after = report.features.before, report.features.after
        lowered = any(after.get(name, 0) < before.get(name, 0) for name in plan.levels)
        levels = "Lowered levels stay lowered." if lowered or not after else "Every level is as before the run."
        return Outcome.ROLLED_BACK, f"{sentence} {levels}"
    if not acted and (plan.release_steps or plan.feature_changes) and not _arrived(plan, report):
        return Outcome.REFUSED, sentence if so_far is Outcome.REFUSED else f"Nothing was changed: {sentence}"
    if not _all_on_target(plan, report):
        if so_far is Outcome.REFUSED:  # no node was started, but levels were lowered
            return Outcome.STOPPED, (
                f"The levels are {_levels(plan, report)}, but the binary was not replaced. {sentence}"
            )
        return Outcome.STOPPED, sentence
    if not _arrived(plan, report):
        levels = _levels(plan, report)
        return Outcome.STOPPED, f"Every node runs {plan.target}, but not at the planned levels: {levels}."
    if missing:
        return Outcome.STOPPED, f"Every node runs {plan.target}, but these checks are missing: {missing}."
    differences = report.inventory["differences"] if report.inventory else ()
    if unexpected := [one for one in differences if not one["foretold"]]:
        return Outcome.STOPPED, f"Every node runs {plan.target}, but the contents differ: {unexpected[0]['sentence']}"
    return Outcome.FINISHED, (
        f"Every node runs {plan.target} at the planned levels. The inventory shows no unexpected difference."
    )


def _all_on_target(plan: Plan, report: RunReport) -> bool:
    return all(node.release == plan.target for node in report.nodes)


def _arrived(plan: Plan, report: RunReport) -> bool:
    after = report.features.after
    return _all_on_target(plan, report) and all(after.get(name, 0) == level for name, level in plan.levels.items())


def _levels(plan: Plan, report: RunReport) -> str:
    after = report.features.after
    return ", ".join(
        f"{feature} {after.get(feature, 0)} (planned {level})" for feature, level in sorted(plan.levels.items())
    )


def build_feature_report(run: Run, *, dry_run: bool, proofs: Sequence[GateKind]) -> FeatureReport:
    outcome, sentence = _feature_outcome(run, dry_run=dry_run)
    return extended(
        build_report(run, dry_run=dry_run, proofs=proofs),
        FeatureReport,
        outcome=outcome,
        sentence=sentence,
        results=RunView.of(run.history.events()).newest(FeatureResults),
    )


def _feature_outcome(run: Run, *, dry_run: bool) -> tuple[Outcome, str]:
    """The observed state has priority over the history."""
    if dry_run:
        return Outcome.DRY_RUN, f"A dry run: nothing was changed; the plan has {len(run.plan.blockers)} blocker(s)."
    finalized, view = levels_now(run.ports).finalized, RunView.of(run.history.events())
    left = [c for c in run.plan.feature_changes if finalized.get(c.feature, 0) != c.target]
    if not left:
        race = view.newest(FeatureRace)
        if race is not None and not race.ok:
            return (
                Outcome.STOPPED,
                f"Every level is as requested, but not every node supports it: {' '.join(race.findings)}",
            )
        if found := view.unaccepted(run.plan.hash):
            sentence = "Every level is as requested, but the cluster differs from its state before the run"
            return Outcome.STOPPED, f"{sentence}: {few(found.first)}"
        return Outcome.FINISHED, "Every level is as requested, on every node."
    missing = ", ".join(f"{c.feature} {finalized.get(c.feature, 0)} instead of {c.target}" for c in left)
    if view.has(Finalizing):
        return Outcome.STOPPED, f"Some levels are not as requested: {missing}."
    why = "; ".join(finding.sentence for finding in run.plan.blockers)
    return Outcome.REFUSED, f"Nothing was changed: {why or view.locked_out or missing}"


def build_restart_report(run: Run, *, dry_run: bool, proofs: Sequence[GateKind]) -> RunReport:
    """As the report of an upgrade, with an outcome by the gates: the release does not show that a node restarted."""
    report = build_report(run, dry_run=dry_run, proofs=proofs)
    if dry_run:
        return report
    outcome, sentence = _restart_outcome(run)
    return replace(report, outcome=outcome, sentence=sentence)


def _restart_outcome(run: Run) -> tuple[Outcome, str]:
    view = RunView.of(run.history.events())
    if not view.has(Started):
        return Outcome.REFUSED, f"Nothing was changed: {refusal_of(run.plan, view)}"
    after = (one for one in view.gates.values() if one.ref.kind is GateKind.AFTER_START)
    passed = {one.ref.node_id for one in after if one.is_passed}
    order = [node_step for release_step in run.plan.release_steps for node_step in release_step.order]
    if left := [f"{one.name} ({one.node_id})" for one in order if one.node_id not in passed]:
        return Outcome.STOPPED, f"The restart stopped. The gate after the start has not passed of: {', '.join(left)}."
    if found := view.unaccepted(run.plan.hash):
        sentence = "All planned nodes were restarted, but the cluster differs from its state before the run"
        return Outcome.STOPPED, f"{sentence}: {few(found.first)}"
    return Outcome.FINISHED, f"{count(len(order), 'node')} restarted on {run.plan.target}."
