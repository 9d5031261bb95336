"""Plan an upgrade or a downgrade from the observed state, freeze the plan, and rehearse it on a copy of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from kafka_rollout.base.errors import RefusedError, SkippedStepError, UserError
from kafka_rollout.base.findings import Checked, UnknownKind, unknown
from kafka_rollout.base.maintenance import parse_maintenance, refuse_never_open
from kafka_rollout.control.holds import find_outside
from kafka_rollout.coordinator_logs.findings import LOGS_CHECK
from kafka_rollout.features.min_isr import MIN_ISR_CHECK, NOT_RAISED, MinIsrEffects, raises_elr
from kafka_rollout.features.registrations import SeenRegistrations, keeps_registrations, registered_levels
from kafka_rollout.features.requests import FeatureRequest, feature_changes
from kafka_rollout.gates.control import OUTSIDE_CHECK
from kafka_rollout.gates.remote_storage import tiered_brokers
from kafka_rollout.model.configs import NodeConfigs
from kafka_rollout.model.plan import Direction, Lowering, Plan, RunTerms
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ClusterState
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, observe, once_per_node, read_registrations
from kafka_rollout.observation.node_registrations import observe_registrations
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.planning.batches import WINDOWS_CHECK, expected_s, window_findings
from kafka_rollout.planning.findings.configuration import planned_configs
from kafka_rollout.planning.findings.downgrade_scans import LOSSES_CHECK, METADATA_LOGS_CHECK
from kafka_rollout.planning.findings.starts import ObservedStarts
from kafka_rollout.planning.findings.unreachable import SNAPSHOT_CHECK, snapshot_findings
from kafka_rollout.planning.findings.zookeeper import can_migrate
from kafka_rollout.planning.observation import PlanObservation
from kafka_rollout.planning.plan_checks import unknown_values
from kafka_rollout.planning.plans import make_plan
from kafka_rollout.planning.release_path import (
    find_release_steps,
    find_restart_steps,
    plan_release_steps,
    source_release,
    with_configured_classes,
)
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.acl_meaning import check_acls
from kafka_rollout.preparation.changes_on_disk import check_pending
from kafka_rollout.preparation.earlier_runs import check_earlier_runs
from kafka_rollout.preparation.frozen_plan import check_logs, keep_plan, planned_overrides, replace_findings
from kafka_rollout.preparation.listener_certificates import check_certificates
from kafka_rollout.preparation.metadata_errors import check_counters
from kafka_rollout.preparation.next_starts import observe_path, observe_starts
from kafka_rollout.preparation.node_checks import (
    check_authentication,
    check_dynamic_configs,
    check_hosts,
    check_jvm,
    check_log_folders,
    check_new_settings,
    java_versions,
    node_configs,
    node_directories,
    read_dynamic,
)
from kafka_rollout.preparation.pinned_min_isr import plan_min_isr
from kafka_rollout.preparation.quorum_start import check_quorum_start
from kafka_rollout.preparation.replayed_metadata import check_metadata
from kafka_rollout.rehearsal.job import GATE_TIMEOUT_S, order_rehearsal
from kafka_rollout.rehearsal.result import REHEARSAL_CHECK, RehearsalOutcome, RehearsalResult, passed
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release
from kafka_rollout.run.events import Planned
from kafka_rollout.run.projections.observations import observed_of
from kafka_rollout.run.step_events import Rehearsed

REHEARSAL_RESULT = "rehearsal/result.json"
NO_SCAN = "The plan was made without a scan."
_LATER = "It is checked later in the run, before the approval."


def plan_change(ports: ClusterPorts, request: Request, run_of: RunOf, *, terms: RunTerms | None = None) -> Plan:
    """Observe, plan and freeze the plan. The findings of a downgrade's logs are added later.

    `terms`: of the run that carries out the plan; None if it is started later. Raises UserError for a target, level or
    pattern that cannot be planned (nothing is recorded).
    """
    with ports.classes.keep_processes():
        return _plan_change(ports, request, run_of, terms)


def _plan_change(ports: ClusterPorts, request: Request, run_of: RunOf, terms: RunTerms | None) -> Plan:
    observed = observe_files(ports, observe(ports), request, run_of)
    ports = replace(ports, catalogue=observed.catalogue)
    plan = make_plan(observed, request, run_of)
    plan = plan.with_checked(check_files(Run(ports, plan), observed, request), unknown_values(observed, plan.path))
    if run_of is RunOf.UPGRADE:
        effects = min_isr_effects(Run(ports, plan), observed, request)
        logs = (
            check_logs(Run(ports, plan))
            if request.scan
            else LOGS_CHECK.ran(unknown=unknown("scan", NO_SCAN, UnknownKind.LEFT_OUT))
        )
        earlier = check_earlier_runs(ports, plan.feature_changes)
        plan = plan.with_checked([check_min_isr(plan, effects), logs, check_metadata(Run(ports, plan)), earlier])
        plan = replace(plan, default_changes=effects.changes)
    elif run_of is RunOf.DOWNGRADE:
        later = unknown("later step", _LATER, UnknownKind.LEFT_OUT)
        plan = plan.with_checked(check.ran(unknown=later) for check in (LOGS_CHECK, METADATA_LOGS_CHECK, LOSSES_CHECK))
    tiered = tiered_brokers(ports.cluster, observed.configs) if plan.release_steps else frozenset()
    counters = check_counters(Run(ports, plan), observed.state, tiered=tiered)
    plan = plan.with_checked([counters], unknown_values(observed, plan.path))
    plan = replace(plan, terms=terms).with_checked(
        [_windows(Run(ports, plan), request), _outside(Run(ports, plan), request)]
    )
    ports.run.record(observed_of(observed.state))
    freeze(Run(ports, plan), run_of)
    return plan


def observe_files(ports: ClusterPorts, state: ClusterState, request: Request, run_of: RunOf) -> PlanObservation:
    """Return the state with the nodes' files, for the releases on which the nodes will start."""
    down = run_of is RunOf.DOWNGRADE
    configs = node_configs(ports)
    catalogue = with_configured_classes(ports.catalogue, ports.cluster, configs)
    ahead: list[Release] = []
    if run_of is RunOf.RESTART:
        ahead = [step.to_release for step in find_restart_steps(ports.cluster, state, request.nodes)]
    else:
        with suppress(UserError):  # a target that no rolling change reaches: the plan refuses it, or is offline
            steps = find_release_steps(ports.cluster, catalogue, state, request.target_release, down=down)
            ahead = [step.to_release for step in steps]
    return PlanObservation(
        cluster=ports.cluster,
        catalogue=catalogue,
        state=state,
        configs=configs,
        starts=observe_path(ports, ahead, configs, down=down),
        starts_again=_starts_again(ports, state, request, configs) if down else ObservedStarts(),
        dynamic=read_dynamic(ports),
        java=java_versions(ports, ahead),
        directories=node_directories(ports, configs),
        # Only the metadata log has them; releases since 4.0 have no migration from ZooKeeper.
        registrations=read_registrations(ports, _leader_id(state), state.cluster_id) if can_migrate(state) else None,
        registered=_registered(ports, state, request) if run_of is RunOf.UPGRADE else None,
    )


