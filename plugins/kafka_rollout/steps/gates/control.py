"""Whether the next node step of a run can begin now: observe, then decide (`gates/control.py`).

The gate before a stop has these conditions first, so each caller of the gate pauses: the walk of a shell, the sensors
and triggers of a DAG, and the check right before the stop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_rollout.base.errors import RefusedError, StoppedError
from kafka_rollout.base.maintenance import parse_maintenance
from kafka_rollout.gates.check import Condition
from kafka_rollout.gates.control import RACK, find_due_pause, pause_condition, planned_pause, window_condition
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.planning.batches import find_racks
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Event, StoppedByOperator
from kafka_rollout.run.projections.control import find_pause, find_stop, nodes_since_pause
from kafka_rollout.run.projections.node_times import expected_node_step_s
from kafka_rollout.run.projections.nodes import is_in_node_step
from kafka_rollout.run.projections.offline import stop_has_begun
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import is_rollback_step
from kafka_rollout.steps.common.outside import check_outside


def due_pause(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec, events: Sequence[Event]
) -> str:
    """Return why the plan pauses before this node, and asks an approver; empty if it does not.

    A batch that is split and has begun ends before the pause.
    """
    terms = plan.terms
    if terms is None or not terms.pause_after or is_rollback_step(plan, release_step):
        return ""
    if is_in_node_step(events, release_step.key, release_step.batch_of(node.node_id)):
        return ""
    steps_done = nodes_since_pause(events, plan)
    if any((release_step.key, node_id) in steps_done for node_id in release_step.batch_of(node.node_id)):
        return ""
    done = [node_id for _, node_id in steps_done]
    compared = {*done[-1:], node.node_id} if terms.pause_after == RACK else ()
    configs = {node_id: ports.runtime.config(ports.cluster.node(node_id)) for node_id in compared}
    return find_due_pause(terms.pause_after, done, node.node_id, defaultdict(str, find_racks(ports.cluster, configs)))


def ask_at_pause(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec, events: Sequence[Event]
) -> str:
    """Return the reason of `due_pause` with the values of conditions from outside, for the approver."""
    why = due_pause(ports, plan, release_step, node, events)
    if not why:
        return ""
    outside = check_outside(ports, plan, release_step, "before_stop")
    values = [f"{one.name}: {one.evidence}{'' if one.is_met else ' (not met: the next node waits)'}" for one in outside]
    return f"{why} Now: {'; '.join(values)}." if values else why


def refuse_controlled(ports: ClusterPorts, plan: Plan) -> None:
    """Check the requests of operators before a step that changes the cluster without a gate before a stop.

    Raises StoppedError, and records it, if an operator asked for the end of the run; RefusedError while it is paused.
    Once an offline or live downgrade has begun its stop there is no safe point: its steps must start the nodes again.
    """
    events = ports.run.events()
    if stop_has_begun(events):
        return
    _end_if_stopped(ports, events, plan.target)
    if pause := find_pause(events):
        raise RefusedError(
            f"The run is {pause.text}. It begins no step that changes the cluster.",
            remedy="Resume the run, then repeat the step (in a DAG: clear its task).",
        )


def _end_if_stopped(ports: ClusterPorts, events: Sequence[Event], target: Release) -> None:
    if stop := find_stop(events):
        ports.run.record(StoppedByOperator(target=target))
        raise StoppedError(f"The run was {stop.text}", remedy="Continue it, or roll it back.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The conditions under which a node step begins. `pauses`: while one of them is not met, the run pauses.

    `outside`: conditions from outside, for which the gate timeout runs.
    """

    pauses: tuple[Condition, ...] = ()
    outside: tuple[Condition, ...] = ()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return (*self.pauses, *self.outside)

    @property
    def is_held(self) -> bool:
        return not all(condition.is_met for condition in self.pauses)


def check_begin(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec, *, not_before: float = 0.0
) -> Begin:
    """Return the conditions under which a node step begins; none if nothing can hold it. `not_before`: as for
    `check_outside`.

    A node step that has begun is never held, nor are the other nodes of its batch. The maintenance window and
    conditions from outside do not hold a rollback, which an approver decided. Raises StoppedError, and records it, if
    an operator asked for the end of the run.
    """
    terms, events = plan.terms, ports.run.events()
    if is_in_node_step(events, release_step.key, release_step.batch_of(node.node_id)):
        return Begin()
    _end_if_stopped(ports, events, release_step.to_release)
    found: list[Condition] = []
    if pause := find_pause(events):
        found.append(pause_condition(pause.text, pause.at))
    if why := due_pause(ports, plan, release_step, node, events):
        found.append(planned_pause(why))
    maintenance = None if terms is None else parse_maintenance(terms.window, terms.freeze_days)
    if terms is not None and maintenance is not None and not is_rollback_step(plan, release_step):
        expected_s = expected_node_step_s(events, terms.soak_s)
        found.append(window_condition(maintenance, ports.clock.now(), expected_s))
    outside = check_outside(ports, plan, release_step, "before_stop", not_before=not_before)
    return Begin(pauses=tuple(found), outside=outside)
