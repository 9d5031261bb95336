"""Plan a downgrade, and weigh what its scans and its loss report say: findings of the same frozen plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka_rollout.domain.downgrade_findings import LOG_CODES
from kafka_rollout.domain.downgrade_path import hops_down
from kafka_rollout.domain.downgrade_planning import WhereRefused, make_downgrade_plan
from kafka_rollout.domain.errors import UserError
from kafka_rollout.domain.findings import Finding
from kafka_rollout.domain.plan import Plan
from kafka_rollout.domain.releases import Release
from kafka_rollout.domain.state import ClusterState
from kafka_rollout.steps.coordinator_logs import logs_findings, scan_before_roll
from kafka_rollout.steps.observe import observe
from kafka_rollout.steps.plan import config_problems, freeze, java_versions, node_configs, record_observed
from kafka_rollout.steps.workbench import Workbench

DOWNGRADE = "downgrade"  # what a run is of, in the record of its plan


def plan_downgrade(
    bench: Workbench,
    target: Release,
    *,
    level: int | None = None,
    unsafe: bool = False,
    where_refused: WhereRefused = WhereRefused.STOP,
) -> Plan:
    """Observe, plan and freeze. What lies in the logs is not part of it yet: see `weigh`.

    Raises UserError for a target or a level that cannot be planned for (nothing is recorded).
    """
    state = observe(bench)
    configs = node_configs(bench)
    plan = make_downgrade_plan(
        bench.cluster,
        bench.catalogue,
        state,
        target,
        level=level,
        unsafe=unsafe,
        where_refused=where_refused,
        configs=configs,
        config_problems=config_problems(bench, _path(bench, state, target), configs),
        java=java_versions(bench),
    )
    record_observed(bench, state)
    freeze(bench, plan, run_of=DOWNGRADE, unsafe=unsafe, offline=plan.offline)
    return plan


def is_downgrade(bench: Workbench) -> bool:
    """Whether the run is a downgrade's, by the record of its plan."""
    made = next((event for event in bench.run.events() if event.get("kind") == "plan"), {})
    return made.get("run_of") == DOWNGRADE


def weigh(bench: Workbench, codes: frozenset[str], findings: Iterable[Finding]) -> Plan:
    """The frozen plan with `findings` in place of those with `codes` that it had: a repeated scan counts once.

    Findings are no part of the plan's hash: it stays the same plan.
    """
    plan = bench.run.load_plan()
    weighed = replace(plan, findings=(*(f for f in plan.findings if f.code not in codes), *findings))
    bench.run.save_plan(weighed)
    return weighed


def weigh_coordinator_logs(bench: Workbench, plan: Plan) -> Plan:
    """What the run's scan of the coordinator logs means for the releases of the path; without its result that is
    unknown, and a blocker."""
    return weigh(bench, LOG_CODES, logs_findings(scan_before_roll(bench), plan))


def _path(bench: Workbench, state: ClusterState, target: Release) -> tuple[Release, ...]:
    known = [release for release in state.releases if release in bench.catalogue]
    if target not in bench.catalogue or not known:
        return ()
    try:
        return tuple(to for _, to, _ in hops_down(bench.catalogue, max(known), target))
    except UserError:
        return ()
