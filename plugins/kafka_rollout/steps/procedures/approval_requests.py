"""Approval requests of the procedures: subject, text, and when no approval is needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_rollout.base.findings import Finding, Verdict
from kafka_rollout.base.outside_text import escape_markdown
from kafka_rollout.model.plan import FeatureChange, Plan
from kafka_rollout.planning.request import ApprovalPolicy
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.events import ApprovalOf, newest
from kafka_rollout.run.projections.nodes import has_stopped_nodes
from kafka_rollout.run.projections.observations import planned_trims
from kafka_rollout.run.projections.offline import stop_has_begun
from kafka_rollout.run.step_events import ComparedAfter, ScanEvaluated
from kafka_rollout.steps.common.approval import (
    approval_body,
    canary_body,
    config_part,
    features_in_full,
    findings_part,
    first_batch_body,
    heading,
    refuse_blockers,
    release_steps_part,
    terms_part,
    unavailability_part,
)
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.downgrade.metadata_logs import LOSSES
from kafka_rollout.steps.features import levels
from kafka_rollout.steps.features.min_isr import refuse_changed_min_isr
from kafka_rollout.steps.features.update import requires_approval
from kafka_rollout.steps.live.facts import shown_live_facts
from kafka_rollout.steps.live.level_undo import shown_level_undos
from kafka_rollout.steps.offline.outage import shown_facts
from kafka_rollout.steps.planning import check, comparison
from kafka_rollout.steps.step import ApprovalRequest, StepCall

_LOSSES_SHOWN = 100


def levels_body(ports: ClusterPorts, plan: Plan, support: Verdict) -> str:
    """Return the Markdown text: losses first, then the levels, then the findings."""
    parts = [
        (
            f"**Downgrade of cluster {plan.cluster}: {plan.source} → {plan.target}. First the feature levels are "
            "lowered.**"
        ),
        *_type(plan),
        *losses_part(ports, plan),
        heading("Levels to lower, metadata.version last"),
        *features_in_full(plan.online_changes),
        *_later(plan),
        *findings_part(_all(plan, support.findings)),
        _foot(plan, "The binary is replaced after a separate approval. Until then every node runs unchanged."),
    ]
    return "\n\n".join(parts)


def roll_body(ports: ClusterPorts, plan: Plan, facts: Sequence[str] = ()) -> str:
    """Return the Markdown text: trims, order, findings.

    `facts`: of an offline or a live downgrade, with its losses.
    """
    special = [*_outage(plan, facts), *losses_part(ports, plan)] if plan.by_snapshot else _trims(ports)
    return "\n\n".join([*_title(plan), *special, *_way(plan)])


def plan_body(ports: ClusterPorts, plan: Plan, facts: Sequence[str] = ()) -> str:
    """Return the Markdown text of a dry run.

    It has no trims, because they are known only after the levels are lowered.
    """
    levels = [heading("Levels to lower, metadata.version last"), *features_in_full(plan.feature_changes)]
    outage = _outage(plan, facts) if plan.by_snapshot else []
    return "\n\n".join([*_title(plan), *levels, *outage, *losses_part(ports, plan), *_way(plan)])


def _title(plan: Plan) -> list[str]:
    return [f"**Downgrade of cluster {plan.cluster}: {plan.source} → {plan.target}**", *_type(plan)]


def _outage(plan: Plan, facts: Sequence[str]) -> list[str]:
    title = "All nodes will be stopped" if plan.offline else "All controllers will be stopped, the brokers serve"
    return [heading(title), "\n".join(f"- {escape_markdown(line)}" for line in facts)]


def _way(plan: Plan) -> list[str]:
    foot = _foot(plan, "Every finding is checked again before each stop.")
    parts = [*findings_part(plan.findings), *unavailability_part(plan)]
    return [*parts, *release_steps_part(plan), *terms_part(plan), *config_part(plan), foot]


def losses_part(ports: ClusterPorts, plan: Plan) -> list[str]:
    """Return the loss report: each real loss with its values, and the number of fields with default values."""
    level = plan.levels.get(METADATA_VERSION)
    if level is None:
        return [heading("Metadata lost: none"), "metadata.version does not change."]
    report = ports.run.attachment(LOSSES)
    if report is None:
        return [heading("Metadata lost: unknown")]
    losses, defaults = report["losses"], report["default_only"]
    lines = [f"- {escape_markdown(loss['sentence'])}" for loss in losses[:_LOSSES_SHOWN]]
    if len(losses) > _LOSSES_SHOWN:
        lines.append(f"- … and {len(losses) - _LOSSES_SHOWN} more. `{LOSSES}` of the run history contains all.")
    parts = [heading(f"Metadata lost: {len(losses) or 'none'}"), *(["\n".join(lines)] if lines else [])]
    if any(loss["kind"].endswith("log directories") for loss in losses):
        parts.append(
            "The metadata identifies directories by id (`directory.id` in `meta.properties`). The path is "
            "shown if this process can read the node's files."
        )
    if defaults:
        parts.append(
            f"{len(defaults)} fields do not exist at level {level}. All of them hold default values, so "
            "nothing is lost."
        )
    return parts + [escape_markdown(note) for note in report["notes"]]


def _later(plan: Plan) -> list[str]:
    """Return what this approval does not cover: the change by a snapshot."""
    if not plan.by_snapshot:
        return []
    levels = ", ".join(f"{escape_markdown(c.feature)} {c.current} → {c.target}" for c in plan.snapshot_changes)
    return [
        heading("Not part of this approval"),
        f"{levels}: with {_stopped(plan)} stopped, after an approval of its own. Metadata is lost at that time.",
    ]


def _type(plan: Plan) -> list[str]:
    if not plan.unsafe:
        return ["**SAFE**: the run stops if metadata in use would be lost."]
    return ["**UNSAFE**: the metadata in the warnings is lost."]


def _trims(ports: ClusterPorts) -> list[str]:
    trimmed = planned_trims(ports.run.events())
    if not trimmed:
        return [heading("Metadata logs"), "The older release can read the metadata log of every node."]
    names = "\n".join(f"- {ports.cluster.node(node_id).name} ({node_id})" for node_id in trimmed)
    return [
        heading(f"Metadata logs to trim: {len(trimmed)}"),
        "The older release would stop at records before the newest snapshot. While each of these nodes is "
        "stopped, the run removes its log before that snapshot and keeps a backup in the log's own folder "
        "(`kafka-rollout-trim-…`). To restore it, run `kafka-rollout metadata trim --undo` before the node "
        "has written to the log.",
        names,
    ]


def _all(plan: Plan, support: tuple[Finding, ...]) -> tuple[Finding, ...]:
    known = {finding.identity for finding in plan.findings}
    return (*plan.findings, *(finding for finding in support if finding.identity not in known))


def _foot(plan: Plan, sentence: str) -> str:
    return f"---\n\nPlan `{plan.hash[:12]}`. {sentence}"


def _check_roll(call: StepCall) -> str | None:
    plan = call.plan
    refuse_blockers(plan)
    if not plan.release_steps:
        return f"Every node already runs {plan.target}: no node has to be replaced."
    if plan.by_snapshot and stop_has_begun(call.ports.run.events()):
        return f"The run has begun to stop {_stopped(plan)}: it cannot be approved again."
    if not has_stopped_nodes(call.ports.run.events()):  # later each stop checks the findings; a node can be down now
        check.refuse_new_blockers(call.ports, plan, waits=True)
    return None


def _stopped(plan: Plan) -> str:
    return "all nodes" if plan.offline else "all controllers"


def _check_finalize(call: StepCall) -> str | None:
    refuse_blockers(call.plan)
    check.refuse_new_blockers(call.ports, call.plan)
    refuse_changed_min_isr(call.ports, call.plan, before_pin=True)
    return None if levels.pending_changes(call.ports, call.plan) else "Every planned level is already finalized."


def _finalize_body(call: StepCall) -> str:
    ports, plan = call.ports, call.plan
    support = levels.check_support(ports, plan)
    levels.refuse(support)
    scan = newest(ports.run.events(), ScanEvaluated)
    sentence = "The coordinator logs were not scanned (--no-scan)." if scan is None else scan.sentence
    undos = shown_level_undos(ports, plan, levels.undo_by_controller(ports, plan))
    return approval_body(plan, support, what=ApprovalOf.FINALIZE, scan=sentence, undos=undos)


def _check_levels(call: StepCall) -> str | None:
    refuse_blockers(call.plan)
    if call.plan.by_snapshot and stop_has_begun(call.ports.run.events()):
        return f"The run has begun to stop {_stopped(call.plan)}: the levels were lowered before."
    if not levels.pending_changes(call.ports, call.plan):
        return "The controller has no level to lower."
    if not has_stopped_nodes(call.ports.run.events()):
        check.refuse_new_blockers(call.ports, call.plan, waits=True)
    return None


def _features_body(call: StepCall) -> str:
    undos = shown_level_undos(call.ports, call.plan, call.plan.feature_changes)
    return approval_body(call.plan, what=ApprovalOf.FINALIZE, undos=undos)


def _levels_body(call: StepCall) -> str:
    support = levels.check_support(call.ports, call.plan, waits=True)
    levels.refuse(support)
    return levels_body(call.ports, call.plan, support)


def _roll_down_subject(plan: Plan) -> str:
    if plan.offline:
        changes = _levels(plan.snapshot_changes)
        return f"Stop all nodes of {plan.cluster} and take them from {plan.source} to {plan.target} ({changes})?"
    if plan.live:
        changes = _levels(plan.snapshot_changes)
        way = f"from {plan.source} to {plan.target}"
        return f"Stop the controllers of {plan.cluster} ({changes}), then roll it down {way}?"
    return f"Roll {plan.cluster} down from {plan.source} to {plan.target}?"


def _check_features(call: StepCall) -> str | None:
    refuse_blockers(call.plan)
    if not levels.pending_changes(call.ports, call.plan):
        return "Every level is already as requested."
    if call.request.approval is ApprovalPolicy.WHERE_NEEDED and not requires_approval(call.plan):
        return "No level is lowered, and Kafka can undo every raise: no approval is needed."
    return None


def upgrade_body(call: StepCall) -> str:
    """Markdown of an upgrade's plan."""
    return approval_body(call.plan)


