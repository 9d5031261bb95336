"""The reports of a downgrade and of a separate feature change: as of an upgrade, with more fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafka_rollout.base.wording import few
from kafka_rollout.gates.check import GateKind
from kafka_rollout.model.plan import Plan
from kafka_rollout.report.run_report import DowngradeReport, FeatureReport, Outcome, RunReport, extended
from kafka_rollout.run.events import events_of, has, newest
from kafka_rollout.run.projections.approvals import find_unaccepted
from kafka_rollout.run.projections.nodes import gate_histories
from kafka_rollout.run.projections.runs import find_lock_refusal, has_acted
from kafka_rollout.run.step_events import (
    BootstrapReplaced,
    FeatureRace,
    FeatureResults,
    Finalizing,
    LiveLowered,
    MetadataScanned,
    OfflineEvent,
    Trimmed,
)
from kafka_rollout.steps.common.approval import expected_outage_s
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.downgrade.contents import COMPARED
from kafka_rollout.steps.downgrade.metadata_logs import LOSSES
from kafka_rollout.steps.features.sending import levels_now
from kafka_rollout.steps.offline.outage import outage_report, outage_sentence
from kafka_rollout.steps.planning.coordinator_logs import SCAN_BEFORE_ROLL
from kafka_rollout.steps.report.outcome import missing_proofs
from kafka_rollout.steps.report.run import build_report


def build_downgrade_report(
    ports: ClusterPorts, plan: Plan, *, dry_run: bool, proofs: Sequence[GateKind]
) -> DowngradeReport:
    events = ports.run.events()
    report = extended(
        build_report(ports, plan, dry_run=dry_run, proofs=proofs),
        DowngradeReport,
        scan=ports.run.attachment(SCAN_BEFORE_ROLL),
        unsafe=plan.unsafe,
        offline=plan.offline,
        live=plan.live,
        losses=ports.run.attachment(LOSSES),
        metadata_logs=events_of(events, MetadataScanned),
        trims=events_of(events, Trimmed),
        bootstraps=events_of(events, BootstrapReplaced),
        inventory=ports.run.attachment(COMPARED),
        outage=outage_report(events, expected_outage_s(ports)) if plan.offline else None,
        offline_steps=events_of(events, OfflineEvent),
    )
    if dry_run:
        return report
    outcome, sentence = _outcome(plan, report, missing_proofs(gate_histories(events), proofs), acted=has_acted(events))
    if plan.offline and (took := outage_sentence(events, expected_outage_s(ports))):
        sentence = f"{sentence} {took}"
    if plan.live and (lowered := newest(events, LiveLowered)) is not None:
        sentence = f"{sentence} {lowered.sentence}"
    return replace(report, outcome=outcome, sentence=sentence)


def _outcome(plan: Plan, report: DowngradeReport, missing: str, *, acted: bool) -> tuple[Outcome, str]:
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


def build_feature_report(
    ports: ClusterPorts, plan: Plan, *, dry_run: bool, proofs: Sequence[GateKind]
) -> FeatureReport:
    outcome, sentence = _feature_outcome(ports, plan, dry_run=dry_run)
    return extended(
        build_report(ports, plan, dry_run=dry_run, proofs=proofs),
        FeatureReport,
        outcome=outcome,
        sentence=sentence,
        results=newest(ports.run.events(), FeatureResults),
    )


def _feature_outcome(ports: ClusterPorts, plan: Plan, *, dry_run: bool) -> tuple[Outcome, str]:
    """The observed state has priority over the history."""
    if dry_run:
        return Outcome.DRY_RUN, f"A dry run: nothing was changed; the plan has {len(plan.blockers)} blocker(s)."
    finalized, events = levels_now(ports).finalized, ports.run.events()
    left = [c for c in plan.feature_changes if finalized.get(c.feature, 0) != c.target]
    if not left:
        race = newest(events, FeatureRace)
        if race is not None and not race.ok:
            return (
                Outcome.STOPPED,
                f"Every level is as requested, but not every node supports it: {' '.join(race.findings)}",
            )
        if found := find_unaccepted(events, plan.hash):
            sentence = "Every level is as requested, but the cluster differs from its state before the run"
            return Outcome.STOPPED, f"{sentence}: {few(found.first)}"
        return Outcome.FINISHED, "Every level is as requested, on every node."
    missing = ", ".join(f"{c.feature} {finalized.get(c.feature, 0)} instead of {c.target}" for c in left)
    if has(events, Finalizing):
        return Outcome.STOPPED, f"Some levels are not as requested: {missing}."
    why = "; ".join(finding.sentence for finding in plan.blockers)
    return Outcome.REFUSED, f"Nothing was changed: {why or find_lock_refusal(events) or missing}"
