"""The steps of a run as lines: those of its procedure, each with its state by the view of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from kafka_rollout.model.plan import Lowering, Plan, ReleaseStep
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.step import (
    ActStep,
    AnyStep,
    ApprovalStep,
    EachBatch,
    EachNode,
    GateStep,
    JoinStep,
    JumpStep,
    Procedure,
    ReplaceStep,
    ScanStep,
    Section,
    Service,
    ServiceStep,
)
from kafka_rollout.report.run_report import StepLine
from kafka_rollout.run.batch_progress import batch_progress
from kafka_rollout.run.events import STOP_TRAFFIC
from kafka_rollout.run.projections.open_batches import RollOf
from kafka_rollout.run.view import NodeStage, NodeView, RunView, StepState

_OMITTED = {Service.REPORT, Service.OUTCOME}  # they follow the history
_BATCHES = {
    (False, False): RollOf.PLAN,
    (False, True): RollOf.ROLLBACK,
    (True, False): RollOf.OFFLINE,
    (True, True): RollOf.OFFLINE_UNDO,
}
"""By whether the plan stops all nodes, and whether it goes back."""
_BEFORE_START = {NodeStage.WAITING, NodeStage.GATE_BEFORE, NodeStage.PREPARING, NodeStage.STOPPING, NodeStage.STOPPED}


def step_lines(procedure: Procedure, view: RunView, plan: Plan | None = None) -> tuple[StepLine, ...]:
    """Return every step that does something; the node steps of a release step are one line.

    A rollback or an undo is listed if it is decided or has begun. `plan`: None if there is none yet.
    """
    skipped = {} if plan is None else dict(_never_begin(procedure, view, plan))
    is_back = view.has_turned_back
    found: list[StepLine] = []
    for step_id, part, section in list_shown(procedure.parts):
        if isinstance(part, EachBatch | EachNode):
            line = _node_line(step_id, part, section, view, plan)
        else:
            line = _line(StepLine(id=step_id, label=part.label, state=StepState.OPEN), view)
        if line is None:
            continue
        if line.state is StepState.OPEN and step_id in skipped:
            line = replace(line, state=StepState.SKIPPED, reason=skipped[step_id])
        if section is None:
            found.append(_left_behind(line) if is_back else line)
        elif line.state is not StepState.OPEN or (is_back and _is_used(section, plan)):
            found.append(line)
    return tuple(found)


def _left_behind(line: StepLine) -> StepLine:
    """Return the line of a step that a rollback has left behind, if the step was not done. The traffic goes on."""
    if line.id == STOP_TRAFFIC or line.state not in {StepState.OPEN, StepState.BEGUN}:
        return line
    so_far = line.reason or ("Failed" if line.state is StepState.BEGUN else "")
    reason = f"{so_far}; the run is rolled back." if so_far else "The run is rolled back."
    return replace(line, state=StepState.SKIPPED, reason=reason)


def list_shown(
    parts: Sequence[AnyStep | EachBatch | EachNode | Section], prefix: str = "", decided: Section | None = None
) -> Iterator[tuple[str, AnyStep | EachBatch | EachNode, Section | None]]:
    """Yield (id, part, the section that runs on a decision) of what has a line."""
    for part in parts:
        if isinstance(part, Section):
            within = f"{prefix}{part.id}." if part.prefixes else prefix
            yield from list_shown(part.parts, within, part if part.on_decision else decided)
        elif isinstance(part, EachBatch):
            yield prefix.rstrip("."), part, decided
        elif isinstance(part, EachNode):
            yield (prefix + part.id).rpartition(".")[0], part, decided
        elif _is_shown(part):
            yield prefix + part.id, part, decided


def _is_shown(step: AnyStep) -> bool:
    match step:
        case JoinStep() | JumpStep() | ActStep(lists=True):
            return False
        case ServiceStep():
            return step.service not in _OMITTED
        case ActStep() | GateStep() | ReplaceStep() | ApprovalStep() | ScanStep():
            return True
        case _:
            assert_never(step)


def _never_begin(procedure: Procedure, view: RunView, plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the steps that the plan, or test traffic that did not start, will skip, with the reason."""
    for task_id, step in procedure:
        known = view.steps.get(task_id)
        starts_traffic = isinstance(step, ServiceStep) and step.service is Service.START_TRAFFIC
        if starts_traffic and known is not None and known.state is StepState.SKIPPED:
            yield STOP_TRAFFIC, known.reason
        if (
            isinstance(step, JumpStep)
            and step.jump.by_plan
            and (reason := step.jump.when(plan, Request(), view.events))
        ):
            for skipped in procedure.between(task_id, step.jump.past):
                yield skipped, reason