def downgrade_body(call: StepCall) -> str:
    """Markdown of a downgrade's plan."""
    return plan_body(call.ports, call.plan, _facts(call))


def _facts(call: StepCall) -> Sequence[str]:
    if call.plan.live:
        return shown_live_facts(call.ports, call.plan)
    return shown_facts(call.ports, call.plan) if call.plan.offline else ()


def _differences_subject(plan: Plan) -> str:
    return f"Accept the differences of {plan.cluster} from its state before the run?"


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
FIRST_BATCH = ApprovalRequest(
    of=ApprovalOf.FIRST_BATCH,
    subject=lambda plan: (
        f"{plan.cluster}: the first batch runs {plan.release_steps[0].to_release}. Continue with the other nodes?"
    ),
    body=lambda call: first_batch_body(call.plan),
    check=lambda call: (
        None if call.request.first_batch else "The run was started without an approval after the first batch."
    ),
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
    body=lambda call: roll_body(call.ports, call.plan, _facts(call)),
    check=_check_roll,
)
ROLL_DIFFERENCES = ApprovalRequest(
    of=ApprovalOf.DIFFERENCES,
    subject=_differences_subject,
    body=lambda call: comparison.differences_body(call.ports, call.plan, ComparedAfter.ROLL),
    check=lambda call: comparison.needs_no_acceptance(call.ports, call.plan, ComparedAfter.ROLL),
    offers_roll_back=True,
)
LEVEL_DIFFERENCES = ApprovalRequest(
    of=ApprovalOf.DIFFERENCES,
    subject=_differences_subject,
    body=lambda call: comparison.differences_body(call.ports, call.plan, ComparedAfter.LEVELS),
    check=lambda call: comparison.needs_no_acceptance(call.ports, call.plan, ComparedAfter.LEVELS),
)
FEATURES = ApprovalRequest(
    of=ApprovalOf.FINALIZE,
    subject=lambda plan: f"Change features of {plan.cluster}: {_levels(plan.feature_changes)}?",
    body=_features_body,
    check=_check_features,
)
