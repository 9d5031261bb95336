"""The state of each step of a run, from its history: done, running, failed, waiting, skipped with a reason, or open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka_rollout.gates.check import GateKind, GateRef
from kafka_rollout.model.plan import Plan, ReleaseStepPosition
from kafka_rollout.planning.request import Request
from kafka_rollout.report.run_report import StepLine, StepState
from kafka_rollout.run.events import (
    Approval,
    Asked,
    Decision,
    Event,
    Planned,
    RolledBack,
    StepDone,
    StepsJumped,
    StepSkipped,
    TaskFailed,
)
from kafka_rollout.run.projections.approvals import open_question, subject_of
from kafka_rollout.run.projections.runs import rolls_back
from kafka_rollout.run.step_events import (
    GateChecked,
    GateEnded,
    GateFailed,
    GatePassed,
    NodeEvent,
    Stopped,
    Stopping,
    TrafficCompared,
)
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.step import EachNode, Events, Procedure, Service, Step, matches, node_group_of


def record_done(ports: ClusterPorts, task_id: str) -> None:
    """Record that a step is done. Gates and approvals have events of their own."""
    ports.run.record(StepDone(step=task_id))


def record_skipped(ports: ClusterPorts, task_id: str, reason: str) -> None:
    """Record why a step was skipped."""
    ports.run.record(StepSkipped(step=task_id, reason=reason))


def record_jump(ports: ClusterPorts, task_id: str, past: str, reason: str) -> None:
    """Record why a step skipped everything after it up to and including `past`."""
    ports.run.record(StepsJumped(step=task_id, past=past, reason=reason))


def has_finished(events: Events, task_id: str) -> bool:
    """Return whether the run has done the step since its current plan was made."""
    done, plan = False, ""
    for event in events:
        if isinstance(event, Planned) and event.plan_hash != plan:
            done, plan = done and not plan, event.plan_hash
        elif isinstance(event, StepDone) and event.step == task_id:
            done = True
    return done


def step_lines(procedure: Procedure, events: Events, plan: Plan | None = None) -> tuple[StepLine, ...]:
    """Return every step that does something, the node steps of a release step as one line, without report and outcome,
    which follow the history. A rollback or an undo is listed if it is decided or has begun.

    `plan`: for the number of nodes; None if there is none yet.
    """
    omitted = {Service.REPORT, Service.OUTCOME}
    groups = dict(procedure.node_groups())
    found: dict[str, StepLine] = {}
    for task_id, step in procedure:
        if "*" in task_id:
            group = node_group_of(task_id)
            if (line := _nodes_line(group, groups[group], step, events, plan)) is not None:
                found.setdefault(group, line)
        elif not step.joins and step.jump is None and step.service not in omitted:
            found[task_id] = StepLine(id=task_id, label=step.label, state=StepState.OPEN)
    jumps = [(task_id, step.jump) for task_id, step in procedure if step.jump is not None and step.jump.by_plan]
    for task_id, jump in jumps if plan is not None else ():
        if reason := jump.when(plan, Request(), events):
            for skipped in found.keys() & set(_between(procedure, task_id, jump.past)):
                found[skipped] = replace(found[skipped], state=StepState.SKIPPED, reason=reason)
    steps = [(task_id, step) for task_id, step in procedure if task_id in found]
    traffic = [task_id for task_id, step in steps if step.service in {Service.START_TRAFFIC, Service.STOP_TRAFFIC}]

    def mark(task_ids: Iterable[str], event: Event, state: StepState, reason: str = "") -> None:
        known = found.keys() & set(task_ids)
        if isinstance(event, GateChecked | GateEnded):  # steps with the same gate: the run has skipped the others
            known = {one for one in known if found[one].state is not StepState.SKIPPED} or known
        for task_id in known:
            found[task_id] = replace(found[task_id], state=state, reason=reason, at=event.at)

    asked_for = ""  # the line of the last request
    for event in events:
        mark(_done_by(event, steps), event, StepState.DONE)
        match event:
            case StepSkipped():
                mark(traffic if event.step in traffic else (event.step,), event, StepState.SKIPPED, event.reason)
            case StepsJumped():
                mark(_between(procedure, event.step, event.past), event, StepState.SKIPPED, event.reason)
            case Asked():
                asked_for = _line_of(procedure, event.task_id)
            case TaskFailed():
                mark((_line_of(procedure, event.task),), event, StepState.FAILED, event.sentence)
            case GateChecked() if event.ref.node_id is None:
                # A gate that has passed is checked once more right before the act.
                again = {
                    one for one in _of_gate(event, steps) if event.check.passes and found[one].state is StepState.DONE
                }
                mark({*_of_gate(event, steps)} - again, event, StepState.RUNNING, event.check.waits_for)
            case GateFailed() if event.ref.node_id is None:
                mark(_of_gate(event, steps), event, StepState.FAILED, event.message)
    if (question := open_question(events)) is not None:
        asked = question[1]
        mark((_line_of(procedure, asked.task_id),), asked, StepState.WAITING, subject_of(asked))
    last = next((one for one in reversed(events) if isinstance(one, RolledBack | Approval | Stopping)), None)
    if not rolls_back(events) and not isinstance(last, RolledBack):
        return tuple(line for line in found.values() if line.state is not StepState.OPEN or not _on_decision(line.id))
    undoes = plan is not None and plan.offline
    for line in found.values():
        if not _on_decision(line.id) and line.id not in traffic and line.state in {StepState.OPEN, StepState.RUNNING}:
            so_far = line.reason or ("Failed" if line.id == asked_for else "")
            reason = f"{so_far}; the run is rolled back." if so_far else "The run is rolled back."
            found[line.id] = replace(line, state=StepState.SKIPPED, reason=reason)
    unused = "roll_back." if undoes else "offline.undo."
    return tuple(line for line in found.values() if line.state is not StepState.OPEN or not line.id.startswith(unused))


def _line_of(procedure: Procedure, task_id: str) -> str:
    """Return the id of the line that shows a task. One task can replace all nodes of a release step."""
    groups = [group for group, _ in procedure.node_groups()]
    within = next((group for group in groups if task_id.startswith(f"{group.partition('.')[0]}.")), task_id)
    pattern = next((pattern for pattern, _ in procedure if matches(pattern, task_id)), within)
    return node_group_of(pattern) if "*" in pattern else pattern


def _on_decision(line_id: str) -> bool:
    """Return whether the line is of a rollback or an undo, which runs only if an approver decided so."""
    return line_id.startswith(("roll_back.", "offline.undo."))


def _nodes_line(group: str, each: EachNode, step: Step, events: Events, plan: Plan | None) -> StepLine | None:
    """Return the line of the node steps of one release step; None for a rollback that the plan does not have."""
    is_back = _on_decision(group)
    label = step.label if each.position is None else "Nodes"
    planned = None
    if plan is not None and plan.offline is (each.position is None):
        planned = plan.release_step_at(each.position or ReleaseStepPosition.TARGET)
    if planned is None:
        stops_all = plan is not None and plan.offline
        reason = "The plan stops all nodes at once." if stops_all else "The plan has no such release step."
        if is_back:
            return None
        state, reason = (StepState.OPEN, "") if plan is None else (StepState.SKIPPED, reason)
        return StepLine(id=group, label=label, state=state, reason=reason)
    release_step = planned.reversed() if is_back else planned
    verb = "Rollback of the nodes" if is_back else "Restart of the nodes" if planned.restarts else "Nodes"
    way = "" if planned.restarts else f" {release_step.from_release} → {release_step.to_release}"
    label = step.label if each.position is None else f"{verb}{way}"
    total = len(planned.order)
    if is_back:
        total = len({e.node_id for e in events if isinstance(e, Stopping) and e.release_step == planned.key})
    state, at, done = StepState.OPEN, None, set[int | None]()
    for event in events:
        match event:
            case GatePassed(
                ref=GateRef(kind=GateKind.AFTER_START, release_step=release_step.key, node_id=int(node_id))
            ):
                done.add(node_id)
                state, at = StepState.DONE if len(done) >= total else StepState.RUNNING, event.at
            case GateFailed(ref=GateRef(release_step=release_step.key)):
                state, at = StepState.FAILED, event.at
            case Stopping() | Stopped() if each.position is None:  # of the offline step that stops all nodes
                continue
            case GateChecked(ref=GateRef(release_step=release_step.key)) | NodeEvent(release_step=release_step.key):
                state, at = (state, at) if state is StepState.DONE else (StepState.RUNNING, at or event.at)
    reason = f"{len(done)} of {total} nodes" if state is not StepState.OPEN else ""
    return StepLine(id=group, label=label, state=state, reason=reason, at=at)


def _of_gate(event: GateChecked | GateEnded, steps: Iterable[tuple[str, Step]]) -> tuple[str, ...]:
    return tuple(task_id for task_id, step in steps if step.gate is event.ref.kind)


def _done_by(event: Event, steps: Iterable[tuple[str, Step]]) -> tuple[str, ...]:
    """Return the steps that an event completes. Gates and approvals have events of their own."""
    match event:
        case StepDone():
            return tuple(task_id for task_id, _ in steps if task_id == event.step)
        case GatePassed() if event.ref.node_id is None:
            return _of_gate(event, steps)
        case Approval() if event.decision == Decision.APPROVED:
            return tuple(task_id for task_id, step in steps if step.approval and step.approval.of == event.what)
        case TrafficCompared():
            return tuple(task_id for task_id, step in steps if step.service is Service.STOP_TRAFFIC)
        case _:
            return ()


def _between(procedure: Procedure, task_id: str, past: str) -> tuple[str, ...]:
    ids = [found for found, _ in procedure]
    end = max((index for index, found in enumerate(ids) if matches(past, found) or found == past), default=-1)
    return tuple(ids[ids.index(task_id) + 1 : end + 1]) if task_id in ids else ()