def _starts_again(ports: ReadPorts, state: ClusterState, request: Request, configs: NodeConfigs) -> ObservedStarts:
    """Observe the starts with the files of now on the release that each node runs: those of the controllers in a live
    downgrade, and of all nodes in the undo of an offline one."""
    found = ObservedStarts()
    if request.lowering is Lowering.ONLINE:
        return found
    nodes = ports.cluster.nodes if request.lowering is Lowering.OFFLINE else ports.cluster.controllers
    running = {node.node_id: state.nodes[node.node_id].release for node in nodes if node.node_id in configs}
    for release in sorted({one for one in running.values() if one is not None and one in ports.catalogue}):
        chosen = {node_id: configs[node_id] for node_id, runs in running.items() if runs == release}
        found = found.then(observe_starts(ports, release, chosen, down=True), release, is_target=False)
    return found


def check_files(run: Run, observed: PlanObservation, request: Request) -> tuple[Checked, ...]:
    """Return the checks of hosts, JVMs, ACLs and configuration for the releases of the plan."""
    ahead = run.plan.path[1:]
    planned = planned_configs(run.plan.path, observed.configs, run.plan.config_changes)
    finalizes = request.finalizes(rolls=run.plan.changes_release)
    in_use = once_per_node(run.ports.admin.settings_in_use)
    stops = run.plan.only_stops
    stopped = {node_id: config for node_id, config in observed.configs.items() if stops is None or node_id in stops}
    return (
        check_pending(run, observed.configs, observed.state, in_use),
        SNAPSHOT_CHECK.ran(
            snapshot_findings(run.cluster, run.plan, planned, finalizes=finalizes),
            unless=""
            if run.plan.feature_changes or run.plan.direction is Direction.DOWNGRADE
            else "No level is changed.",
        ),
        check_hosts(
            run.ports,
            ahead,
            changes=run.plan.config_changes,
            restarts=all(step.restarts for step in run.plan.release_steps),
        ),
        check_quorum_start(run, observed.configs, observed.state, in_use),
        check_log_folders(run.ports, ahead, stopped),
        check_jvm(run.ports, ahead, observed.configs, run.plan.config_changes),
        check_certificates(run.ports, observed.configs, lasts_s=_expected_s(run.plan)),
        check_acls(run, observed.configs),
        check_authentication(run, observed.configs),
        check_new_settings(run, observed.configs, observed.state.finalized.reported),
        *check_dynamic_configs(run, observed),
    )


