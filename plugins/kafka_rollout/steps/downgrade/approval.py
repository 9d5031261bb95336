"""What a person reads before levels fall, and before the binary goes down."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.domain.model.findings import Finding, Verdict
from kafka_rollout.domain.model.outside_text import escape_markdown
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import METADATA_VERSION
from kafka_rollout.domain.run.projections.levels import planned_trims
from kafka_rollout.steps.common.approval import config_part, features_in_full, findings_part, heading, hops_part
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.downgrade.metadata_logs import LOSSES

_LOSSES_SHOWN = 100


def levels_body(ports: ClusterPorts, plan: Plan, support: Verdict) -> str:
    """Markdown: what would be lost first, then the levels, then the findings."""
    parts = [
        f"**Downgrade of cluster {plan.cluster}: {plan.source} → {plan.target}. First its feature levels fall.**",
        *_type(plan),
        *losses_part(ports, plan),
        heading("Levels that fall, metadata.version last"),
        *features_in_full(plan.online_changes),
        *_later(plan),
        *findings_part(_all(plan, support.findings)),
        _foot(plan, "The binary goes down after an approval of its own; until then every node can go on as it is."),
    ]
    return "\n\n".join(parts)


def roll_body(ports: ClusterPorts, plan: Plan, offline: Sequence[str] = ()) -> str:
    """Markdown: what is cut, the order, the findings. `offline`: what an offline downgrade means, its losses too."""
    special = [*_outage(offline), *losses_part(ports, plan)] if plan.offline else _trims(ports)
    return "\n\n".join([*_title(plan), *special, *_way(plan)])


def plan_body(ports: ClusterPorts, plan: Plan, offline: Sequence[str] = ()) -> str:
    """Markdown of a dry run: what the approvals will say, but the trims, which are known when the levels are low."""
    levels = [heading("Levels that fall, metadata.version last"), *features_in_full(plan.feature_changes)]
    outage = _outage(offline) if plan.offline else []
    return "\n\n".join([*_title(plan), *levels, *outage, *losses_part(ports, plan), *_way(plan)])


def _title(plan: Plan) -> list[str]:
    return [f"**Downgrade of cluster {plan.cluster}: {plan.source} → {plan.target}**", *_type(plan)]


def _outage(offline: Sequence[str]) -> list[str]:
    return [heading("All nodes are stopped"), "\n".join(f"- {escape_markdown(line)}" for line in offline)]


def _way(plan: Plan) -> list[str]:
    foot = _foot(plan, "Every finding is looked at again before each stop.")
    return [*findings_part(plan.findings), *hops_part(plan), *config_part(plan), foot]


def losses_part(ports: ClusterPorts, plan: Plan) -> list[str]:
    """The loss report: each real loss with the values; how much is only at its default."""
    level = plan.levels.get(METADATA_VERSION)
    if level is None:
        return [heading("Metadata lost: none"), "metadata.version stays as it is."]
    report = ports.run.attachment(LOSSES)
    if report is None:
        return [heading("Metadata lost: unknown")]
    losses, defaults = report["losses"], report["default_only"]
    lines = [f"- {escape_markdown(loss['sentence'])}" for loss in losses[:_LOSSES_SHOWN]]
    if len(losses) > _LOSSES_SHOWN:
        lines.append(f"- … and {len(losses) - _LOSSES_SHOWN} more: all of them are in `{LOSSES}` of the run's record.")
    parts = [heading(f"Metadata lost: {len(losses) or 'none'}"), *(["\n".join(lines)] if lines else [])]
    if any(loss["kind"].endswith("log directories") for loss in losses):
        parts.append(
            "The metadata knows directories by their ids: `directory.id` in each one's `meta.properties`. A path "
            "stands beside it where this process sees the node's files."
        )
    if defaults:
        parts.append(
            f"{len(defaults)} fields that level {level} does not have are only at their default and say nothing."
        )
    return parts + [escape_markdown(note) for note in report["notes"]]


def _later(plan: Plan) -> list[str]:
    """What this approval is not about: it comes with all nodes stopped."""
    if not plan.offline:
        return []
    levels = ", ".join(f"{escape_markdown(c.feature)} {c.current} → {c.target}" for c in plan.offline_changes)
    return [
        heading("Not yet"),
        f"{levels}: with all nodes stopped, after an approval of its own. What is lost is lost then.",
    ]


def _type(plan: Plan) -> list[str]:
    if not plan.unsafe:
        return ["**SAFE**: it would have been refused if anything in use were lost."]
    return ["**UNSAFE**: what the warnings name is lost, and nothing stops it."]


def _trims(ports: ClusterPorts) -> list[str]:
    trimmed = planned_trims(ports.run.events())
    if not trimmed:
        return [heading("Metadata logs"), "Every node's log can be read by the older release as it is."]
    names = "\n".join(f"- {ports.cluster.node(node_id).name} ({node_id})" for node_id in trimmed)
    return [
        heading(f"Metadata logs to be trimmed: {len(trimmed)}"),
        "The older release would stop at records before the newest snapshot. While each of these nodes is stopped, its "
        "log is cut below that snapshot, with a backup in the log's own folder (`kafka-rollout-trim-…`). It can be put "
        "back by `kafka-rollout metadata trim --undo` until the node has written to it.",
        names,
    ]


def _all(plan: Plan, support: tuple[Finding, ...]) -> tuple[Finding, ...]:
    known = {finding.identity for finding in plan.findings}
    return (*plan.findings, *(finding for finding in support if finding.identity not in known))


def _foot(plan: Plan, sentence: str) -> str:
    return f"---\n\nPlan `{plan.hash[:12]}`. {sentence}"
