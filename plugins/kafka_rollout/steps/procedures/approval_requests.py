"""Approval requests of the procedures: subject, text, and when no approval is needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kafka_rollout.domain.model.plan import FeatureChange, Plan
from kafka_rollout.domain.planning.request import ApprovalPolicy
from kafka_rollout.domain.run.events import ApprovalOf, newest
from kafka_rollout.domain.run.projections.nodes import has_stopped_nodes
from kafka_rollout.domain.run.projections.offline import stop_has_begun
from kafka_rollout.domain.run.step_events import ScanEvaluated
from kafka_rollout.steps.common.approval import approval_body, canary_body, refuse_blockers
from kafka_rollout.steps.downgrade.approval import levels_body, plan_body, roll_body
from kafka_rollout.steps.features import levels
from kafka_rollout.steps.features.update import needs_approval
from kafka_rollout.steps.offline.facts import shown_facts
from kafka_rollout.steps.planning import check
from kafka_rollout.steps.step import ApprovalRequest, StepCall


def _check_roll(call: StepCall) -> str | None:
    plan = call.plan
    refuse_blockers(plan)
    if not plan.release_steps:
        return f"Every node already runs {plan.target}: no node has to be replaced."
    if plan.offline and stop_has_begun(call.ports.run.events()):
        return "The run has begun to stop all nodes: it cannot be approved again."
    if not has_stopped_nodes(call.ports.run.events()):  # later each stop checks the findings; a node can be down now
        check.refuse_new_blockers(call.ports, plan, waits=True)
    return None


def _check_finalize(call: StepCall) -> str | None:
    refuse_blockers(call.plan)
    check.refuse_new_blockers(call.ports, call.plan)
    return None if levels.pending_changes(call.ports, call.plan) else "Every planned level is already finalized."


def _finalize_body(call: StepCall) -> str:
    ports, plan = call.ports, call.plan
    support = levels.check_support(ports, plan)
    levels.refuse(support)
    scan = newest(ports.run.events(), ScanEvaluated)
    sentence = "The coordinator logs were not scanned (--no-scan)." if scan is None else scan.sentence
    shown = replace(plan, feature_changes=levels.undo_by_controller(ports, plan))
    body = approval_body(shown, support, what=ApprovalOf.FINALIZE, scan=sentence)
    return body.replace(shown.hash[:12], plan.hash[:12])  # this plan is approved


def _check_levels(call: StepCall) -> str | None:
    refuse_blockers(call.plan)
    if call.plan.offline and stop_has_begun(call.ports.run.events()):
        return "The run has begun to stop all nodes: the levels were lowered before."
    if not levels.pending_changes(call.ports, call.plan):
        return "The controller has no level to lower."
    if not has_stopped_nodes(call.ports.run.events()):
        check.refuse_new_blockers(call.ports, call.plan, waits=True)
    return None


def _levels_body(call: StepCall) -> str:
    support = levels.check_support(call.ports, call.plan, waits=True)
    levels.refuse(support)
    return levels_body(call.ports, call.plan, support)


def _roll_down_subject(plan: Plan) -> str:
    if plan.offline:
        changes = _levels(plan.offline_changes)
        return f"Stop all nodes of {plan.cluster} and take them from {plan.source} to {plan.target} ({changes})?"
    return f"Roll {plan.cluster} down from {plan.source} to {plan.target}?"


def _check_features(call: StepCall) -> str | None:
    refuse_blockers(call.plan)
    if not levels.pending_changes(call.ports, call.plan):
        return "Every level is already as requested."
    if call.request.approval is ApprovalPolicy.WHERE_NEEDED and not needs_approval(call.plan):
        return "No level is lowered, and Kafka can undo every raise: no approval is needed."
    return None


def upgrade_body(call: StepCall) -> str:
    """Markdown of an upgrade's plan."""
    return approval_body(call.plan)


def downgrade_body(call: StepCall) -> str:
    """Markdown of a downgrade's plan."""
    return plan_body(call.ports, call.plan, _offline_facts(call))


def _offline_facts(call: StepCall) -> Sequence[str]:
    return shown_facts(call.ports, call.plan) if call.plan.offline else ()


def _levels(changes: Iterable[FeatureChange]) -> str:
    return ", ".join(f"{c.feature} {c.current} → {c.target}" for c in changes)


PLAN = ApprovalRequest(
    of=ApprovalOf.ROLL,
    subject=lambda plan: f"Upgrade {plan.cluster} from {plan.source} to {plan.target}?",
    body=upgrade_body,
    check=_check_roll,
)
CANARY = ApprovalRequest(
    of=ApprovalOf.CANARY,
    subject=lambda plan: (
        f"{plan.cluster}: the first node runs {plan.release_steps[0].to_release}. Continue with the other nodes?"
    ),
    body=lambda call: canary_body(call.plan),
    check=lambda call: None if call.request.canary else "The run was started without an approval after the first node.",
    offers_roll_back=True,
)
FINALIZE = ApprovalRequest(
    of=ApprovalOf.FINALIZE,
    subject=lambda plan: f"Finalize the features of {plan.cluster} at {plan.target}? This is the point of no return.",
    body=_finalize_body,
    check=_check_finalize,
    offers_roll_back=True,
)
LEVELS = ApprovalRequest(
    of=ApprovalOf.FINALIZE,
    subject=lambda plan: f"Lower the features of {plan.cluster}: {_levels(plan.online_changes)}?",
    body=_levels_body,
    check=_check_levels,
)
ROLL_DOWN = ApprovalRequest(
    of=ApprovalOf.ROLL,
    subject=_roll_down_subject,
    body=lambda call: roll_body(call.ports, call.plan, _offline_facts(call)),
    check=_check_roll,
)
FEATURES = ApprovalRequest(
    of=ApprovalOf.FINALIZE,
    subject=lambda plan: f"Change features of {plan.cluster}: {_levels(plan.feature_changes)}?",
    body=lambda call: approval_body(call.plan, what=ApprovalOf.FINALIZE),
    check=_check_features,
)
