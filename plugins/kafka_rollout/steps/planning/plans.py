"""Plan an upgrade or a downgrade from the observed state, and freeze the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafka_rollout.coordinator_logs.findings import LOGS_CHECK
from kafka_rollout.features.min_isr import MIN_ISR_CHECK, NOT_RAISED, raises_elr
from kafka_rollout.features.requests import FeatureRequest
from kafka_rollout.metadata_log.registrations import MetadataRegistrations
from kafka_rollout.model.plan import Plan, RunTerms
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.unavailability import accepted_topics
from kafka_rollout.planning.checks import unknown_values
from kafka_rollout.planning.downgrade import make_downgrade_plan
from kafka_rollout.planning.findings.configuration import planned_configs
from kafka_rollout.planning.findings.downgrade_scans import LOSSES_CHECK, METADATA_LOGS_CHECK
from kafka_rollout.planning.findings.zookeeper import can_migrate
from kafka_rollout.planning.lowering import WhereRefused
from kafka_rollout.planning.release_path import with_configured_classes
from kafka_rollout.planning.upgrade import make_plan
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Observed, Planned
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe, read_registrations
from kafka_rollout.steps.planning.check import planned_overrides
from kafka_rollout.steps.planning.coordinator_logs import check_logs
from kafka_rollout.steps.planning.dynamic_configs import check_dynamic_configs
from kafka_rollout.steps.planning.hosts import (
    check_hosts,
    check_jvm,
    config_problems,
    java_versions,
    node_configs,
    releases_ahead,
)
from kafka_rollout.steps.planning.min_isr import plan_min_isr

_LATER = "It is checked later in the run, before the approval."


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
    configs, java = node_configs(ports), java_versions(ports)
    ports = replace(ports, catalogue=with_configured_classes(ports.catalogue, ports.cluster, configs))
    plan = make_plan(
        ports.cluster,
        ports.catalogue,
        state,
        target,
        configs=configs,
        config_problems=config_problems(ports, releases_ahead(ports, state, target), configs),
        java=java,
        registrations=_registrations(ports, state),
        finalize=finalize,
        snapshot_interval_ms=snapshot_interval_ms,
        accept_unavailable=accepted,
    )
    plan = _with_files(ports, plan, state, configs, java)
    next_start = planned_configs(plan.path, configs, plan.config_changes)[plan.path[-1]]
    effects = plan_min_isr(
        ports, plan.feature_changes, state.partitions, pin=pin_min_isr, configs=next_start if plan.release_steps else {}
    )
    if later and plan.release_steps:
        effects = effects.of_later_run()
    raises = "" if raises_elr(plan.feature_changes) else NOT_RAISED
    logs = check_logs(ports, plan) if with_logs else LOGS_CHECK.ran(unknown="The plan was made without a scan.")
    plan = plan.with_checked([MIN_ISR_CHECK.ran(effects.findings, unless=raises), logs])
    plan = replace(plan, default_changes=effects.changes, terms=terms)
    freeze(ports, plan, RunOf.UPGRADE)
    return plan


def _with_files(
    ports: ClusterPorts,
    plan: Plan,
    state: ClusterState,
    configs: Mapping[int, Mapping[str, str]],
    java: Mapping[int, int],
) -> Plan:
    """Add the checks of hosts, JVMs and configuration for the releases of the plan."""
    ahead = plan.path[1:]
    checked = (
        check_hosts(ports, ahead),
        check_jvm(ports, ahead, configs, plan.config_changes),
        *check_dynamic_configs(ports, plan, configs),
    )
    unknown = unknown_values(ports.cluster, state, configs, java, catalogue=ports.catalogue, path=plan.path)
    return plan.with_checked(checked, unknown)


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
    configs, java = node_configs(ports), java_versions(ports)
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
        java=java,
        registrations=_registrations(ports, state),
        accept_unavailable=accepted,
    )
    plan = _with_files(ports, plan, state, configs, java)
    later = [check.ran(unknown=_LATER) for check in (LOGS_CHECK, METADATA_LOGS_CHECK, LOSSES_CHECK)]
    plan = replace(plan.with_checked(later), terms=terms)
    record_observed(ports, state)
    freeze(ports, plan, RunOf.DOWNGRADE)
    return plan
