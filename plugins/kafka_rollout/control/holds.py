"""Whether the next node step of a run can begin now: observe, then decide (`gates/control.py`).

The gates before a stop have these conditions first, so each caller of a gate pauses: the walk of a shell, the sensors
and triggers of a DAG, and the check right before the stop. A step that is held raises HeldError, and its caller waits
in the gate that the error names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kafka_rollout.base.errors import StoppedError, TransientError
from kafka_rollout.base.findings import Checked
from kafka_rollout.base.maintenance import Maintenance, parse_maintenance
from kafka_rollout.control.approval import expected_outage_s, refuse_unproved
from kafka_rollout.gates.control import (
    OUTSIDE_CHECK,
    PAUSES_ONCE,
    RACK,
    Reading,
    evaluate,
    find_due_pause,
    outside_finding,
    pause_condition,
    planned_pause,
    waits_for_outside_alone,
    window_condition,
)
from kafka_rollout.gates.gate import Gate, GateCheck, GateCondition, GateKind
from kafka_rollout.model.plan import ReleaseStep
from kafka_rollout.model.topology import AppliesTo, OutsideCondition
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, at_once
from kafka_rollout.observation.node_steps import has_begun, is_rollback_step, stop_is_under_way
from kafka_rollout.observation.outage import stop_of_all_is_over, stop_of_all_is_under_way
from kafka_rollout.observation.run import NodeRun, ReadRun, Run
from kafka_rollout.planning.batches import NODE_S, find_racks
from kafka_rollout.run.events import Event, StoppedByOperator
from kafka_rollout.run.projections.nodes import (
    expected_commands_s,
    expected_node_step_s,
    has_acted_on_node,
    last_act_at,
    times_passed,
)
from kafka_rollout.run.projections.runs import (
    find_pause,
    find_pause_answer,
    find_stop,
    has_plan,
    nodes_since_pause,
)
from kafka_rollout.run.view import RunView

_POINTS: dict[GateKind, AppliesTo] = {
    GateKind.BEFORE_STOP: "before_stop",
    GateKind.CONTROLLERS_STOP: "before_stop",
    GateKind.NODES_STOP: "before_stop",
    GateKind.AFTER_START: "after_start",
}
# So often a gate passes whose condition from outside is not met right after; then the retries count.
_PASSES = 3
_NEXT_CHANGE = Gate(kind=GateKind.NEXT_CHANGE)


def check_outside(
    run: ReadRun, release_step: ReleaseStep | None, point: AppliesTo, *, not_before: float = 0.0
) -> tuple[GateCondition, ...]:
    """Return the conditions from outside that apply before a stop or after a start, with their values now.

    `release_step`: None for the stop of all nodes or controllers. A value from before the run's last stop or start says
    nothing about its effect, so it does not count, nor does one from before `not_before` (epoch seconds).
    """
    applying = _applying(run, release_step, point)
    if not applying:
        return ()
    readings = _read(run.ports, applying, max(not_before, last_act_at(run.history.events())))
    return tuple(evaluate(one, reading) for one, reading in zip(applying, readings, strict=True))


def outside_conditions(run: ReadRun, gate: Gate) -> tuple[OutsideCondition, ...]:
    """Return the conditions from outside of a gate."""
    point = _POINTS.get(gate.kind)
    return () if point is None else _applying(run, gate.release_step, point)


def find_outside(ports: ReadPorts, skipped: Sequence[str] = ()) -> Checked:
    """Evaluate each condition from outside once, for a plan or the check of an inventory."""
    known = [one for one in ports.cluster.conditions if one.name not in skipped]
    findings = (outside_finding(one, reading) for one, reading in zip(known, _read(ports, known), strict=True))
    return OUTSIDE_CHECK.ran(findings, unless="" if known else "The inventory has no condition from outside.")


def _applying(run: ReadRun, release_step: ReleaseStep | None, point: AppliesTo) -> tuple[OutsideCondition, ...]:
    """A rollback has none: the value can be bad because of the release that it removes."""
    if release_step is not None and is_rollback_step(run.plan, release_step):
        return ()
    skipped = () if run.plan.terms is None else run.plan.terms.skip_conditions
    return tuple(one for one in run.cluster.conditions if point in one.applies_to and one.name not in skipped)


def _read(ports: ReadPorts, conditions: Sequence[OutsideCondition], not_before: float = 0.0) -> list[Reading]:
    return at_once(partial(ports.outside.read, not_before=not_before), conditions)


class HeldError(TransientError):
    """What comes next waits in `gate`: for the end of a pause, the maintenance window or a condition from outside."""

    def __init__(self, sentence: str, *, remedy: str = "", gate: Gate = _NEXT_CHANGE) -> None:
        super().__init__(sentence, remedy=remedy)
        self.gate = gate


def due_pause(at: NodeRun, events: Sequence[Event]) -> str:
    """Return why the plan pauses before this node, and asks an approver; empty if it does not.

    A batch that has begun, as `has_begun`, ends before the pause, and so does one of which this run has done a node
    since the last pause. A node that somebody else moved to the release begins no batch.
    """
    terms = at.plan.terms
    if terms is None or not terms.pause_after or is_rollback_step(at.plan, at.release_step):
        return ""
    if has_begun(at.run, at.release_step, at.release_step.batch_of(at.node_id), events):
        return ""
    steps_done = nodes_since_pause(events, at.plan)
    if any(
        (at.key, node_id) in steps_done and has_acted_on_node(events, at.key, node_id)
        for node_id in at.release_step.batch_of(at.node_id)
    ):
        return ""
    if terms.pause_after in PAUSES_ONCE and find_pause_answer(events, at.plan) is not None:
        return ""
    done = [node_id for _, node_id in steps_done]
    compared = {*done[-1:], at.node_id} if done and terms.pause_after == RACK else set()
    configs = {
        node_id: at.ports.runtime.config(at.run.cluster.node(node_id)) for node_id in compared - at.ports.racks.keys()
    }
    read = find_racks(at.run.cluster, configs)
    at.ports.racks.update({node_id: read.get(node_id, "") for node_id in configs})
    step = at.plan.release_steps[0]
    first_batch = () if step.first_batch is None else step.batches[step.first_batch].node_ids
    return find_due_pause(terms.pause_after, done, at.node_id, at.ports.racks, first_batch=first_batch)


def refuse_unproved_pause(run: Run) -> None:
    """Raise RefusedError unless the answer that ended the last pause of the plan is proved, as `refuse_unproved`.

    If Airflow does not confirm it, the pause is due again.
    """
    if answer := find_pause_answer(run.history.events(), run.plan):
        refuse_unproved(run.ports, answer)


def ask_at_pause(at: NodeRun, events: Sequence[Event]) -> str:
    """Return the reason of `due_pause` with the values of conditions from outside, for the approver."""
    why = due_pause(at, events)
    if not why:
        return ""
    outside = check_outside(at.run, at.release_step, "before_stop")
    values = [f"{one.name}: {one.evidence}{'' if one.is_met else ' (not met: the next node waits)'}" for one in outside]
    return f"{why} Now: {'; '.join(values)}." if values else why


def refuse_held(
    run: Run,
    gate: Gate = _NEXT_CHANGE,
    what: str = "The next change",
    *,
    is_prepared: bool = False,
) -> None:
    """Raise HeldError while something holds what comes next, by default a change without a stop.

    As `check_begin`, with values of now. `is_prepared`: as for `Gate`; the caller waits in the gate without it.
    """
    seen = check_begin(run, replace(gate, is_prepared=is_prepared), not_before=run.ports.clock.now())
    refuse_unsafe_stop(run.ports, gate, seen, f"{what} cannot begin")


def refuse_unsafe_stop(ports: ReadPorts, gate: Gate, seen: GateCheck, what: str) -> None:
    """Raise TransientError unless the check passed; HeldError if the run waits in the gate again.

    `what`: the begin of the sentence.
    """
    if seen.passes:
        return
    waits = waits_for_outside_alone(seen, ports.cluster.conditions)
    sentence, remedy = f"{what} yet: {seen.waits_for}.", "Wait until the conditions are met, then repeat the step."
    if seen.is_held or (waits and times_passed(ports.run.events(), gate.ref) < _PASSES):
        raise HeldError(sentence, remedy=remedy, gate=gate)
    raise TransientError(sentence, remedy=remedy)


def end_if_stopped(run: Run, gate: Gate = _NEXT_CHANGE) -> None:
    """Raise StoppedError, and record it, if an operator asked for the end of the run.

    Every check of a gate begins here, so that a stop ends each wait: for its conditions, in the soak, in a pause.

    What leaves nodes down ends first: a node step before its start, and the steps after the stop of all nodes or
    controllers, until they have started them again.
    """
    events = run.history.events()
    if (stop := find_stop(events)) is None:
        return
    step = gate.release_step
    if gate.kind is not GateKind.AFTER_START and gate.node is not None:
        leaves_down = _has_begun(run, gate, events)
    else:
        leaves_down = stop_of_all_is_under_way(run) and not stop_of_all_is_over(run)
    if not leaves_down:
        run.history.record(StoppedByOperator(target=run.plan.target if step is None else step.to_release))
        raise StoppedError(f"The run was {stop.text}", remedy="Continue it, or roll it back.")


def end_before_step(ports: ClusterPorts) -> None:
    """Raise as `end_if_stopped` before a step begins.

    A run without a plan ends at the first step after it, and one with a node down in the node step that starts it.
    """
    events = ports.run.events()
    if find_stop(events) is not None and has_plan(events) and not RunView.of(events).down:
        end_if_stopped(Run(ports, ports.run.load_plan()))


def check_begin(run: Run, gate: Gate, *, not_before: float = 0.0) -> GateCheck:
    """Check whether a node step, the stop of all nodes or controllers, or another change begins, without an observation
    of the cluster. No condition: nothing can hold it. `not_before`: as for `check_outside`.

    While a pause or the window holds it, the check is held; for conditions from outside the gate timeout runs.

    A node step that has begun is never held, nor are the other nodes of its batch: one of them is down, goes down by
    this stop, or runs the new release. A node that was started again since its recorded stop is held as before a first
    one. While nodes are down by the stop of an offline or live downgrade there is no safe point: its steps must start
    them again. What follows these steps is held. The maintenance window and conditions from outside hold stops, but not
    those of a rollback, which an approver decided. Raises StoppedError as `end_if_stopped`.
    """
    terms, events, step = run.plan.terms, run.history.events(), gate.release_step
    found: list[GateCondition] = []

    def check(outside: tuple[GateCondition, ...] = ()) -> GateCheck:
        is_held = not all(condition.is_met for condition in found)
        conditions = (*found, *outside)
        return GateCheck(gate=gate.name, at=run.ports.clock.now(), conditions=conditions, is_held=is_held)

    if _has_begun(run, gate, events):
        return check()
    end_if_stopped(run, gate)
    if pause := find_pause(events):
        found.append(pause_condition(pause.text, pause.at))
    if gate.kind is GateKind.NEXT_CHANGE:
        return check()
    if gate.node is not None and (why := due_pause(NodeRun(run, *gate.subject), events)):
        found.append(planned_pause(why))
    maintenance = None if terms is None else parse_maintenance(terms.window, terms.freeze_days)
    if terms is not None and maintenance is not None and not (step and is_rollback_step(run.plan, step)):
        found.append(_check_window(run.ports, maintenance, gate, events, terms.soak_s))
    return check(check_outside(run, step, "before_stop", not_before=not_before))


def _check_window(
    ports: ReadPorts, maintenance: Maintenance, gate: Gate, events: Sequence[Event], soak_s: float
) -> GateCondition:
    now = ports.clock.now()
    if gate.is_prepared:
        return window_condition(maintenance, now, 0.0)
    if gate.node is not None:  # a batch runs the commands of one node after the other
        commands_s = sum(expected_commands_s(events, one.commands_before_stop_s) for one in (gate.node, *gate.together))
        return window_condition(maintenance, now, expected_node_step_s(events, soak_s), commands_s=commands_s)
    nodes = ports.cluster.controllers if gate.kind is GateKind.CONTROLLERS_STOP else ports.cluster.nodes
    commands_s = max(expected_commands_s(events, one.commands_before_stop_s) for one in nodes)
    expected_s = (expected_outage_s(ports) or (NODE_S, NODE_S))[1]
    return window_condition(maintenance, now, expected_s, "the stop", commands_s=commands_s)


def _has_begun(run: Run, gate: Gate, events: Sequence[Event]) -> bool:
    if gate.node is None:
        follows = gate.kind is GateKind.NEXT_CHANGE and stop_of_all_is_over(run)
        return not follows and stop_of_all_is_under_way(run)
    release_step, node = gate.subject
    batch = release_step.batch_of(node.node_id)
    return (
        gate.has_begun
        or has_begun(run, release_step, batch, events)
        or any(stop_is_under_way(NodeRun(run, release_step, run.cluster.node(node_id))) for node_id in batch)
    )
