"""The plan of an upgrade, a downgrade or a restart, computed from the observation and the request."""

from __future__ import annotations

from collections.abc import Collection

from kafka_rollout.base.findings import Checked, all_findings
from kafka_rollout.features.requests import feature_changes
from kafka_rollout.gates.counters import find_unchecked_counters
from kafka_rollout.gates.remote_storage import tiered_brokers
from kafka_rollout.model.plan import Direction, Lowering, Plan, ReleaseStep
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import find_ended_claims
from kafka_rollout.planning.batches import BatchLimits, find_racks, with_batches
from kafka_rollout.planning.downgrade import decide_downgrade
from kafka_rollout.planning.findings.cluster_state import check_cluster, check_releases
from kafka_rollout.planning.findings.configuration import config_changes
from kafka_rollout.planning.lowering import OF_ROLLS
from kafka_rollout.planning.observation import Change, PlanObservation
from kafka_rollout.planning.plan_checks import check_change, unknown_values
from kafka_rollout.planning.registration import (
    REGISTRATIONS_CHECK,
    plan_registration_step,
    registration_findings,
)
from kafka_rollout.planning.release_path import find_release_steps, find_restart_steps, source_release
from kafka_rollout.planning.request import Request


def make_plan(observed: PlanObservation, request: Request, run_of: RunOf) -> Plan:
    """Return the plan with all findings except those of hosts and logs. Blockers are part of the plan and do not raise.

    Errors as `decide_plan`.
    """
    plan, checked = decide_plan(observed, request, run_of)
    return plan.with_checked(checked, unknown_values(observed, plan.path))


def decide_plan(observed: PlanObservation, request: Request, run_of: RunOf) -> tuple[Plan, tuple[Checked, ...]]:
    """Return the plan without findings, and its checks except those of hosts and logs.

    Raises UserError for a target, level or pattern that cannot be planned, and RefusedError if no node reports its
    release.
    """
    cluster, catalogue, state, restarts = observed.cluster, observed.catalogue, observed.state, run_of is RunOf.RESTART
    source = source_release(cluster, state, down=run_of is RunOf.DOWNGRADE)
    target = source if restarts else request.target_release
    tiered = tiered_brokers(cluster, observed.configs) if restarts or target != source else frozenset()
    accepted = request.accepted_topics
    levels = feature_changes(catalogue, state, target) if run_of is RunOf.UPGRADE else ()
    steps: tuple[ReleaseStep, ...] = ()
    if restarts:
        steps = find_restart_steps(cluster, state, request.nodes)
    elif run_of is RunOf.UPGRADE:
        steps = find_release_steps(cluster, catalogue, state, target)
        if request.finalizes(rolls=bool(steps)) and (again := plan_registration_step(observed, target, steps, levels)):
            steps = (*steps, again)
    # A change of the release can be rolled back, so it can stop every node.
    stops = None
    if run_of is not RunOf.DOWNGRADE and not any(one.from_release != one.to_release for one in steps):
        stops = {node.node_id for one in steps for node in one.order}
    of_cluster = check_cluster(
        cluster, catalogue, state, target=target, accept_unavailable=accepted, tiered=tiered, stops=stops
    )
    if restarts:
        change = Change(release_steps=steps, feature_changes=())
    elif run_of is RunOf.DOWNGRADE:
        change = decide_downgrade(observed, request, all_findings(of_cluster))
    else:
        change = Change(release_steps=steps, feature_changes=levels if request.plans_features else ())
    path = (source, *(release_step.to_release for release_step in change.release_steps))
    racks = find_racks(cluster, observed.configs)
    limits = BatchLimits(max_size=request.max_batch_size, one_rack=cluster.one_rack_at_a_time)
    plan = Plan(
        cluster=cluster.name,
        cluster_id=state.cluster_id,
        direction=Direction(run_of.value),
        source=source,
        target=target,
        release_steps=tuple(with_batches(step, state.partitions, racks, limits) for step in change.release_steps),
        feature_changes=change.feature_changes,
        # A restart writes no file: what an operator wrote since takes effect, and nothing else.
        config_changes=() if restarts else config_changes(cluster, path, observed.configs, raises_levels=bool(levels)),
        findings=(),
        unsafe=request.unsafe,
        lowering=change.lowering,
        accept_unavailable=accepted,
        unchecked=find_unchecked_counters(cluster, state, tiered),
        other_claims=find_ended_claims(state),
    )
    stays: Collection[int] = ()
    if restarts:
        stays = stops or ()
    elif plan.lowering is Lowering.LIVE:
        stays = {node.node_id for node in cluster.controllers}
    releases = check_releases(cluster, state, stays=stays)
    of_cluster = tuple(releases if one.check is releases.check else one for one in of_cluster)
    checked = (*of_cluster, *check_change(observed, plan), *change.checked)
    if run_of is RunOf.UPGRADE:
        later = registration_findings(observed, plan, levels)
        checked = (*checked, REGISTRATIONS_CHECK.ran(later))
    if plan.lowering is Lowering.OFFLINE:
        checked = tuple(one.without(OF_ROLLS) for one in checked)
    return plan, checked
