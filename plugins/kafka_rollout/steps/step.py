"""Step: one step of a procedure as data, and its state from the history of a run.

The DAG, the command line, progress, page and report read it. The state is done, running, failed, waiting, skipped with
a reason, or open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from logging import getLogger
from typing import Any, Protocol

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.time_limits import LOGS_OF_NODE_S, REPLACEMENT_S
from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.model.plan import Lowering, Plan, ReleaseStepPosition
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.request import Request
from kafka_rollout.report.run_report import StepLine, StepState
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Asked,
    Begun,
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
    RegistrationsRead,
    Stopped,
    Stopping,
    TrafficCompared,
)
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

Events = Sequence[Event]


class RunsAfter(StrEnum):
    """In which states of the steps before it a step runs. The values are Airflow's trigger rules."""

    SUCCESS = "all_success"
    SKIPPED = "none_failed"  # also after a skipped step
    ANYTHING = "all_done"  # also after a failed step


class Reaction(StrEnum):
    """What happens when a step fails."""

    FAIL = "fail"  # the run ends; continued, it begins with this step
    ASK = "ask"  # the approver keeps checking, retries or stops the run
    ASK_ROLL_BACK = "ask-roll-back"  # the approver keeps checking, retries or rolls back
    ASK_UNDO = "ask-undo"  # the approver retries, or restores the backups of an offline downgrade


class OnResume(StrEnum):
    """What a resumed run of the command line does with a step that it has finished. (A DAG clears tasks.)"""

    REPEAT = "repeat"  # the step observes first and acts only where something is left to do
    KEEP = "keep"
    KEEP_APPROVED = "keep-approved"  # repeated until the run has an approval


class Service(StrEnum):
    """Steps that the run's surroundings perform: they own processes and files outside the cluster."""

    START_TRAFFIC = "start-traffic"
    STOP_TRAFFIC = "stop-traffic"
    REPORT = "report"
    OUTCOME = "outcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How often a step is tried again after a transient error, and how long one try can take."""

    retries: int
    pause_s: float
    timeout_s: float


READS = Limits(retries=3, pause_s=5, timeout_s=300)  # a cluster that is being rolled does not answer every time
READS_LOGS = Limits(retries=3, pause_s=5, timeout_s=LOGS_OF_NODE_S)  # seconds for each node's metadata log
CHANGES = Limits(retries=6, pause_s=5, timeout_s=REPLACEMENT_S)  # every action is idempotent
CHANGES_LOGS = Limits(retries=6, pause_s=5, timeout_s=3 * LOGS_OF_NODE_S)
REHEARSES = Limits(retries=1, pause_s=5, timeout_s=3 * 3600)
SCANS = Limits(retries=1, pause_s=5, timeout_s=2 * 3600)  # the job itself waits a minute for a restarting broker


class SkippedStepError(Exception):
    """An action found that it cannot run here. The step counts as skipped, with this reason, and the run continues."""


class Log(Protocol):
    """Where an action writes details: the log of Airflow's task, or Python's."""

    def info(self, msg: str, /, *args: object) -> object: ...

    def warning(self, msg: str, /, *args: object) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCall:
    """What an action gets.

    `begun`: how the DAG run began; None on the command line. `results`: what actions leave for the caller, by id of
    their step. `on_progress`: shows a line of a long action; None writes it to the log.
    """

    ports: ClusterPorts
    request: Request
    plan_or_none: Plan | None = None
    begun: Begun | None = None
    log: Log = field(default=getLogger(__name__))
    on_progress: Callable[[str], None] | None = None
    results: dict[str, Any] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        """The run's frozen plan. Raises UserError before the plan is made."""
        if self.plan_or_none is None:
            raise UserError(f"Run {self.ports.run_id} has no plan.", remedy="Start a new run.")
        return self.plan_or_none


Act = Callable[[StepCall], Any]  # the result is plain data: an XCom


class Condition(Protocol):
    """Why a step is skipped, in a sentence; None if it is not. `plan` is None before the plan is made."""

    def __call__(self, plan: Plan | None, request: Request, events: Events, /) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What an approver is asked.

    `body` is Markdown, identical each time for the same plan. `check` reads the cluster before: it raises what
    forbids the approval, and returns the reason why no approval is needed, or None.
    """

    of: ApprovalOf
    subject: Callable[[Plan], str]
    body: Callable[[StepCall], str]
    check: Callable[[StepCall], str | None]
    offers_roll_back: bool = False  # where the plan rolls nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """Skips everything after this step up to and including `past`, if `when` returns a reason.

    `by_plan`: the reason depends on the plan alone, so that it is known before the step.
    """

    past: str
    when: Condition
    by_plan: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. It has an action, a gate, an approval, a scan or a service; or it only joins or jumps.

    `id` is the task's id; it also names the step in events and reports. `label` is a noun phrase, `progress` what the
    run is doing (of a gate: what it waits for), `doc` Markdown. `scan` is the file that keeps the result.
    `proves`: a run that changed levels is finished only if this gate passed. `monitored`: groups are watched, and test
    traffic runs if the run requests it, while the step acts. `files`: what the step leaves in the run's folder.
    `changes`: the action changes the cluster, so an operator's pause or stop ends the run before it.
    """

    id: str
    label: str
    doc: str
    progress: str = ""
    act: Act | None = None
    gate: GateKind | None = None
    approval: ApprovalRequest | None = None
    scan: str | None = None
    service: Service | None = None
    jump: Jump | None = None
    skip: Condition = field(default=lambda plan, request, events: None)
    limits: Limits = READS
    runs_after: RunsAfter = RunsAfter.SUCCESS
    on_failure: Reaction = Reaction.FAIL
    on_resume: OnResume = OnResume.REPEAT
    proves: bool = False
    monitored: bool = False
    changes: bool = False
    files: tuple[str, ...] = ()

    @property
    def joins(self) -> bool:
        """Whether the step does nothing but wait for the steps before it."""
        return not any((self.act, self.gate, self.approval, self.scan, self.service, self.jump))


