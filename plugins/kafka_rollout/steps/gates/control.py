"""Whether the next node step of a run can begin now: observe, then decide (`gates/control.py`).

The gate before a stop has these conditions first, so each caller of the gate pauses: the walk of a shell, the sensors
and triggers of a DAG, and the check right before the stop.
"""

from __future__ import annotations

from kafka_rollout.base.errors import StoppedError
from kafka_rollout.base.maintenance import parse_maintenance
from kafka_rollout.gates.check import Condition
from kafka_rollout.gates.control import pause_condition, window_condition
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.run.events import StoppedByOperator
from kafka_rollout.run.projections.control import find_pause, find_stop
from kafka_rollout.run.projections.node_times import expected_node_step_s
from kafka_rollout.run.projections.nodes import is_in_node_step
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import is_rollback_step


def check_begin(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep) -> tuple[Condition, ...]:
    """Return the conditions under which a node step begins; none if nothing can hold it.

    A node step that has begun is never held, nor are the other nodes of its batch. The maintenance window does not hold
    a rollback, which an approver decided. Raises StoppedError, and records it, if an operator asked for the end of the
    run.
    """
    terms, events = plan.terms, ports.run.events()
    if is_in_node_step(events, release_step.key):
        return ()
    if stop := find_stop(events):
        ports.run.record(StoppedByOperator(target=release_step.to_release))
        raise StoppedError(f"The run was {stop.text}", remedy="Continue it, or roll it back.")
    found: list[Condition] = []
    if pause := find_pause(events):
        found.append(pause_condition(pause.text, pause.at))
    maintenance = None if terms is None else parse_maintenance(terms.window, terms.freeze_days)
    if terms is not None and maintenance is not None and not is_rollback_step(plan, release_step):
        expected_s = expected_node_step_s(events, terms.soak_s)
        found.append(window_condition(maintenance, ports.clock.now(), expected_s))
    return tuple(found)
