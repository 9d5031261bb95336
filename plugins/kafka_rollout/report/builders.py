"""Builds the reports of runs from their history and one last observation of the cluster.

The outcome is one word and one sentence. It needs both: what is observed now, and what the history proves
(run/proofs.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.wording import count, few, nodes
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
from kafka_rollout.preparation.state_comparison import COMPARED
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
from kafka_rollout.run.events import (
    GATE_FINALIZED,
    START_TRAFFIC,
    Approval,
    Decision,
    Event,
    Observed,
    RollbackClosed,
    StepEnded,
    StepOutcome,
    Voided,
)
from kafka_rollout.run.left_open import find_open_differences
from kafka_rollout.run.projections.nodes import cover_node_steps
from kafka_rollout.run.proofs import (
    NODE_ACTS,
    find_open_gate,
    find_race,
    find_refused_nodes,
    find_traffic_gap,
    find_uncompared,
    find_unfinished_starts,
    find_unproved_roll,
    find_unreturned,
    has_open_traffic,
    missing_gates,
)
from kafka_rollout.run.step_events import (
    BatchSplit,
    BootstrapReplaced,
    ContentsCompared,
    FeatureResults,
    FeatureSupport,
    Finalizing,
    IncrementalScan,
    InstalledWithError,
    LiveLowered,
    MetadataScanned,
    OfflineEvent,
    SnapshotLoaded,
    Started,
    TrafficCompared,
    TrafficNotFound,
    Trimmed,
    Validated,
)
from kafka_rollout.run.traffic import CoveredVerdict, TrafficVerdict
from kafka_rollout.run.view import GateHistory, NodeView, RunView, StepState

SCAN_VERDICT = "scan/verdict.json"
TRAFFIC_VERDICT = "traffic/verdict.json"
GROUPS_WATCHED = "groups/watch.json"
_KEPT_CHECKS = 20
_KEPT_DIFFERENCES = 500


def record_traffic(ports: ClusterPorts, verdict: TrafficVerdict) -> CoveredVerdict:
    """Record and return the result of the test traffic, with the node steps that it does not cover.

    Its series and leaderships are only in the attachment.
    """
    terms, brokers = ports.run.load_plan().terms, {broker.node_id for broker in ports.cluster.brokers}
    covered = cover_node_steps(verdict, ports.run.events(), brokers, planned=terms is not None and terms.traffic)
    ports.run.attach(TRAFFIC_VERDICT, {**asdict(covered), "ok": covered.ok})
    ports.run.record(TrafficCompared(verdict=replace(covered, series=(), leaderships=())))
    return covered


def record_no_traffic(ports: ClusterPorts) -> None:
    """Record that there is no test traffic, if a call was killed while it started some."""
    if has_open_traffic(ports.run.events()):
        why = "There is no test traffic: the call that began to start it has ended before."
        ports.run.record(TrafficNotFound())
        ports.run.record(StepEnded(step=START_TRAFFIC, outcome=StepOutcome.SKIPPED, reason=why))


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
        run=run.history.number,
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
        warnings=tuple(dict.fromkeys(one.sentence for one in view.all(InstalledWithError))),
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
    ended = None if node.is_down else node.passed_at
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
        after=state.finalized.reported if state else {},
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
        return Outcome.DRY_RUN, f"Dry run: nothing was changed. {_blockers_of(run.plan)}"
    plan, events = run.plan, view.events
    started = view.newest(Started)
    if state is None:
        return Outcome.STOPPED, "The cluster did not respond when the report was written. See the last gate."
    back = {release_step.key for release_step in rollback_release_steps(plan)}
    if started is not None and (started.release_step in back or view.rolls_back or view.is_rollback_refused):
        if not _all_run(run.ports, state, plan.source):
            closed = view.newest(RollbackClosed)
            why = "" if closed is None else f" {closed.sentence}"
            return (
                Outcome.STOPPED,
                f"{_describe_down(view)}The rollback to {plan.source} is not finished: {_running(state)}.{why}",
            )
        if why := find_unreturned(events, plan):
            return Outcome.STOPPED, f"Every node runs {plan.source} again, but {why}."
        if gap := find_uncompared(events, NODE_ACTS):
            return Outcome.STOPPED, f"Every node runs {plan.source} again, but {gap.sentence}."
        gap = find_traffic_gap(events)
        traffic = "" if gap is None else f" T{gap.sentence[1:]}."
        differs = "".join(f" {sentence}" for sentence in find_open_differences(view, plan.hash))
        left = find_unfinished_starts(events, run.cluster)
        commands = "" if left is None else f" T{left.sentence[1:]}."
        return Outcome.ROLLED_BACK, f"Every node runs {plan.source} again.{commands}{differs}{traffic}"
    if _all_run(run.ports, state, plan.target):
        gap = find_unproved_roll(events, plan)
        if gap is not None and changes(view):
            return Outcome.STOPPED, f"Every node runs {plan.target}, but {gap.sentence}."
        if gap is None:
            return _after_the_roll(run, state, view, proofs)
    if not changes(view):
        return Outcome.REFUSED, f"Nothing was changed: {refusal_of(plan, view)}"
    cause = f"{view.cause} " if view.cause else ""
    return Outcome.STOPPED, f"{cause}{_describe_down(view)}The change to {plan.target} stopped: {_running(state)}."


def _blockers_of(plan: Plan) -> str:
    """Return how many blockers a plan has. It has none only if every check that can find one was made."""
    if plan.blockers:
        return f"The plan has {count(len(plan.blockers), 'blocker')}."
    if hiding := [one.id for one in plan.checks if one.can_hide_a_blocker]:
        return f"A blocker cannot be excluded, because of {few(hiding, limit=len(hiding))}."
    return "The plan has no blocker."


def _describe_down(view: RunView) -> str:
    """Return that the last node was stopped and not started, as the begin of a text; empty if it was started."""
    down = view.unfinished_stop
    return "" if down is None else f"Node {down.node_id} is stopped and was not started. "


def _after_the_roll(run: Run, state: ClusterState, view: RunView, proofs: Sequence[GateKind]) -> tuple[Outcome, str]:
    """Return the outcome of a run whose roll is proved, or that had no node to replace."""
    plan = run.plan
    of_all = f"Every node runs {plan.target}"
    if found := view.unaccepted(plan.hash):
        return Outcome.STOPPED, f"{of_all}, but the cluster differs from its state before the run: {few(found.first)}"
    if left := feature_changes(run.ports.catalogue, state, plan.target):
        levels = ", ".join(f"{change.feature} {change.current} → {change.target}" for change in left)
        if view.has(Finalizing):
            return Outcome.STOPPED, f"{of_all}, but not every planned level is finalized: {levels}."
        if why := find_refused_nodes(view.events):
            return Outcome.STOPPED, f"{of_all}, but no level is raised: {why}."
        if plan.feature_changes and not plan.release_steps:
            return Outcome.REFUSED, f"Nothing was changed: {refusal_of(plan, view)}"
        if gap := find_traffic_gap(view.events):
            return Outcome.STOPPED, f"{of_all}, but {gap.sentence}."
        sentence = f"{of_all}. Not finalized yet: {levels}. Start a new run to finalize."
        return Outcome.ROLLED_NOT_FINALIZED, sentence
    if plan.feature_changes and (missing := find_missing(view.events, proofs)):
        return Outcome.STOPPED, f"{of_all} at the finalized levels, but {missing}."
    if gap := find_traffic_gap(view.events):
        return Outcome.STOPPED, f"{of_all}, but {gap.sentence}."
    return Outcome.FINISHED, f"{of_all}, and all its features are finalized."


def changes(view: RunView) -> bool:
    """Return whether the run changed the cluster, tried to, or started a node that was down."""
    return view.has_acted or view.has(Started)


def find_missing(events: Sequence[Event], proofs: Sequence[GateKind]) -> str:
    """Return which proofs of changed levels are missing, as a clause: gates, and the comparison; empty if none is."""
    if missing := ", ".join(kind.value for kind in missing_gates(events, proofs)):
        return f"these checks are missing: {missing}"
    gap = find_uncompared(events)
    return "" if gap is None else gap.sentence


def _all_run(ports: ClusterPorts, state: ClusterState, release: Release) -> bool:
    return all(
        (seen := state.nodes.get(node.node_id)) is not None and seen.release == release for node in ports.cluster.nodes
    )


def _running(state: ClusterState) -> str:
    alike: dict[str, list[int]] = {}
    for node_id, node in sorted(state.nodes.items()):
        alike.setdefault(str(node.release or "no response"), []).append(node_id)
    return ", ".join(f"{nodes(ids)}: {release}" for release, ids in alike.items())


def refusal_of(plan: Plan, view: RunView) -> str:
    """Return why the run changed nothing, as a part of a sentence."""
    if plan.blockers:
        return (
            f"the plan has {count(len(plan.blockers), 'blocker')}, the first is {plan.blockers[0].code}: "
            f"{plan.blockers[0].sentence}"
        )
    match view.refusal:
        case Voided(blockers=blockers):
            return f"the approval is no longer valid: {'; '.join(blockers)}"
        case Approval() as given:
            return f"{given.by} answered '{given.decision}' ({given.reason})."
    approved = any(given.decision == Decision.APPROVED and not why for given, why in view.decisions.values())
    return view.cause or ("the run ended before its first change." if approved else "it was not approved.")


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
    ends = [one.passed_at for one in nodes if one is not None and not one.is_down and one.passed_at is not None]
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
        outage=outage_report(view, expected_outage_s(run.ports)) if run.plan.lowering is Lowering.OFFLINE else None,
        offline_steps=view.all(OfflineEvent),
    )
    if dry_run:
        return report
    outcome, sentence = _downgrade_outcome(run.plan, report, view, proofs)
    if run.plan.lowering is Lowering.OFFLINE and (took := outage_sentence(view, expected_outage_s(run.ports))):
        sentence = f"{sentence} {took}"
    if run.plan.lowering is Lowering.LIVE and (lowered := view.newest(LiveLowered)) is not None:
        sentence = f"{sentence} {lowered.sentence}"
    return replace(report, outcome=outcome, sentence=sentence)


def _downgrade_outcome(
    plan: Plan, report: DowngradeReport, view: RunView, proofs: Sequence[GateKind]
) -> tuple[Outcome, str]:
    so_far, sentence = report.outcome, report.sentence
    if so_far is Outcome.ROLLED_BACK:
        before, after = report.features.before, report.features.after
        lowered = any(after.get(name, 0) < before.get(name, 0) for name in plan.levels)
        levels = "Lowered levels stay lowered." if lowered or not after else "Every level is as before the run."
        return Outcome.ROLLED_BACK, f"{sentence} {levels}"
    if not changes(view) and (plan.release_steps or plan.feature_changes) and not _arrived(plan, report):
        return Outcome.REFUSED, sentence if so_far is Outcome.REFUSED else f"Nothing was changed: {sentence}"
    if not _all_on_target(plan, report):
        if not view.has(*NODE_ACTS):
            return Outcome.STOPPED, (
                f"The levels are {_levels(plan, report)}, but the binary was not replaced. {sentence}"
            )
        return Outcome.STOPPED, sentence
    if gap := find_open_gate(view.events, plan):
        return Outcome.STOPPED, f"Every node runs {plan.target}, but {gap.sentence}."
    if not _arrived(plan, report):
        levels = _levels(plan, report)
        return Outcome.STOPPED, f"Every node runs {plan.target}, but not at the planned levels: {levels}."
    if missing := find_missing(view.events, proofs):
        return Outcome.STOPPED, f"Every node runs {plan.target}, but {missing}."
    if found := view.unaccepted(plan.hash):
        sentence = f"Every node runs {plan.target}, but the cluster differs from its state before the run"
        return Outcome.STOPPED, f"{sentence}: {few(found.first)}"
    if gap := find_traffic_gap(view.events):
        return Outcome.STOPPED, f"Every node runs {plan.target}, but {gap.sentence}."
    compared = view.newest(ContentsCompared)
    differs = "An approver accepted how the cluster differs from its state before the run."
    if compared is None or not compared.digest:
        differs = "The cluster differs from its state before the run only by the plan and by what clients changed."
    return Outcome.FINISHED, f"Every node runs {plan.target} at the planned levels. {differs}"


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
    report = build_report(run, dry_run=dry_run, proofs=proofs)
    outcome, sentence = (report.outcome, report.sentence) if dry_run else _feature_outcome(run, proofs)
    results = RunView.of(run.history.events()).newest(FeatureResults)
    return extended(report, FeatureReport, outcome=outcome, sentence=sentence, results=results)


def _feature_outcome(run: Run, proofs: Sequence[GateKind]) -> tuple[Outcome, str]:
    view, wanted = RunView.of(run.history.events()), run.plan.feature_changes
    try:
        finalized = levels_now(run.ports).finalized.known()
    except TransientError as error:
        return Outcome.STOPPED, f"The cluster did not respond when the report was written. {error.sentence}"
    missing = ", ".join(
        f"{c.feature} {finalized.get(c.feature, 0)} instead of {c.target}"
        for c in wanted
        if finalized.get(c.feature, 0) != c.target
    )
    if not changes(view) and (missing or run.plan.blockers):
        why = "; ".join(finding.sentence for finding in run.plan.blockers)
        return Outcome.REFUSED, f"Nothing was changed: {why or view.cause or missing}"
    if missing:
        return Outcome.STOPPED, f"Some levels are not as requested: {missing}."
    if not wanted:
        return Outcome.FINISHED, "Every level was as requested before the run."
    race = find_race(view.events)
    if race is not None and not race.ok:
        return (
            Outcome.STOPPED,
            f"Every level is as requested, but not every node supports it: {' '.join(race.findings)}",
        )
    if found := view.unaccepted(run.plan.hash):
        sentence = "Every level is as requested, but the cluster differs from its state before the run"
        return Outcome.STOPPED, f"{sentence}: {few(found.first)}"
    skipped = view.steps.get(GATE_FINALIZED)
    waits = skipped is None or skipped.state is not StepState.SKIPPED
    if unproved := find_missing(view.events, proofs if waits else ()):
        return Outcome.STOPPED, f"Every level is as requested, but {unproved}."
    if race is None:
        return Outcome.STOPPED, "Every level is as requested, but it is unknown whether every node supports it."
    if not waits:
        return Outcome.FINISHED, "Every level is as requested. The command did not wait until every node reported it."
    return Outcome.FINISHED, "Every level is as requested, on every node."


def build_restart_report(run: Run, *, dry_run: bool, proofs: Sequence[GateKind]) -> RunReport:
    """As the report of an upgrade, with an outcome by the gates: the release does not show that a node restarted."""
    report = build_report(run, dry_run=dry_run, proofs=proofs)
    if dry_run:
        return report
    outcome, sentence = _restart_outcome(run)
    return replace(report, outcome=outcome, sentence=sentence)


def _restart_outcome(run: Run) -> tuple[Outcome, str]:
    view = RunView.of(run.history.events())
    if not changes(view):
        return Outcome.REFUSED, f"Nothing was changed: {refusal_of(run.plan, view)}"
    if gap := find_open_gate(view.events, run.plan):
        return Outcome.STOPPED, f"{_describe_down(view)}The restart stopped: {gap.sentence}."
    of_all = "All planned nodes were restarted"
    if gap := find_uncompared(view.events):
        return Outcome.STOPPED, f"{of_all}, but {gap.sentence}."
    if found := view.unaccepted(run.plan.hash):
        return Outcome.STOPPED, f"{of_all}, but the cluster differs from its state before the run: {few(found.first)}"
    if gap := find_traffic_gap(view.events):
        return Outcome.STOPPED, f"{of_all}, but {gap.sentence}."
    nodes = {node_step.node_id for release_step in run.plan.release_steps for node_step in release_step.order}
    return Outcome.FINISHED, f"{count(len(nodes), 'node')} restarted on {run.plan.target}."
