"""The plan of an upgrade, computed from the observed state and the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.base.findings import all_findings, results_of
from kafka_rollout.features.checks import feature_changes
from kafka_rollout.gates.findings import find_unchecked_counters
from kafka_rollout.gates.remote_storage import tiered_brokers
from kafka_rollout.metadata_log.registrations import MetadataRegistrations
from kafka_rollout.model.plan import Direction, Plan, ReleaseStep
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.checks import Change, check_change
from kafka_rollout.planning.findings.cluster import check_cluster
from kafka_rollout.planning.findings.configuration import (
    config_changes,
)
from kafka_rollout.planning.release_path import node_order, plan_release_steps, source_release
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
    changes = config_changes(cluster, path, configs, snapshot_interval_ms=snapshot_interval_ms)
    change = Change(
        cluster=cluster,
        catalogue=catalogue,
        state=state,
        target=target,
        path=path,
        configs=configs,
        config_changes=changes,
        config_problems=config_problems,
        java=java,
        registrations=registrations,
        levels={},
        down=False,
    )
    checked = (
        *check_cluster(cluster, catalogue, state, target=target, accept_unavailable=accept_unavailable, tiered=tiered),
        *check_change(change),
    )
    return Plan(
        cluster=cluster.name,
        cluster_id=state.cluster_id,
        direction=Direction.UPGRADE,
        source=source,
        target=target,
        release_steps=release_steps,
        feature_changes=feature_changes(catalogue, state, target) if finalize else (),
        config_changes=changes,
        findings=all_findings(checked),
        checks=results_of(checked, change.unknown()),
        accept_unavailable=tuple(accept_unavailable),
        unchecked=find_unchecked_counters(cluster, state, tiered),
    )
