"""The finding about the maintenance windows that a run needs."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_rollout.base.durations import duration
from kafka_rollout.base.findings import INFO, Check, CheckOf, Finding, FindingCode
from kafka_rollout.base.maintenance import Maintenance, refuse_never_open, refuse_too_long
from kafka_rollout.base.wording import count
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.batches import NODE_S

WINDOWS_NEEDED = FindingCode(
    "MAINTENANCE-WINDOWS",
    INFO,
    "The number of maintenance windows that the run needs, and its earliest end.",
    "No action needed, unless the end is too late. Then choose longer windows, a shorter soak or batches.",
)
WINDOWS_CHECK = Check(
    "maintenance-windows",
    "Maintenance windows",
    "control.md#maintenance-windows",
    (WINDOWS_NEEDED,),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.RESTART),
    needs=(),
)


def window_findings(
    plan: Plan, cluster: ClusterSpec, maintenance: Maintenance, soak_s: float, now: float
) -> Iterator[Finding]:
    """Yield the estimate, if nodes are replaced one by one. Raises UserError if no window opens, or none is long enough
    for a node step with the commands before its stop."""
    refuse_never_open(maintenance, now)
    commands_s = max(
        sum(cluster.node(node_id).commands_before_stop_s for node_id in node_ids)
        for step in plan.release_steps
        for node_ids in step.node_ids_together
    )
    refuse_too_long(maintenance, now, commands_s, NODE_S if plan.offline else NODE_S + soak_s)
    if plan.offline:
        return
    parts = [len(step.batches) or len(step.order) for step in plan.release_steps]
    found = maintenance.schedule(now, [NODE_S + soak_s] * sum(parts))
    steps = count(sum(parts), "node step" if sum(parts) == sum(len(s.order) for s in plan.release_steps) else "batch")
    yield WINDOWS_NEEDED.found(
        "maintenance windows",
        f"The run needs {count(found.windows, 'maintenance window')} for {steps} of about "
        f"{duration(NODE_S + soak_s)}. Its earliest end is {maintenance.at(found.ends_at)}, without the time of "
        f"approvals{' and of the commands before the stops' if commands_s else ''}.",
    )
