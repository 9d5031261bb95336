"""The plan of a downgrade and its feature levels, computed from the observed state and the request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.findings import Finding, Severity, warning
from kafka_rollout.features.checks import feature_change, missing_dependencies, range_findings
from kafka_rollout.features.rules import check_feature_support
from kafka_rollout.gates.findings import find_unchecked_counters, remote_storage_findings
from kafka_rollout.gates.remote_storage import tiered_brokers
from kafka_rollout.groups.findings import group_findings, leave_to_gate
from kafka_rollout.metadata_log.registrations import MetadataRegistrations
from kafka_rollout.model.plan import Direction, FeatureChange, Plan
from kafka_rollout.model.right_findings import right_findings
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.catalogue_gaps import gap_findings
from kafka_rollout.planning.findings.cluster import cluster_findings
from kafka_rollout.planning.findings.configuration import (
    config_changes,
    config_findings,
    controlled_shutdown_findings,
    directory_findings,
    java_findings,
    planned_configs,
    quorum_config_findings,
)
from kafka_rollout.planning.findings.not_observable import unobserved_nodes, unresolved_config_findings
from kafka_rollout.planning.findings.zookeeper import zookeeper_findings
from kafka_rollout.planning.lowering import (
    OF_ROLLS,
    LoweringChoice,
    LoweringMethod,
    WhereRefused,
    choose_lowering,
    live_obstacles,
    refused_by_kafka,
)
from kafka_rollout.planning.release_changes.advisories import advisory_findings
from kafka_rollout.planning.release_path import find_nodes_ahead, highest_running, plan_downgrade_steps
from kafka_rollout.releases.facts import KRAFT_VERSION, METADATA_VERSION, Catalogue, Release, ReleaseFacts


def target_level(catalogue: Catalogue, state: ClusterState, target: Release, asked: int | None) -> int:
    """Return the metadata.version to set: the requested one, else the highest that the target supports.

    It is never above the current level. Raises UserError for a level that the target does not support or that is above
    the current level.
    """
    current = state.finalized.get(METADATA_VERSION, 0)
    supported = catalogue.get(target).features[METADATA_VERSION].supported
    if asked is None:
        return min(current, supported.max)
    if asked not in supported:
        raise UserError(
            f"Release {target} supports metadata.version {supported}, not {asked}.",
            remedy="Choose a level that the target release supports, or omit the level.",
        )
    if asked > current:
        raise UserError(
            f"metadata.version is finalized at {current}. Level {asked} is higher.",
            remedy=f"Choose {current} or lower, or omit the level. To raise it, use kafka_features or kafka_upgrade.",
        )
    return asked


def downgrade_levels(
    catalogue: Catalogue, state: ClusterState, path: Sequence[Release], level: int
) -> tuple[FeatureChange, ...]:
    """Return every feature that must be lowered.

    The new level is the highest that all releases of `path` support, 0 if one does not support the feature. It is lower
    still if dependencies at metadata.version `level` require that. kraft.version cannot be lowered and stays.
    """
    known = [release for release in state.releases if release in catalogue]
    if not known:
        return ()
    running = catalogue.get(max(known))
    below = [catalogue.get(release) for release in path]
    wanted = {
        feature: current if feature == KRAFT_VERSION else _highest(below, feature, current)
        for feature, current in state.finalized.items()
        if current > 0
    }
    wanted[METADATA_VERSION] = level
    lower_until_met([running, *below], wanted)
    return tuple(
        feature_change(running, feature, state.finalized.get(feature, 0), target)
        for feature, target in sorted(wanted.items(), key=lambda item: (item[0] == METADATA_VERSION, item[0]))
        if target != state.finalized.get(feature, 0)
    )


def _highest(below: Sequence[ReleaseFacts], feature: str, current: int) -> int:
    return min(
        [current, *(facts.features[feature].supported.max if feature in facts.features else 0 for facts in below)]
    )


def lower_until_met(facts: Sequence[ReleaseFacts], levels: dict[str, int]) -> None:
    """Lower, in place, each feature with an unmet dependency. metadata.version and kraft.version stay."""
    while name := next((n for n in sorted(levels) if _lacks(facts, n, levels)), None):
        levels[name] -= 1


def _lacks(facts: Sequence[ReleaseFacts], feature: str, levels: Mapping[str, int]) -> bool:
    if feature in {METADATA_VERSION, KRAFT_VERSION} or levels[feature] <= 0:
        return False
    return any(missing_dependencies(one, feature, levels) for one in facts)


_REFUSED = "FEATURE-DOWNGRADE-REFUSED"


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
    registrations: MetadataRegistrations | None = None,
    accept_unavailable: Sequence[str] = (),
) -> Plan:
    """Return the plan with all findings except those of the logs. Blockers are part of the plan and do not raise.

    `level` None: the highest metadata.version that the target supports, at most the current one. The plan is live or
    offline only if Kafka rejects the level, `where_refused` allows it, and the binary is downgraded too. `configs`,
    `config_problems`, `java`, `registrations`, `accept_unavailable`: as in make_plan. Raises UserError for a target or
    level that cannot be planned, and RefusedError if no node reports its release.
    """
    source = highest_running(cluster, state)
    level = target_level(catalogue, state, target, level)
    tiered = tiered_brokers(cluster, configs) if target < source else frozenset()
    of_cluster = cluster_findings(
        cluster, catalogue, state, target=target, accept_unavailable=accept_unavailable, tiered=tiered
    ).findings
    choice = choose_lowering(
        refused_by_kafka(cluster, catalogue, state, state.finalized.get(METADATA_VERSION, 0), level),
        live_obstacles(cluster, catalogue, state, level, of_cluster),
        where_refused,
        lowers_binary=target < source,
    )
    offline = choice.method is LoweringMethod.OFFLINE
    release_steps = plan_downgrade_steps(cluster, catalogue, state, target, together=not offline)
    path = (source, *(release_step.to_release for release_step in release_steps))
    changes = downgrade_levels(catalogue, state, path[1:], level)
    planned = {change.feature: change.target for change in changes}
    of_nodes = config_changes(cluster, path, configs)
    planned_nodes = planned_configs(path, configs, of_nodes)
    findings = [
        *of_cluster,
        *right_findings(cluster, state),
        *zookeeper_findings(cluster, state, configs, registrations),
        *(controlled_shutdown_findings(cluster, configs) if release_steps else ()),
        *directory_findings(cluster, configs, state, target, level, unsafe=unsafe),
        *([found] if (found := find_nodes_ahead(state, path[min(1, len(path) - 1)], down=True)) else []),
        *(f for release in path[1:] for f in range_findings(catalogue, state, release, planned=planned).findings),
        *(f for release in path[1:] for f in group_findings(catalogue, state, release)),
        *range_findings(
            catalogue, state, source, planned=planned, code="NO-WAY-BACK", severity=Severity.WARNING
        ).findings,
        *gap_findings(catalogue, path, down=True),
        *advisory_findings(catalogue, path, state.finalized),
        *config_findings(target, config_problems),
        *quorum_config_findings(state, (planned_nodes[release] for release in path[1:])),
        *(remote_storage_findings(cluster, configs, target) if release_steps else ()),
        *java_findings(cluster, catalogue, path[1:], java),
        *unobserved_nodes(cluster, configs, "configurations"),
        *unresolved_config_findings(configs),
        *unobserved_nodes(cluster, java, "Java versions"),
        *_of_levels(check_feature_support(cluster, catalogue, state, planned, unsafe=unsafe).findings, choice),
    ]
    return Plan(
        cluster=cluster.name,
        cluster_id=state.cluster_id,
        direction=Direction.DOWNGRADE,
        source=source,
        target=target,
        release_steps=release_steps,
        feature_changes=changes,
        config_changes=of_nodes,
        findings=tuple(f for f in dict.fromkeys(leave_to_gate(findings)) if not (offline and f.code in OF_ROLLS)),
        unsafe=unsafe,
        offline=offline,
        accept_unavailable=tuple(accept_unavailable),
        unchecked=find_unchecked_counters(cluster, state, tiered),
        live=choice.method is LoweringMethod.LIVE,
    )


def _of_levels(findings: Iterable[Finding], choice: LoweringChoice) -> Iterable[Finding]:
    """Adapt the finding about Kafka's refusal to lower metadata.version.

    If a snapshot lowers the level, the refusal is not a blocker. Else the remedy lists the possible actions.
    """
    subject = f"feature {METADATA_VERSION}"
    lowered = choice.method is not LoweringMethod.CONTROLLER
    for finding in findings:
        if finding.code != _REFUSED or finding.subject != subject:
            yield finding
        elif not lowered:
            yield replace(finding, remedy=_ways(choice))
    if choice.method is LoweringMethod.LIVE:
        yield warning(
            "LIVE-DOWNGRADE",
            subject,
            f"Kafka does not lower it online: {choice.refused} The run lowers it while the controllers are stopped; "
            "the brokers serve clients. Then it replaces one node at a time.",
            "Read the approval: it shows what is unavailable without a controller, and for how many seconds.",
        )
    if choice.method is LoweringMethod.OFFLINE:
        yield warning(
            "OFFLINE-DOWNGRADE",
            subject,
            f"Kafka does not lower it online: {choice.refused} A live downgrade is not possible: {choice.not_live}. "
            "The run lowers it while all nodes are stopped. "
            "The cluster serves no requests from the first stop until the brokers are back.",
            "Read the approval: it shows the expected outage and the point of no return.",
        )


def _ways(choice: LoweringChoice) -> str:
    other = "Choose a level that Kafka can reach online. Or choose an older target release and"
    if choice.not_live:
        return (
            f"{other} '{WhereRefused.OFFLINE}' where Kafka refuses: this stops all nodes. A live downgrade is not "
            f"possible: {choice.not_live}."
        )
    return f"{other} '{WhereRefused.LIVE}' where Kafka refuses: this stops only the controllers for some seconds."
