"""The plan of a downgrade, computed from the observed state and the request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum

from kafka_rollout.domain.features.checks import range_findings
from kafka_rollout.domain.features.rules import check_feature_support
from kafka_rollout.domain.groups.findings import group_findings, leave_to_gate
from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.plan import Direction, Plan
from kafka_rollout.domain.model.releases import METADATA_VERSION, Catalogue, Release
from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.planning.cluster_findings import cluster_findings
from kafka_rollout.domain.planning.configuration import config_changes, config_findings, java_findings
from kafka_rollout.domain.planning.downgrade_levels import downgrade_levels, refused_by_kafka, target_level
from kafka_rollout.domain.planning.downgrade_path import highest_running, plan_downgrade_steps
from kafka_rollout.domain.planning.release_path import find_nodes_ahead

_REFUSED = "FEATURE-DOWNGRADE-REFUSED"
OF_ROLLS = frozenset({"RF-ONE-TOPIC", "MIN-ISR-EQUALS-RF", "QUORUM-NO-SPARE"})
"""Codes of findings that apply only to rolling changes. During an offline downgrade no node serves requests."""


class WhereRefused(StrEnum):
    """Action if Kafka rejects the lower metadata.version."""

    STOP = "stop"
    OFFLINE = "offline"


def make_downgrade_plan(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    state: ClusterState,
    target: Release,
    *,
    level: int | None,
    unsafe: bool,
    where_refused: WhereRefused,
    configs: Mapping[int, Mapping[str, str]],
    config_problems: Mapping[int, tuple[str, ...]],
    java: Mapping[int, int],
) -> Plan:
    """Return the plan with all findings except those of the logs. Blockers are part of the plan and do not raise.

    `level` None: the highest metadata.version that the target supports, at most the current one. The plan is offline
    only if Kafka rejects the level, `where_refused` allows it, and the binary is downgraded too. `configs`,
    `config_problems`, `java`: as in make_plan. Raises UserError for a target or level that cannot be planned, and
    RefusedError if no node reports its release.
    """
    source = highest_running(cluster, state)
    level = target_level(catalogue, state, target, level)
    refused = refused_by_kafka(cluster, catalogue, state, level)
    # An offline downgrade starts the older binary at the lower level. Without an older binary it is not possible.
    offline = bool(refused) and where_refused is WhereRefused.OFFLINE and target < source
    release_steps = plan_downgrade_steps(cluster, catalogue, state, target, together=not offline)
    path = (source, *(release_step.to_release for release_step in release_steps))
    changes = downgrade_levels(catalogue, state, path[1:], level)
    planned = {change.feature: change.target for change in changes}
    findings = [
        *cluster_findings(cluster, catalogue, state, target=target).findings,
        *([found] if (found := find_nodes_ahead(state, path[min(1, len(path) - 1)], down=True)) else []),
        *(f for release in path[1:] for f in range_findings(catalogue, state, release, planned=planned).findings),
        *(f for release in path[1:] for f in group_findings(catalogue, state, release)),
        *range_findings(
            catalogue, state, source, planned=planned, code="NO-WAY-BACK", severity=Severity.WARNING
        ).findings,
        *config_findings(catalogue, source, target, configs, config_problems),
        *java_findings(cluster, catalogue, path[1:], java),
        *_of_levels(
            check_feature_support(cluster, catalogue, state, planned, unsafe=unsafe).findings, refused, offline=offline
        ),
    ]
    return Plan(
        cluster=cluster.name,
        cluster_id=state.cluster_id,
        direction=Direction.DOWNGRADE,
        source=source,
        target=target,
        release_steps=release_steps,
        feature_changes=changes,
        config_changes=config_changes(cluster, path, configs),
        findings=tuple(f for f in dict.fromkeys(leave_to_gate(findings)) if not (offline and f.code in OF_ROLLS)),
        unsafe=unsafe,
        offline=offline,
    )


def _of_levels(findings: Iterable[Finding], refused: str, *, offline: bool) -> Iterable[Finding]:
    """Adapt the finding about Kafka's refusal to lower metadata.version.

    Offline the run works around the refusal, so it is not a blocker. Else the remedy lists the possible actions.
    """
    for finding in findings:
        if finding.code != _REFUSED or finding.subject != f"feature {METADATA_VERSION}":
            yield finding
        elif not offline:
            yield replace(
                finding,
                remedy="Choose a level that Kafka can reach online. Or choose an older target release and "
                f"'{WhereRefused.OFFLINE}' where Kafka refuses: this stops all nodes.",
            )
    if offline:
        yield Finding(
            code="OFFLINE-DOWNGRADE",
            severity=Severity.WARNING,
            subject=f"feature {METADATA_VERSION}",
            sentence=f"Kafka does not lower it online: {refused} The run lowers it while all nodes are stopped. "
            "The cluster serves no requests from the first stop until the brokers are back.",
            remedy="Read the approval: it shows the expected outage and the point of no return.",
        )
