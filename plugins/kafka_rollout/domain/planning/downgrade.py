"""The plan of a downgrade: pure, from what was observed to what is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum

from kafka_rollout.domain.features.checks import range_findings
from kafka_rollout.domain.features.rules import check_feature_support
from kafka_rollout.domain.groups.findings import group_findings, waited_for
from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.plan import Direction, Plan
from kafka_rollout.domain.model.releases import METADATA_VERSION, Catalogue, Release
from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.planning.cluster_findings import cluster_findings
from kafka_rollout.domain.planning.configuration import config_changes, config_findings, java_findings
from kafka_rollout.domain.planning.downgrade_levels import downgrade_levels, refused_by_kafka, target_level
from kafka_rollout.domain.planning.downgrade_path import behind_first_hop, highest_running, plan_hops

_REFUSED = "FEATURE-DOWNGRADE-REFUSED"
OF_ROLLS = frozenset({"RF-ONE-TOPIC", "MIN-ISR-EQUALS-RF", "QUORUM-NO-SPARE"})
"""Findings that only mean something where nodes are restarted one by one; offline nothing is served anyway."""


class WhereRefused(StrEnum):
    """What to do where released Kafka refuses to lower metadata.version."""

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
    """The plan with all its findings but those of the logs; blockers are in it, not raised.

    `level` None: the highest metadata.version that the target knows and that is at most the present one. It is offline
    only where Kafka refuses the level, `where_refused` allows that, and the binary goes down as well.
    `configs`, `config_problems` and `java` are those of make_plan. Raises UserError for a target or a level that cannot
    be planned for, RefusedError where no node tells its release.
    """
    source = highest_running(cluster, state)
    level = target_level(catalogue, state, target, level)
    refused = refused_by_kafka(cluster, catalogue, state, level)
    # Offline the older binary starts on the lower level: without one there is no such way.
    offline = bool(refused) and where_refused is WhereRefused.OFFLINE and target < source
    release_steps = plan_hops(cluster, catalogue, state, target, together=not offline)
    path = (source, *(release_step.to_release for release_step in release_steps))
    changes = downgrade_levels(catalogue, state, path[1:], level)
    planned = {change.feature: change.target for change in changes}
    findings = [
        *cluster_findings(cluster, catalogue, state, target=target).findings,
        *([found] if (found := behind_first_hop(state, path[min(1, len(path) - 1)])) else []),
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
        findings=tuple(f for f in dict.fromkeys(waited_for(findings)) if not (offline and f.code in OF_ROLLS)),
        unsafe=unsafe,
        offline=offline,
    )


def _of_levels(findings: Iterable[Finding], refused: str, *, offline: bool) -> Iterable[Finding]:
    """Where Kafka's refusal is what the run goes round, it is no blocker; where it is not, the way is named."""
    for finding in findings:
        if finding.code != _REFUSED or finding.subject != f"feature {METADATA_VERSION}":
            yield finding
        elif not offline:
            yield replace(
                finding,
                remedy=f"Choose a level that Kafka goes down to, or start the run with '{WhereRefused.OFFLINE}' where "
                "Kafka refuses and an older target release: all nodes are stopped then.",
            )
    if offline:
        yield Finding(
            code="OFFLINE-DOWNGRADE",
            severity=Severity.WARNING,
            subject=f"feature {METADATA_VERSION}",
            sentence=f"Kafka does not lower it: {refused} So it is done with all nodes stopped: nothing is served from "
            "the first stop until the brokers are back.",
            remedy="The approval shows how long that takes and from when it cannot be undone.",
        )
