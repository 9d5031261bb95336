"""Plan a downgrade: levels first, then the binary."""

from __future__ import annotations

from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.planning.downgrade import WhereRefused, make_downgrade_plan
from kafka_rollout.domain.run.events import RunOf
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.observe import observe
from kafka_rollout.steps.planning.hosts import config_problems, java_versions, node_configs, releases_ahead
from kafka_rollout.steps.planning.upgrade import freeze, record_observed


def plan_downgrade(
    ports: ClusterPorts,
    target: Release,
    *,
    level: int | None = None,
    unsafe: bool = False,
    where_refused: WhereRefused = WhereRefused.STOP,
) -> Plan:
    """Observe, plan and freeze. The findings of the logs are added later.

    Raises UserError for a target or level that cannot be planned (nothing is recorded).
    """
    state = observe(ports)
    configs = node_configs(ports)
    plan = make_downgrade_plan(
        ports.cluster,
        ports.catalogue,
        state,
        target,
        level=level,
        unsafe=unsafe,
        where_refused=where_refused,
        configs=configs,
        config_problems=config_problems(ports, releases_ahead(ports, state, target, down=True), configs),
        java=java_versions(ports),
    )
    record_observed(ports, state)
    freeze(ports, plan, RunOf.DOWNGRADE)
    return plan
