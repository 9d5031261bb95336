"""Whether the next node step of a run can begin now: observe, then decide (`gates/control.py`).

The gate before a stop has these conditions first, so each caller of the gate pauses: the walk of a shell, the sensors
and triggers of a DAG, and the check right before the stop.
"""

from __future__ import annotations

from kafka_rollout.base.maintenance import parse_maintenance
from kafka_rollout.gates.check import Condition
from kafka_rollout.gates.control import window_condition
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.run.projections.node_times import expected_node_step_s
from kafka_rollout.run.projections.nodes import is_in_node_step
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import is_rollback_step


def check_begin(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep) -> tuple[Condition, ...]:
    """Return the conditions under which a node step begins; none if nothing can hold it.

    A node step that has begun is never held, nor are the other nodes of its batch. The maintenance window does not hold
    a rollback, which an approver decided.
    """
    terms, events = plan.terms, ports.run.events()
    if terms is None or is_in_node_step(events, release_step.key):
        return ()
    found: list[Condition] = []
    maintenance = parse_maintenance(terms.window, terms.freeze_days)
    if maintenance is not None and not is_rollback_step(plan, release_step):
        expected_s = expected_node_step_s(events, terms.soak_s)
        found.append(window_condition(maintenance, ports.clock.now(), expected_s))
    return tuple(found)
