"""The outcome of a run, as one word and one sentence. The observed state has priority over the history."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.base.wording import few
from kafka_rollout.features.requests import feature_changes
from kafka_rollout.gates.check import GateKind
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.state import ClusterState
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.run_report import Outcome
from kafka_rollout.run.events import Approval, Decision, Event, RollbackClosed, Voided, newest
from kafka_rollout.run.projections.approvals import find_unaccepted
from kafka_rollout.run.projections.nodes import GateHistory
from kafka_rollout.run.projections.runs import is_rollback_refused, last_failure
from kafka_rollout.run.step_events import Started
from kafka_rollout.steps.common.cluster_ports import ClusterPorts


def outcome_of(
    ports: ClusterPorts,
    plan: Plan,
    state: ClusterState | None,
    events: Sequence[Event],
    gates: Sequence[GateHistory],
    *,
    dry_run: bool,
    proofs: Sequence[GateKind],
) -> tuple[Outcome, str]:
    """Return the outcome and a sentence."""
    if dry_run:
        return Outcome.DRY_RUN, f"Dry run: nothing was changed. The plan has {len(plan.blockers)} blocker(s)."
    started = newest(events, Started)
    if state is None:
        return Outcome.STOPPED, "The cluster did not respond when the report was written. See the last gate."
    back = {release_step.reversed().key for release_step in plan.release_steps}
    if started is not None and (started.release_step in back or is_rollback_refused(events)):
        if _all_run(ports, state, plan.source):
            return Outcome.ROLLED_BACK, f"Every node runs {plan.source} again."
        closed = newest(events, RollbackClosed)
        why = "" if closed is None else f" {closed.sentence}"
        return Outcome.STOPPED, f"The rollback to {plan.source} is not finished: {_running(state)}.{why}"
    if _all_run(ports, state, plan.target):
        if found := find_unaccepted(events, plan.hash):
            sentence = f"Every node runs {plan.target}, but the cluster differs from its state before the run"
            return Outcome.STOPPED, f"{sentence}: {few(found.first)}"
        return _after_the_roll(ports, plan, state, gates, proofs)
    if started is None:
        return Outcome.REFUSED, f"Nothing was changed: {refusal_of(plan, events)}"
    return Outcome.STOPPED, f"The change to {plan.target} stopped: {_running(state)}. {last_failure(events)}".strip()


def _after_the_roll(
    ports: ClusterPorts, plan: Plan, state: ClusterState, gates: Sequence[GateHistory], proofs: Sequence[GateKind]
) -> tuple[Outcome, str]:
    left = feature_changes(ports.catalogue, state, plan.target)
    if left:
        levels = ", ".join(f"{change.feature} {change.current} → {change.target}" for change in left)
        return (
            Outcome.ROLLED_NOT_FINALIZED,
            f"Every node runs {plan.target}. Not finalized yet: {levels}. Start a new run to finalize.",
        )
    if plan.feature_changes and (missing := missing_proofs(gates, proofs)):
        sentence = f"Every node runs {plan.target} at the finalized levels, but these checks are missing: {missing}."
        return Outcome.STOPPED, sentence
    return Outcome.FINISHED, f"Every node runs {plan.target}, and all its features are finalized."


def missing_proofs(gates: Sequence[GateHistory], proofs: Sequence[GateKind]) -> str:
    """List the kinds in `proofs` of which the run has passed no gate; empty if it passed all."""
    passed = {gate.ref.kind for gate in gates if gate.is_passed}
    return ", ".join(kind.value for kind in proofs if kind not in passed)


def _all_run(ports: ClusterPorts, state: ClusterState, release: Release) -> bool:
    return all(
        (seen := state.nodes.get(node.node_id)) is not None and seen.release == release for node in ports.cluster.nodes
    )


def _running(state: ClusterState) -> str:
    releases = sorted((node_id, str(node.release or "no response")) for node_id, node in state.nodes.items())
    return ", ".join(f"node {node_id}: {release}" for node_id, release in releases)


def refusal_of(plan: Plan, events: Sequence[Event]) -> str:
    """Return why the run changed nothing, as a part of a sentence."""
    if plan.blockers:
        return (
            f"the plan has {len(plan.blockers)} blocker(s), the first is {plan.blockers[0].code}: "
            f"{plan.blockers[0].sentence}"
        )
    for event in reversed(events):
        match event:
            case Voided():
                return f"the approval is no longer valid: {'; '.join(event.blockers)}"
            case Approval() if event.decision != Decision.APPROVED:
                return f"{event.by} answered '{event.decision}' ({event.reason})."
    return last_failure(events) or "it was not approved."