def _is_used(section: Section, plan: Plan | None) -> bool:
    """Return whether the plan uses a section that runs on a decision: nodes roll back, or an offline plan is undone."""
    undoes = any(isinstance(part, EachNode) for part in section.parts)
    return not undoes or (plan is not None and plan.lowering is Lowering.OFFLINE)


def _line(line: StepLine, view: RunView) -> StepLine:
    known = view.steps.get(line.id)
    return line if known is None else replace(line, state=known.state, reason=known.reason, at=known.at)


def _node_line(
    step_id: str, each: EachBatch | EachNode, section: Section | None, view: RunView, plan: Plan | None
) -> StepLine | None:
    """Return the line of the nodes of all batches, or after an offline step; None for a rollback that the plan does not
    have.
    """
    stops_all = isinstance(each, EachNode)
    label = each.step.label if isinstance(each, EachNode) else "Nodes"
    line = StepLine(id=step_id, label=label, state=StepState.OPEN)
    planned = _release_steps_of(plan, stops_all=stops_all)
    if plan is None or not planned:
        return _unplanned(line, plan) if section is None else None
    is_back = section is not None
    steps = tuple(one.reversed() for one in reversed(planned) if not one.restarts) if is_back else planned
    nodes = tuple(node for one in steps for node in view.nodes_of(one.key))
    if stops_all:  # not the offline step that stops all nodes
        nodes = tuple(one for one in nodes if one.stage not in _BEFORE_START)
    else:
        line = replace(line, label=_label(plan, steps, is_back=is_back))
    touched = [one for step in planned for one in view.nodes_of(step.key) if one.stopping_at is not None]
    total = len(touched) if is_back else sum(len(one.order) for one in planned)
    line = _of_nodes(line, nodes, total, view, "nodes" if len(steps) == 1 else "node steps")
    batches = batch_progress(view, plan, _BATCHES[stops_all, is_back])
    if batches is None or not batches.open or line.state not in {StepState.BEGUN, StepState.FAILED}:
        return line  # of a line that waits for an answer, the reason is the question
    return replace(line, reason=f"{line.reason}; {batches.sentence}" if line.reason else batches.sentence)


def _release_steps_of(plan: Plan | None, *, stops_all: bool) -> tuple[ReleaseStep, ...]:
    if plan is None or (plan.lowering is Lowering.OFFLINE) is not stops_all:
        return ()
    return plan.release_steps


def _unplanned(line: StepLine, plan: Plan | None) -> StepLine:
    if plan is None:
        return line
    why = (
        "The plan stops all nodes at once."
        if plan.lowering is Lowering.OFFLINE
        else "The plan has no such release step."
    )
    return replace(line, state=StepState.SKIPPED, reason=why)


def _label(plan: Plan, steps: Sequence[ReleaseStep], *, is_back: bool) -> str:
    if not plan.changes_release:
        return "Restart of the nodes"
    path = dict.fromkeys((steps[0].from_release, *(one.to_release for one in steps)))
    return f"{'Rollback of the nodes' if is_back else 'Nodes'} {' → '.join(map(str, path))}"


def _of_nodes(line: StepLine, nodes: Sequence[NodeView], total: int, view: RunView, of: str) -> StepLine:
    """Return the line with the state of its nodes, or of its own step if this failed or waits after their last news."""
    own = view.steps.get(line.id)
    last_at = max((one.since for one in nodes), default=0.0)
    if own is not None and own.state in {StepState.WAITING, StepState.FAILED} and own.at >= last_at:
        return _line(line, view)
    if not nodes:
        shown = _line(line, view)  # one task of several can be done
        return replace(shown, state=StepState.BEGUN) if shown.state is StepState.DONE else shown
    done = [one.since for one in nodes if one.stage is NodeStage.DONE]
    line = replace(line, reason=f"{len(done)} of {total} {of}")
    if nodes[-1].stage is NodeStage.FAILED:
        return replace(line, state=StepState.FAILED, at=last_at)
    if len(done) >= total:
        return replace(line, state=StepState.DONE, at=max(done))
    began_at = min(one.began_at or one.since for one in nodes)
    return replace(line, state=StepState.BEGUN, at=max(done, default=began_at))
