"""The report of a separate feature change: the form of an upgrade's report, with its own outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_rollout.domain.gates.ref import GateKind
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.run.events import Event
from kafka_rollout.domain.run.feature_events import FeatureRace, FeatureResults
from kafka_rollout.domain.run.projections.levels import has_asked_for_levels
from kafka_rollout.domain.run.projections.runs import find_lock_refusal
from kafka_rollout.domain.run.projections.select import newest
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.features.sending import levels_now
from kafka_rollout.steps.report.event_form import event_form
from kafka_rollout.steps.report.outcome import Outcome
from kafka_rollout.steps.report.run import build_report


def build_feature_report(
    ports: ClusterPorts, plan: Plan, *, dry_run: bool, proofs: Sequence[GateKind]
) -> dict[str, Any]:
    """Build the report. Keys: those of an upgrade's report; `results`: the result of each feature."""
    data = build_report(ports, plan, dry_run=dry_run, proofs=proofs)
    outcome, sentence = _outcome(ports, plan, dry_run=dry_run)
    return {**data, "outcome": outcome.value, "sentence": sentence, "results": _results(ports.run.events())}


def _outcome(ports: ClusterPorts, plan: Plan, *, dry_run: bool) -> tuple[Outcome, str]:
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
        return Outcome.FINISHED, "Every level is as requested, on every node."
    missing = ", ".join(f"{c.feature} {finalized.get(c.feature, 0)} instead of {c.target}" for c in left)
    if has_asked_for_levels(events):
        return Outcome.STOPPED, f"Some levels are not as requested: {missing}."
    why = "; ".join(finding.sentence for finding in plan.blockers)
    return Outcome.REFUSED, f"Nothing was changed: {why or find_lock_refusal(events) or missing}"


def _results(events: Sequence[Event]) -> dict[str, Any]:
    results = newest(events, FeatureResults)
    return {} if results is None else event_form(results)
