"""Plan a downgrade: levels first, then the binary."""

from __future__ import annotations

from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.planning.downgrade import WhereRefused, make_downgrade_plan
from kafka_rollout.steps.common.cluster_ports import Workbench
from kafka_rollout.steps.common.observe import observe
from kafka_rollout.steps.planning.hosts import config_problems, java_versions, node_configs, releases_ahead
from kafka_rollout.steps.planning.upgrade import freeze, kind_of_run, record_observed

DOWNGRADE = "downgrade"  # what a run is of, in the record of its plan


def plan_downgrade(
    bench: Workbench,
    target: Release,
    *,
    level: int | None = None,
    unsafe: bool = False,
    where_refused: WhereRefused = WhereRefused.STOP,
) -> Plan:
    """Observe, plan and freeze. What lies in the logs is not part of it yet (steps.weighing).

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
        config_problems=config_problems(bench, releases_ahead(bench, state, target, down=True), configs),
        java=java_versions(bench),
    )
    record_observed(bench, state)
    freeze(bench, plan, run_of=DOWNGRADE, unsafe=unsafe, offline=plan.offline)
    return plan


def is_downgrade(bench: Workbench) -> bool:
    """Whether the run is a downgrade's, by the record of its plan."""
    return kind_of_run(bench.run.events()) == DOWNGRADE
