"""Plan an upgrade or a downgrade from the observed state, and freeze the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafka_rollout.features.requests import FeatureRequest
from kafka_rollout.metadata_log.registrations import MetadataRegistrations
from kafka_rollout.model.plan import Plan, RunOf, RunTerms
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.unavailability import accepted_topics
from kafka_rollout.planning.downgrade import make_downgrade_plan
from kafka_rollout.planning.findings.configuration import planned_configs
from kafka_rollout.planning.findings.zookeeper import can_migrate
from kafka_rollout.planning.lowering import WhereRefused
from kafka_rollout.planning.release_path import with_configured_classes
from kafka_rollout.planning.upgrade import make_plan
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Observed, Planned
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe, read_registrations
from kafka_rollout.steps.planning.check import planned_overrides
from kafka_rollout.steps.planning.coordinator_logs import logs_findings, scan_before_roll
from kafka_rollout.steps.planning.dynamic_configs import plan_dynamic_configs
from kafka_rollout.steps.planning.hosts import (
    config_problems,
    find_host_problems,
    find_jvm_problems,
    java_versions,
    node_configs,
    releases_ahead,
)
from kafka_rollout.steps.planning.min_isr import plan_min_isr


def plan_upgrade(
    ports: ClusterPorts,
    target: Release,
    *,
    finalize: bool,
    later: bool = False,
    pin_min_isr: bool = False,
    snapshot_interval_ms: int | None = None,
    with_logs: bool = False,
    accept_unavailable: Sequence[str] = (),
    terms: RunTerms | None = None,
) -> Plan:
    """Observe, plan and record the plan. `finalize`: feature levels are part of the plan.

    `later`: a run that rolls nodes does not finalize the levels; a later run does. `pin_min_isr`: as in Request.

    `snapshot_interval_ms`: lowers the snapshot interval in the configuration of the last release step. `with_logs`:
    adds the findings of the run's scan of the coordinator logs; a missing result is a blocker. `accept_unavailable`: as
    in Plan; raises UserError for an invalid pattern.
    """
    accepted = accepted_topics(accept_unavailable)
    state = observe(ports)
    record_observed(ports, state)
    configs = node_configs(ports)
    ports = replace(ports, catalogue=with_configured_classes(ports.catalogue, ports.cluster, configs))
    plan = make_plan(
        ports.cluster,
        ports.catalogue,
        state,
        target,
        configs=configs,
        config_problems=config_problems(ports, releases_ahead(ports, state, target), configs),
        java=java_versions(ports),
        registrations=_registrations(ports, state),
        finalize=finalize,
        snapshot_interval_ms=snapshot_interval_ms,
        accept_unavailable=accepted,
    )
    ahead = [release_step.to_release for release_step in plan.release_steps]
    hosts = (*find_host_problems(ports, ahead), *find_jvm_problems(ports, ahead, configs, plan.config_changes))
    plan = replace(plan, findings=(*plan.findings, *hosts, *plan_dynamic_configs(ports, plan, configs)))
    next_start = planned_configs(plan.path, configs, plan.config_changes)[plan.path[-1]]
    effects = plan_min_isr(
        ports, plan.feature_changes, state.partitions, pin=pin_min_isr, configs=next_start if ahead else {}
    )
    if later and plan.release_steps:
        effects = effects.of_later_run()
    plan = replace(plan, findings=(*plan.findings, *effects.findings), default_changes=effects.changes)
    if with_logs:
        plan = replace(plan, findings=(*plan.findings, *logs_findings(ports, scan_before_roll(ports), plan)))
    plan = replace(plan, terms=terms)
    freeze(ports, plan, RunOf.UPGRADE)
    return plan


def _registrations(ports: ClusterPorts, state: ClusterState) -> MetadataRegistrations | None:
    """Read what only the metadata log contains, if the running releases can have a migration from ZooKeeper."""
    return read_registrations(ports, state) if can_migrate(state) else None


def freeze(ports: ClusterPorts, plan: Plan, run_of: RunOf, *, requests: Sequence[FeatureRequest] = ()) -> None:
    """Keep the plan in the run's record. `requests`: those of a plan of features alone."""
    ports.run.save_plan(plan)
    ports.run.record(
        Planned(
            run_of=run_of,
            plan_hash=plan.hash,
            source=plan.source,
            target=plan.target,
            release_steps=tuple(release_step.key for release_step in plan.release_steps),
            release_overrides=None if run_of is RunOf.FEATURES else planned_overrides(ports, plan),
            requests=tuple(str(request) for request in requests),
            unsafe=plan.unsafe,
            offline=plan.offline,
            blockers=tuple(str(finding) for finding in plan.blockers),
        )
    )


def record_observed(ports: ClusterPorts, state: ClusterState) -> None:
    """Record the observed releases and finalized levels."""
    ports.run.record(
        Observed(
            cluster_id=state.cluster_id,
            releases={node_id: node.release for node_id, node in state.nodes.items()},
            finalized=dict(state.finalized),
            quorum_leader=state.quorum.leader_id if state.quorum else None,
            partitions=len(state.partitions),
            groups=len(state.groups),
            unanswered=tuple(state.unanswered),
        )
    )


def plan_downgrade(
    ports: ClusterPorts,
    target: Release,
    *,
    level: int | None = None,
    unsafe: bool = False,
    where_refused: WhereRefused = WhereRefused.STOP,
    accept_unavailable: Sequence[str] = (),
    terms: RunTerms | None = None,
) -> Plan:
    """Observe, plan and freeze. The findings of the logs are added later.

    Raises UserError for a target, level or pattern that cannot be planned (nothing is recorded).
    """
    accepted = accepted_topics(accept_unavailable)
    state = observe(ports)
    configs = node_configs(ports)
    ports = replace(ports, catalogue=with_configured_classes(ports.catalogue, ports.cluster, configs))
    plan = make_downgrade_plan(
        ports.cluster,
        ports.catalogue,
        state,
        target,
        level=level,
        unsafe=unsafe,
        where_refused=where_refused,
        configs=configs,
        config_problems=config_problems(ports, releases_ahead(ports, state, target, down=True), configs, down=True),
        java=java_versions(ports),
        registrations=_registrations(ports, state),
        accept_unavailable=accepted,
    )
    ahead = [release_step.to_release for release_step in plan.release_steps]
    hosts = (*find_host_problems(ports, ahead), *find_jvm_problems(ports, ahead, configs, plan.config_changes))
    plan = replace(plan, findings=(*plan.findings, *hosts, *plan_dynamic_configs(ports, plan, configs)))
    plan = replace(plan, terms=terms)
    record_observed(ports, state)
    freeze(ports, plan, RunOf.DOWNGRADE)
    return plan
