"""The plan of an upgrade, computed from the observed state and the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.features.checks import feature_changes, range_findings, rollback_level_findings
from kafka_rollout.gates.findings import find_unchecked_counters, remote_storage_findings
from kafka_rollout.gates.remote_storage import tiered_brokers
from kafka_rollout.groups.findings import group_findings, leave_to_gate
from kafka_rollout.metadata_log.registrations import MetadataRegistrations
from kafka_rollout.model.plan import Direction, Plan, ReleaseStep
from kafka_rollout.model.right_findings import right_findings
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.catalogue_gaps import gap_findings
from kafka_rollout.planning.findings.cluster import cluster_findings
from kafka_rollout.planning.findings.configuration import (
    config_changes,
    config_findings,
    controlled_shutdown_findings,
    java_findings,
    planned_configs,
    quorum_config_findings,
)
from kafka_rollout.planning.findings.not_observable import unobserved_nodes, unresolved_config_findings
from kafka_rollout.planning.findings.rollback_blockers import rollback_end_findings
from kafka_rollout.planning.findings.zookeeper import zookeeper_findings
from kafka_rollout.planning.release_changes.advisories import advisory_findings
from kafka_rollout.planning.release_path import find_nodes_ahead, node_order, plan_release_steps, source_release
from kafka_rollout.releases.facts import Catalogue, Release


def make_plan(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    state: ClusterState,
    target: Release,
    *,
    configs: Mapping[int, Mapping[str, str]],
    config_problems: Mapping[int, tuple[str, ...]],
    java: Mapping[int, int],
    registrations: MetadataRegistrations | None = None,
    finalize: bool,
    snapshot_interval_ms: int | None = None,
    accept_unavailable: Sequence[str] = (),
) -> Plan:
    """Return the plan with all findings. Blockers are part of the plan and do not raise.

    `configs`: the current configuration by node. `config_problems`: values that the target's own classes reject
    (release_overrides applied). `java`: the feature version by host. `registrations`: in the metadata log; None if it
    was not read. `finalize`: add the feature changes. `snapshot_interval_ms`: the lower snapshot interval for the last
    release step; None keeps the interval.
    `accept_unavailable`: as in Plan, already checked. Raises UserError for a target that cannot be planned (unknown, or
    older than the source) and RefusedError if no node reports its release.
    """
    source = source_release(cluster, state)
    ways = plan_release_steps(catalogue, source, target)
    active = state.quorum.leader_id if state.quorum else None
    order = node_order(cluster, active)
    release_steps = tuple(
        ReleaseStep(from_release=a, to_release=b, reason=reason, order=order) for a, b, reason in ways
    )
    path = (source, *(release_step.to_release for release_step in release_steps))
    tiered = tiered_brokers(cluster, configs) if release_steps else frozenset()
    findings = [
        *cluster_findings(
            cluster, catalogue, state, target=target, accept_unavailable=accept_unavailable, tiered=tiered
        ).findings
    ]
    findings += right_findings(cluster, state)
    findings += zookeeper_findings(cluster, state, configs, registrations)
    findings += controlled_shutdown_findings(cluster, configs) if path[1:] else ()
    if ahead := find_nodes_ahead(state, path[min(1, len(path) - 1)]):
        findings.append(ahead)
    for release in path[1:]:
        findings += range_findings(catalogue, state, release).findings
        findings += leave_to_gate(group_findings(catalogue, state, release))
    findings += gap_findings(catalogue, path)
    findings += advisory_findings(catalogue, path, state.finalized)
    findings += rollback_level_findings(catalogue, state, source).findings
    findings += rollback_end_findings(catalogue, path, state.finalized)
    findings += config_findings(target, config_problems)
    changes = config_changes(cluster, path, configs, snapshot_interval_ms=snapshot_interval_ms)
    planned = planned_configs(path, configs, changes)
    findings += quorum_config_findings(state, (planned[release] for release in path[1:]))
    findings += remote_storage_findings(cluster, configs, target) if release_steps else ()
    findings += java_findings(cluster, catalogue, path[1:], java)
    findings += unobserved_nodes(cluster, configs, "configurations")
    findings += unresolved_config_findings(configs)
    findings += unobserved_nodes(cluster, java, "Java versions")
    return Plan(
        cluster=cluster.name,
        cluster_id=state.cluster_id,
        direction=Direction.UPGRADE,
        source=source,
        target=target,
        release_steps=release_steps,
        feature_changes=feature_changes(catalogue, state, target) if finalize else (),
        config_changes=changes,
        findings=tuple(findings),
        accept_unavailable=tuple(accept_unavailable),
        unchecked=find_unchecked_counters(cluster, state, tiered),
    )