def _expected_s(plan: Plan) -> float:
    """Return the seconds that the steps of the plan take at least, without approvals."""
    return sum(expected_s(len(step.order), plan.terms.soak_s if plan.terms else 0.0) for step in plan.release_steps)


def _windows(run: ReadRun, request: Request) -> Checked:
    maintenance = parse_maintenance(run.cluster.window, run.cluster.freeze_days)
    if maintenance is None:
        return WINDOWS_CHECK.ran(unless="The inventory has no maintenance window.")
    if not run.plan.release_steps:
        refuse_never_open(maintenance, run.ports.clock.now())
        return WINDOWS_CHECK.ran(unless="The run stops no node.")
    soak_s = request.gates(run.cluster).soak_s
    return WINDOWS_CHECK.ran(window_findings(run.plan, run.cluster, maintenance, soak_s, run.ports.clock.now()))


def _outside(run: ReadRun, request: Request) -> Checked:
    if not run.plan.release_steps:
        return OUTSIDE_CHECK.ran(unless="The run stops no node.")
    return find_outside(run.ports, request.skip_conditions)


def min_isr_effects(run: Run, observed: PlanObservation, request: Request) -> MinIsrEffects:
    """Return what raising eligible.leader.replicas.version changes, in this run or in a later one."""
    next_start = planned_configs(run.plan.path, observed.configs, run.plan.config_changes)[run.plan.path[-1]]
    configs = next_start if run.plan.release_steps else {}
    partitions = observed.state.partitions
    effects = plan_min_isr(run.ports, run.plan.feature_changes, partitions, pin=request.pin_min_isr, configs=configs)
    return effects.of_later_run() if run.plan.changes_release and not request.finalizes(rolls=True) else effects


def check_min_isr(plan: Plan, effects: MinIsrEffects) -> Checked:
    return MIN_ISR_CHECK.ran(effects.findings, unless="" if raises_elr(plan.feature_changes) else NOT_RAISED)


