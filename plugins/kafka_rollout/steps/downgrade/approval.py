"""The approval texts of a downgrade: before the levels are lowered, and before the binary is replaced."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.domain.model.findings import Finding, Verdict
from kafka_rollout.domain.model.outside_text import escape_markdown
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import METADATA_VERSION
from kafka_rollout.domain.run.projections.levels import planned_trims
from kafka_rollout.steps.common.approval import (
    config_part,
    features_in_full,
    findings_part,
    heading,
    release_steps_part,
)
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.downgrade.metadata_logs import LOSSES

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


def roll_body(ports: ClusterPorts, plan: Plan, offline: Sequence[str] = ()) -> str:
    """Return the Markdown text: trims, order, findings.

    `offline`: the facts of an offline downgrade, with its losses.
    """
    special = [*_outage(offline), *losses_part(ports, plan)] if plan.offline else _trims(ports)
    return "\n\n".join([*_title(plan), *special, *_way(plan)])


def plan_body(ports: ClusterPorts, plan: Plan, offline: Sequence[str] = ()) -> str:
    """Return the Markdown text of a dry run.

    It has no trims, because they are known only after the levels are lowered.
    """
    levels = [heading("Levels to lower, metadata.version last"), *features_in_full(plan.feature_changes)]
    outage = _outage(offline) if plan.offline else []
    return "\n\n".join([*_title(plan), *levels, *outage, *losses_part(ports, plan), *_way(plan)])


def _title(plan: Plan) -> list[str]:
    return [f"**Downgrade of cluster {plan.cluster}: {plan.source} → {plan.target}**", *_type(plan)]


def _outage(offline: Sequence[str]) -> list[str]:
    return [heading("All nodes will be stopped"), "\n".join(f"- {escape_markdown(line)}" for line in offline)]


def _way(plan: Plan) -> list[str]:
    foot = _foot(plan, "Every finding is checked again before each stop.")
    return [*findings_part(plan.findings), *release_steps_part(plan), *config_part(plan), foot]


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
    """Return what this approval does not cover: the change while all nodes are stopped."""
    if not plan.offline:
        return []
    levels = ", ".join(f"{escape_markdown(c.feature)} {c.current} → {c.target}" for c in plan.offline_changes)
    return [
        heading("Not part of this approval"),
        f"{levels}: with all nodes stopped, after an approval of its own. Metadata is lost at that time.",
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