@dataclass(frozen=True, slots=True, kw_only=True)
class EachNode:
    """Steps that run for one node after the other.

    `position`: the release step of the plan; None for all nodes at once (offline), where `steps` has one gate and
    its id is followed by the node's name. `group` is part of the ids of a rollback. `in_one_task`: the graph has one
    task for all nodes, also for a small cluster, because few plans have such a release step.
    """

    steps: tuple[Step, ...]
    position: ReleaseStepPosition | None = None
    group: str = ""
    label: str = ""
    is_rollback: bool = False
    brokers_first: bool = False
    in_one_task: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Steps that belong together: a group of the graph.

    `prefixes`: the group's id begins the ids of its steps. `on_decision`: it runs only if an approver decided so, and
    the procedure continues without it.
    """

    id: str
    doc: str
    parts: tuple[Step | EachNode | Section, ...]
    prefixes: bool = False
    on_decision: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """All steps of a kind of run, in their order. `dry_run_body`: Markdown of the plan, shown after a dry run."""

    name: str
    parts: tuple[Step | Section, ...]
    dry_run_body: Callable[[StepCall], str]

    def __iter__(self) -> Iterator[tuple[str, Step]]:
        """Yield (task id, step) in their order; a step of each node once, with `*` for the node."""
        yield from _walk(self.parts, "")

    def node_groups(self) -> Iterator[tuple[str, EachNode]]:
        """Yield (id without the node, steps) of the steps that run for each node, in their order."""
        yield from _walk_node_groups(self.parts, "")

    @property
    def proofs(self) -> tuple[GateKind, ...]:
        """Return the gates that prove changed levels: without them a run is not finished."""
        return tuple(step.gate for _, step in self if step.proves and step.gate is not None)

    def for_cluster(self, cluster: ClusterSpec) -> Procedure:
        """Return the steps that can run on a cluster: without a runtime, those of a dry run."""
        if cluster.manages_nodes or not any("*" in task_id for task_id, _ in self):
            return self
        jumps = [part.jump if isinstance(part, Step) else None for part in self.parts]
        begin, past = next((index, jump.past) for index, jump in enumerate(jumps) if jump is not None)
        end = next(index for index, part in enumerate(self.parts) if part.id == past)
        return replace(self, parts=(*self.parts[:begin], *self.parts[end + 1 :]))

    def find(self, task_id: str) -> Step | None:
        """Return the step of a task; None if it belongs to another procedure."""
        return next((step for pattern, step in self if matches(pattern, task_id)), None)


def matches(pattern: str, task_id: str) -> bool:
    """Return whether a task is the step with this id; `*` stands for a node's name."""
    before, star, after = pattern.partition("*")
    if not star:
        return task_id == pattern
    return len(task_id) > len(before + after) and task_id.startswith(before) and task_id.endswith(after)


def node_group_of(pattern: str) -> str:
    """Return the id of the node group of a task id with `*`, as `Procedure.node_groups` has it."""
    return pattern.partition("*")[0].rstrip("._")


def _walk_node_groups(parts: Sequence[Step | EachNode | Section], prefix: str) -> Iterator[tuple[str, EachNode]]:
    for part in parts:
        if isinstance(part, Section):
            yield from _walk_node_groups(part.parts, f"{prefix}{part.id}." if part.prefixes else prefix)
        elif isinstance(part, EachNode):
            yield (f"{prefix}{part.group}" if part.position else f"{prefix}{part.steps[0].id}").rstrip("."), part


def _walk(parts: Sequence[Step | EachNode | Section], prefix: str) -> Iterator[tuple[str, Step]]:
    for part in parts:
        if isinstance(part, Step):
            yield prefix + part.id, part
        elif isinstance(part, Section):
            yield from _walk(part.parts, f"{prefix}{part.id}." if part.prefixes else prefix)
        else:
            for step in part.steps:
                if part.position is None:
                    yield f"{prefix}{step.id}_*", step
                else:
                    yield f"{prefix}{f'{part.group}.' if part.group else ''}*.{step.id}", step


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
    undoes = plan is not None and plan.lowering is Lowering.OFFLINE
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
    if plan is not None and (plan.lowering is Lowering.OFFLINE) is (each.position is None):
        planned = plan.release_step_at(each.position or ReleaseStepPosition.TARGET)
    if planned is None:
        stops_all = plan is not None and plan.lowering is Lowering.OFFLINE
        reason = "The plan stops all nodes at once." if stops_all else "The plan has no such release step."
        if is_back:
            return None
        state, reason = (StepState.OPEN, "") if plan is None else (StepState.SKIPPED, reason)
        return StepLine(id=group, label=label, state=state, reason=reason)
    release_step = planned.reversed() if is_back else planned
    verb = "Rollback of the nodes" if is_back else "Restart of the nodes" if planned.restarts else "Nodes"
    if plan is not None and plan.changes_release and planned.restarts:
        verb = "Second restart of nodes"
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
            case RegistrationsRead(release_step=release_step.key):
                done |= {*event.seen.complete}
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