def freeze(run: Run, run_of: RunOf, *, requests: Sequence[FeatureRequest] = ()) -> None:
    """Keep the plan in the run's record. `requests`: those of a plan of features alone."""
    keep_plan(run.ports, run.plan)
    run.history.record(
        Planned(
            run_of=run_of,
            plan_hash=run.plan.hash,
            source=run.plan.source,
            target=run.plan.target,
            release_steps=tuple(release_step.key for release_step in run.plan.release_steps),
            release_overrides=None if run_of is RunOf.FEATURES else planned_overrides(run.plan, run.cluster),
            requests=tuple(str(request) for request in requests),
            unsafe=run.plan.unsafe,
            lowering=run.plan.lowering,
            blockers=tuple(str(finding) for finding in run.plan.blockers),
        )
    )


def rehearse_plan(run: Run, request: Request, on_progress: Callable[[str], None]) -> RehearsalResult:
    """Rehearse the plan; add the findings to it and the result to the run.

    Raises SkippedStepError where no rehearsal is possible, with the reason.
    """
    releases = (run.plan.source, *(release_step.to_release for release_step in run.plan.release_steps))
    job = order_rehearsal(request, run.plan.cluster, run.plan.direction, releases, gate_timeout_s=GATE_TIMEOUT_S)
    try:
        result = run.ports.rehearsals.rehearse(job, on_progress)
    except (RefusedError, UserError) as error:
        why = f"It was requested and did not take place: {error.sentence}"
        skipped = unknown("rehearsal", why, UnknownKind.NOT_TRIED)
        replace_findings(run.ports, REHEARSAL_CHECK.ran(unknown=skipped))
        raise SkippedStepError(error.sentence) from error
    run.history.attach(REHEARSAL_RESULT, result)
    run.history.record(
        Rehearsed(
            outcome=result.outcome,
            sentence=result.sentence,
            seconds=result.seconds,
            node_seconds=result.node_seconds,
            findings=tuple(str(finding) for finding in result.findings),
        )
    )
    shown = (passed(result), *result.findings) if result.outcome is RehearsalOutcome.PASSED else result.findings
    replace_findings(run.ports, REHEARSAL_CHECK.ran(shown))
    return result


def planned_releases(ports: ReadPorts, target: Release) -> tuple[Direction, tuple[Release, ...]]:
    """Return the direction and the releases of all release steps, the source first.

    Raises UserError if the nodes run different releases: a copy starts on one release.
    """
    state = observe(ports)
    source = source_release(ports.cluster, state)
    if len(state.releases) > 1:
        raise UserError(
            f"The nodes of {ports.cluster.name} run different releases: "
            f"{', '.join(str(release) for release in sorted(state.releases))}.",
            remedy="Finish the change that was interrupted. A copy starts on one release.",
        )
    catalogue = with_configured_classes(ports.catalogue, ports.cluster, node_configs(ports))
    return releases_between(catalogue, source, target)


def releases_between(catalogue: Catalogue, source: Release, target: Release) -> tuple[Direction, tuple[Release, ...]]:
    """Return the direction and the releases of all release steps, the source first."""
    down = target < source
    steps = plan_release_steps(catalogue, source, target, down=down)
    return Direction.DOWNGRADE if down else Direction.UPGRADE, (source, *(to for _, to, _ in steps))


def _leader_id(state: ClusterState) -> int | None:
    return state.quorum.leader_id if state.quorum else None


def _registered(ports: ClusterPorts, state: ClusterState, request: Request) -> SeenRegistrations | None:
    """Return the registrations of brokers that run the target already, so that its roll does not restart them."""
    target = request.target_release
    if target not in ports.catalogue or not keeps_registrations(state.finalized.reported.get(METADATA_VERSION, 0)):
        return None
    changes = feature_changes(ports.catalogue, state, target)
    brokers = [node.node_id for node in ports.cluster.brokers if state.nodes[node.node_id].release == target]
    if not brokers or not registered_levels(changes):
        return None
    return observe_registrations(ports, changes, brokers, cluster_id=state.cluster_id)
