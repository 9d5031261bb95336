"""The state of each step of a run, from its history: done, skipped with the reason, or open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka_rollout.report.run_report import StepLine, StepState
from kafka_rollout.run.events import Approval, Decision, Event, Planned, StepDone, StepsJumped, StepSkipped
from kafka_rollout.run.step_events import GatePassed, TrafficCompared
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.step import Events, Procedure, Service, Step, matches


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


def step_lines(procedure: Procedure, events: Events) -> tuple[StepLine, ...]:
    """Return every step except those of single nodes, and report and outcome, which follow the history."""
    omitted = {Service.REPORT, Service.OUTCOME}
    steps = [
        (task_id, step)
        for task_id, step in procedure
        if "*" not in task_id and not step.joins and step.service not in omitted
    ]
    traffic = [task_id for task_id, step in steps if step.service in {Service.START_TRAFFIC, Service.STOP_TRAFFIC}]
    found = {task_id: StepLine(id=task_id, label=step.label, state=StepState.OPEN) for task_id, step in steps}

    def mark(task_ids: Iterable[str], event: Event, state: StepState, reason: str = "") -> None:
        for task_id in found.keys() & set(task_ids):
            found[task_id] = replace(found[task_id], state=state, reason=reason, at=event.at)

    for event in events:
        mark(_done_by(event, steps), event, StepState.DONE)
        if isinstance(event, StepSkipped):
            mark(traffic if event.step in traffic else (event.step,), event, StepState.SKIPPED, event.reason)
        elif isinstance(event, StepsJumped):
            mark((event.step,), event, StepState.DONE)
            mark(_between(procedure, event.step, event.past), event, StepState.SKIPPED, event.reason)
    return tuple(found.values())


def _done_by(event: Event, steps: Iterable[tuple[str, Step]]) -> tuple[str, ...]:
    """Return the steps that an event completes. Gates and approvals have events of their own."""
    match event:
        case StepDone():
            return tuple(task_id for task_id, _ in steps if task_id == event.step)
        case GatePassed() if event.ref.node_id is None:
            return tuple(task_id for task_id, step in steps if step.gate == event.ref.kind)
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
