"""The status of a cluster for machines: the run that matters now, what it waits for, and what an operator must do.

Pure: the caller reads histories and lock, and passes the time in. The JSON form is in docs/cluster-status.schema.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kafka_rollout.base.durations import iso
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.lease import CallState, Lock
from kafka_rollout.base.tones import Tone
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.run_of import ROLLBACK, SIGNED, RunOf
from kafka_rollout.report.run_report import Outcome, StepLine
from kafka_rollout.run.batch_progress import BatchProgress, current_batches
from kafka_rollout.run.estimates import goes_back, has_acted, is_done
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Asked,
    Begun,
    Decision,
    PauseAsked,
    Planned,
    StopAsked,
    TakenOver,
)
from kafka_rollout.run.projections.approvals import asks_for_decision, who_can_answer
from kafka_rollout.run.projections.runs import QUIET_S, RunEnd
from kafka_rollout.run.step_events import Finalized, Finalizing, Started, Stopping
from kafka_rollout.run.view import GateState, RunView, StepState, subject_of

FORMAT = 1


class Phase(StrEnum):
    """The values are part of the published format. tools/reference_pages.py writes their meaning into docs/."""

    IDLE = "idle"
    PLANNING = "planning"
    WAITING_FOR_APPROVAL = "waiting-for-approval"
    ROLLING = "rolling"
    ROLLING_BACK = "rolling-back"
    WAITING_FOR_DECISION = "waiting-for-decision"
    FINALIZING = "finalizing"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"
    ROLLED_BACK = "rolled-back"
    REFUSED = "refused"
    DRY_RUN = "dry-run"
    UNKNOWN = "unknown"


WAITS = frozenset({Phase.WAITING_FOR_APPROVAL, Phase.WAITING_FOR_DECISION})
NEEDS_HUMAN = WAITS | {Phase.PAUSED, Phase.FAILED, Phase.UNKNOWN}
ENDED = frozenset({Phase.FINISHED, Phase.ROLLED_BACK, Phase.REFUSED, Phase.DRY_RUN})


PHASE_TONES: Mapping[Phase, Tone] = {
    Phase.IDLE: Tone.SOFT,
    Phase.PLANNING: Tone.NOW,
    Phase.WAITING_FOR_APPROVAL: Tone.NOW,
    Phase.ROLLING: Tone.NOW,
    Phase.ROLLING_BACK: Tone.FAIR,
    Phase.WAITING_FOR_DECISION: Tone.FAIR,
    Phase.FINALIZING: Tone.NOW,
    Phase.PAUSED: Tone.FAIR,
    Phase.FINISHED: Tone.GOOD,
    Phase.FAILED: Tone.BAD,
    Phase.ROLLED_BACK: Tone.FAIR,
    Phase.REFUSED: Tone.FAIR,
    Phase.DRY_RUN: Tone.SOFT,
    Phase.UNKNOWN: Tone.FAIR,
}
"""Of a run that has no node down; see `ClusterStatus.tone`."""


class Truth(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCondition:
    """A condition as Kubernetes has them."""

    type: str
    status: Truth
    reason: str
    message: str
    since: str | None
    """ISO 8601, UTC; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    what: str
    since: str
    who: tuple[str, ...]
    """Airflow's ids of those who can answer, or one sentence."""
    until: str | None
    """None without a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Node steps; in a rollback those of the nodes that return."""

    done: int
    left: int | None
    """None without a plan."""
    total: int | None
    """None without a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockStatus:
    """`holder` and `purpose` are empty for a reader without the right to see the run."""

    holder: str
    number: int | None
    """Of the run; None before its first event, too."""
    purpose: str
    expires: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusNode:
    id: int
    name: str
    release_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """Times: ISO 8601, UTC. A value that does not exist is None. Keys are added, and not renamed, in one format."""

    cluster: str
    phase: Phase
    needs_human: bool
    run: str | None = None
    """Its id, for programs and links."""
    number: int | None = None
    """What the run is called."""
    dag: str | None = None
    kind: str | None = None
    source_release: str | None = None
    target_release: str | None = None
    step: str | None = None
    node: StatusNode | None = None
    nodes: Nodes = Nodes(done=0, left=None, total=None)
    batches: BatchProgress | None = None
    """Of the roll, or of its rollback; None before the first batch and after the end."""
    conditions: tuple[StatusCondition, ...]
    waits_for: Waiting | None = None
    next_action: str
    lock: LockStatus | None
    started: str | None = None
    started_by: str | None = None
    updated: str | None = None
    observed: str
    format: int = FORMAT

    @property
    def tone(self) -> Tone:
        """A node that is down while the run needs a human is damage."""
        is_down = any(one.type == "NodeStopped" and one.status is Truth.TRUE for one in self.conditions)
        return Tone.BAD if is_down and self.phase in NEEDS_HUMAN else PHASE_TONES[self.phase]

    @property
    def way(self) -> str:
        """The releases of the run: `3.9.1 → 4.3.1`, `on 4.3.1` without another release, empty before the plan."""
        if not self.source_release or not self.target_release:
            return ""
        if self.source_release == self.target_release:
            return f"on {self.target_release}"
        return f"{self.source_release} → {self.target_release}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document."""
        document: dict[str, Any] = {**to_json(self), "tone": self.tone.value}
        return {"format": document.pop("format"), **document}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run as it was read."""

    run_id: str
    number: int = 0
    """What it is called, in texts and commands; 0 before its first event."""
    view: RunView = field(default_factory=RunView)
    plan: Plan | None = None
    end: RunEnd | None = None
    steps: tuple[StepLine, ...] = ()
    """The steps of its procedure."""
    has_lock: bool = False
    call: CallState = CallState.NONE
    """The process of its newest command."""
    command: str = ""
    """The command that continues it in a shell."""
    problem: str = ""
    """Why its history cannot be read; then the other fields are empty."""

    @property
    def name(self) -> str:
        """What follows the word *run*, and --run: its number, or its id before its first event."""
        return str(self.number or self.run_id)

    @property
    def current_end(self) -> RunEnd | None:
        """The end by the report, if nothing happened since."""
        return self.end if self.end is not None and self.end.is_newest(self.view.last_at) else None

    @property
    def is_fenced(self) -> bool:
        """Whether the run does nothing by itself.

        An approver broke its lock, an operator stopped it, it ended in Airflow, or its process was killed.
        """
        if self.call is CallState.KILLED or self.view.state_in_airflow:
            return True
        return (self.view.lock_is_broken or self.view.ended_by_operator) and not self.has_lock

    @property
    def has_terminal(self) -> bool:
        """Whether a terminal can wait for an answer: the run holds the lock, or its process runs."""
        return self.call is CallState.RUNS or (self.has_lock and self.call is not CallState.KILLED)

    def question(self) -> Asked | None:
        """Return the request that no one has answered yet; also one whose time is over."""
        ended_at = None if self.end is None else self.end.ended_at
        found = self.view.question(ended_at, has_lock=self.has_terminal)
        return None if found is None else found[1]


def is_trial(run: RunState) -> bool:
    """Return whether a run is a plan or a dry run, which change nothing and need nobody."""
    if run.problem or run.has_lock or run.question() is not None or run.view.has_acted:
        return False
    if run.current_end is not None and run.current_end.outcome == Outcome.DRY_RUN:
        return True
    return not run.view.has(Begun, TakenOver, Approval)


def choose_run(runs: Sequence[RunState], now: float) -> RunState | None:
    """Return the run that matters: the holder of the lock, one that asks, else the newest one that is not a trial.

    `runs`: the last changed first.
    """
    for matters in (
        lambda run: run.has_lock,
        lambda run: phase_of(run, now) in WAITS,
        lambda run: not is_trial(run),
    ):
        if (found := next((run for run in runs if matters(run)), None)) is not None:
            return found
    return None


def phase_of(run: RunState, now: float) -> Phase:
    """Return the phase of a run at the time `now` (epoch seconds)."""
    view = run.view
    if run.problem or view.last_at is None:
        return Phase.PLANNING if run.has_lock and not run.problem else Phase.UNKNOWN
    if run.is_fenced and run.current_end is None:
        return Phase.PAUSED if view.has_acted else Phase.FAILED
    if (asked := run.question()) is not None:
        return _phase_of_question(asked, now)
    if (end := run.current_end) is not None:
        return _phase_of_end(end, view)
    if is_trial(run):
        return Phase.DRY_RUN
    if view.failed is not None:
        return Phase.FAILED
    in_airflow = view.has(Begun) and not view.has(TakenOver)
    if run.has_lock or run.call is CallState.RUNS or (in_airflow and now - view.last_at < QUIET_S):
        return _phase_at_work(view)
    return Phase.PAUSED if view.has_acted else Phase.FAILED if view.has(Begun) else Phase.DRY_RUN


def _phase_of_question(asked: Asked, now: float) -> Phase:
    if asked.answer_by and now >= asked.answer_by:
        return Phase.FAILED
    return Phase.WAITING_FOR_DECISION if asks_for_decision(asked) else Phase.WAITING_FOR_APPROVAL


def _phase_at_work(view: RunView) -> Phase:
    """Return the phase of a run that continues by itself, or when an operator resumes it."""
    if view.pause is not None:
        return Phase.PAUSED
    if view.rolls_back:
        return Phase.ROLLING_BACK
    if (act := view.newest(Stopping, Started, Finalizing, Finalized)) is not None:
        return Phase.FINALIZING if isinstance(act, Finalizing | Finalized) else Phase.ROLLING
    approved = view.newest(Approval)
    return Phase.ROLLING if approved is not None and approved.decision == Decision.APPROVED else Phase.PLANNING


def _phase_of_end(end: RunEnd, view: RunView) -> Phase:
    match end.outcome:
        case Outcome.FINISHED | Outcome.ROLLED_NOT_FINALIZED:
            return Phase.FINISHED
        case Outcome.ROLLED_BACK:
            return Phase.ROLLED_BACK
        case Outcome.DRY_RUN:
            return Phase.DRY_RUN
        case Outcome.REFUSED:
            return Phase.REFUSED
    return Phase.PAUSED if view.ended_by_operator else Phase.FAILED


def build_status(
    cluster: str, runs: Sequence[RunState], lock: Lock | None, now: float, *, problem: str = ""
) -> ClusterStatus:
    """Return the status of a cluster.

    `runs`: those that the reader can see, the last changed first. `problem`: why the lock cannot be read.
    """
    holder = next((one for one in runs if lock is not None and one.run_id == lock.holder), None)
    number = None if holder is None else holder.number or None
    chosen = choose_run(runs, now)
    return status_of(cluster, chosen, lock, now, number=number, known=holder is not None, problem=problem)


def status_of(
    cluster: str,
    run: RunState | None,
    lock: Lock | None,
    now: float,
    *,
    number: int | None,
    known: bool = True,
    problem: str = "",
) -> ClusterStatus:
    """Return the status of a cluster by one of its runs.

    `number`: of the run that holds the lock. `known`: the reader can see it.
    """
    shown_lock = None
    if lock is not None:
        shown_lock = LockStatus(
            holder=lock.holder if known else "",
            number=number if known else None,
            purpose=lock.purpose if known else "",
            expires=iso(lock.expires_at),
        )
    locked = _locked(lock, known, problem)
    if run is None:
        busy = lock is not None or bool(problem)
        return ClusterStatus(
            cluster=cluster,
            phase=Phase.UNKNOWN if busy else Phase.IDLE,
            needs_human=bool(problem),
            conditions=(locked,),
            next_action=("Ask for the right to see the run that holds the lock." if lock is not None else problem)
            or f"No run needs an action. `kafka-rollout check --cluster {cluster}` checks the cluster.",
            lock=shown_lock,
            observed=iso(now),
        )
    phase = phase_of(run, now)
    asked = run.question() if phase in WAITS else None
    planned = run.view.newest(Planned)
    dag_id = run.view.dag_id
    return ClusterStatus(
        cluster=cluster,
        phase=phase,
        needs_human=phase in NEEDS_HUMAN or bool(problem),
        run=run.run_id,
        number=run.number or None,
        dag=dag_id or None,
        kind=None if planned is None else planned.run_of.value,
        source_release=None if planned is None else str(planned.source),
        target_release=None if planned is None else str(planned.target),
        step=_step(run, phase),
        node=_node(run, phase),
        nodes=_nodes(run),
        batches=None if phase in ENDED else current_batches(run.view, run.plan),
        conditions=(*_conditions(run, phase, asked), locked),
        waits_for=None
        if asked is None
        else Waiting(
            what=subject_of(asked),
            since=iso(asked.at),
            who=who_can_answer(asked, dag_id),
            until=iso(asked.answer_by) if asked.answer_by else None,
        ),
        next_action=_next_action(cluster, run, phase, asked, dag_id),
        lock=shown_lock,
        started=None if run.view.first_at is None else iso(run.view.first_at),
        started_by=run.view.starter or None,
        updated=None if run.view.last_at is None else iso(run.view.last_at),
        observed=iso(now),
    )


def _node(run: RunState, phase: Phase) -> StatusNode | None:
    """Return the node that the run works on: the one of the last stop or start whose gate has not passed."""
    last = run.view.last_act
    if last is None or phase in ENDED or is_done(run.view.nodes.get((last.release_step, last.node_id))):
        return None
    steps = () if run.plan is None else run.plan.release_steps
    names = {one.node_id: one.name for step in steps for one in step.order}
    return StatusNode(id=last.node_id, name=names.get(last.node_id, ""), release_step=last.release_step)


def _nodes(run: RunState) -> Nodes:
    nodes = run.view.nodes
    if run.plan is None:
        return Nodes(done=sum(map(is_done, nodes.values())), left=None, total=None)
    wanted = [(step, one.node_id) for step in run.plan.release_steps for one in step.order]
    keys = {(step.key, node_id) for step, node_id in wanted}
    if goes_back(run.view, run.plan):  # only nodes that left their release return
        keys = {(step.reversed().key, one) for step, one in wanted if has_acted(nodes.get((step.key, one)))}
    done = sum(is_done(nodes.get(key)) for key in keys)
    return Nodes(done=done, left=len(keys) - done, total=len(keys))


def _step(run: RunState, phase: Phase) -> str | None:
    """Return the label of the current step; None after the end."""
    if phase in ENDED or not run.steps:
        return None
    one_by_one = run.plan is not None and run.plan.lowering is not Lowering.OFFLINE
    if one_by_one and phase in {Phase.ROLLING, Phase.ROLLING_BACK} and (node := _node(run, phase)) is not None:
        verb = "Roll back" if phase is Phase.ROLLING_BACK else "Replace"
        return f"{verb} node {node.id}" + (f" ({node.name})" if node.name else "")
    current = find_current_step(run.steps)
    return None if current is None else current.label


def find_current_step(steps: Sequence[StepLine]) -> StepLine | None:
    """Return the step that failed, waits or has begun, else the first open one after the last closed one.

    A step that the plan skips has no time: the run has not come to it.
    """
    under_way = {StepState.FAILED, StepState.WAITING, StepState.BEGUN}
    if (found := next((step for step in steps if step.state in under_way), None)) is not None:
        return found
    last = max(
        (at for at, step in enumerate(steps) if step.state is not StepState.OPEN and step.at is not None), default=-1
    )
    return next((step for step in steps[last + 1 :] if step.state is StepState.OPEN), None)


def _condition(kind: str, status: Truth, reason: str, message: str = "", since: float | None = None) -> StatusCondition:
    return StatusCondition(
        type=kind, status=status, reason=reason, message=message, since=None if since is None else iso(since)
    )


def _locked(lock: Lock | None, known: bool, problem: str) -> StatusCondition:
    if problem:
        return _condition("Locked", Truth.UNKNOWN, "NotReadable", problem)
    if lock is None:
        return _condition("Locked", Truth.FALSE, "Free")
    purpose = lock.purpose if known else "By a run that you cannot read."
    return _condition("Locked", Truth.TRUE, "Held", purpose, lock.acquired_at)


def _conditions(run: RunState, phase: Phase, asked: Asked | None) -> tuple[StatusCondition, ...]:
    if run.problem:
        return (_condition("HistoryReadable", Truth.UNKNOWN, "Damaged", run.problem),)
    human = _needs_human(run, phase, asked)
    return (human, _requested(run), _planned(run), _approved(run), _gate(run), _node_down(run), _finalized(run))


def _requested(run: RunState) -> StatusCondition:
    """Return the request of an operator that has no effect yet."""
    asked = run.view.requested
    if asked is None or run.is_fenced:
        return _condition("Requested", Truth.FALSE, "Nothing")
    down = run.view.unfinished_stop
    if run.plan is not None and run.plan.lowering is Lowering.OFFLINE and run.view.stop_has_begun:
        when = "when it has started the nodes that it stopped"
    elif down is not None:
        when = f"when it has started node {down.node_id}"
    elif isinstance(asked, PauseAsked):
        when = "before its next node or change"
    else:
        when = "at the next check of its gate, or before its next step"
    what, does = ("Stop", "ends") if isinstance(asked, StopAsked) else ("Pause", "pauses")
    message = f"{what} was requested by {asked.by} at {iso(asked.at)}: {asked.reason}. The run {does} {when}."
    return _condition("Requested", Truth.TRUE, what, message, asked.at)


def _needs_human(run: RunState, phase: Phase, asked: Asked | None) -> StatusCondition:
    if phase not in NEEDS_HUMAN or run.view.last_at is None:
        return _condition("NeedsHuman", Truth.FALSE, "NothingToDo")
    since = run.view.last_at if asked is None else asked.at
    reason = {
        Phase.WAITING_FOR_APPROVAL: "ApprovalPending",
        Phase.WAITING_FOR_DECISION: "DecisionPending",
        Phase.PAUSED: "Paused",
    }.get(phase, "Failed")
    return _condition("NeedsHuman", Truth.TRUE, reason, _why(run, asked), since)


def _why(run: RunState, asked: Asked | None) -> str:
    """Return why the run needs a human; the cause first."""
    if asked is None and run.view.asks:
        return run.view.asks
    if asked is None and run.is_fenced and run.current_end is None:
        if state := run.view.state_in_airflow:
            ended = "was deleted" if state == "deleted" else f"ended as {state}"
            return f"The DAG run {ended} in Airflow, before its report."
        if run.call is CallState.KILLED:
            return "The process of the run was killed."
        stopped = run.view.newest(StopAsked)
        return run.view.cause if run.view.lock_is_broken or stopped is None else f"The run was {stopped.text}."
    if (late := run.question()) is not None:
        cause = f"{run.view.cause} " if run.view.cause and asks_for_decision(late) else ""
        return f"{cause}{'' if asked is not None else 'There was no answer in time: '}{subject_of(late)}"
    if (end := run.current_end) is not None and end.sentence:
        return end.sentence
    if (pause := run.view.pause) is not None:
        return f"The run is {pause.text}, since {iso(pause.at)}."
    return run.view.cause


def _planned(run: RunState) -> StatusCondition:
    planned = run.view.newest(Planned)
    if planned is None:
        return _condition("Planned", Truth.FALSE, "NotYet")
    if planned.blockers:
        message = f"{count(len(planned.blockers), 'blocker')}: {few(planned.blockers)}"
        return _condition("Planned", Truth.FALSE, "Blocked", message, planned.at)
    return _condition("Planned", Truth.TRUE, "PlanFrozen", f"Plan {planned.plan_hash[:8]}.", planned.at)


def _approved(run: RunState) -> StatusCondition:
    planned = run.view.newest(Planned)
    decided = None if planned is None else run.view.decisions.get((ApprovalOf.ROLL, planned.plan_hash))
    if decided is None:
        return _condition("Approved", Truth.FALSE, "NotYet")
    last, why = decided
    if last.decision != Decision.APPROVED:
        return _condition("Approved", Truth.FALSE, "Rejected", f"{last.by}: {last.reason}", last.at)
    if why:
        return _condition("Approved", Truth.FALSE, "NotValid", why, last.at)
    return _condition("Approved", Truth.TRUE, "ApprovedByApprover", f"{last.by}: {last.reason}", last.at)


def _gate(run: RunState) -> StatusCondition:
    gate = max(run.view.gates.values(), key=lambda gate: gate.ended_at or 0.0, default=None)
    if gate is None:
        return _condition("GatePassed", Truth.UNKNOWN, "NoGateYet")
    newest_check = gate.checks[-1] if gate.checks else None
    unmet = "" if newest_check is None or newest_check.passes else newest_check.waits_for
    waits = f"waits for {unmet}" if unmet else "passes: every condition is met"
    text = f"Gate {gate.gate} {gate.message or waits}."
    status = Truth.TRUE if gate.state is GateState.PASSED else Truth.FALSE
    reason = {
        GateState.FAILED: "Failed",
        GateState.PASSED: "Passed",
        GateState.PASSES: "Watching",
        GateState.WAITS: "ConditionsNotMet",
    }[gate.state]
    has_ended = gate.state in {GateState.FAILED, GateState.PASSED}
    return _condition("GatePassed", status, reason, text, gate.passed_or_failed_at if has_ended else gate.began_at)


def _node_down(run: RunState) -> StatusCondition:
    """Return whether a node that the run stopped or started is not up, by the newest checks of the gates."""
    found = run.view.nodes_not_up
    if not found:
        return _condition("NodeStopped", Truth.FALSE, "EveryNodeUp", "Every node that this run touched is up.")
    alike: dict[str, list[int]] = {}
    for node_id, why in found.items():
        alike.setdefault(why, []).append(node_id)
    message = "; ".join(f"{nodes(ids).capitalize()}: {why}" for why, ids in alike.items())
    down = run.view.down
    newest = {node.node_id: node.since for node in run.view.nodes.values()}
    since = min(down.get(node_id, newest.get(node_id, 0.0)) for node_id in found)
    reason = "NodeNotUp" if down.keys().isdisjoint(found) else "StopNotFinished"
    return _condition("NodeStopped", Truth.TRUE, reason, f"{message}.", since)


def _finalized(run: RunState) -> StatusCondition:
    done, asked = run.view.newest(Finalized), run.view.newest(Finalizing)
    if done is not None and (asked is None or done.at >= asked.at):
        levels = ", ".join(f"{name} {level}" for name, level in done.levels.items())
        return _condition("Finalized", Truth.TRUE, "LevelsFinalized", levels, done.at)
    if asked is not None:
        return _condition("Finalized", Truth.UNKNOWN, "Requested", "The request was sent.", asked.at)
    not_yet = run.current_end is not None and run.current_end.outcome == Outcome.ROLLED_NOT_FINALIZED
    return _condition("Finalized", Truth.FALSE, "NotFinalized" if not_yet else "NotYet")


def _more_words(run: RunState) -> str:
    take_over = " --take-over" if run.view.dag_id else ""
    return f"{take_over} {SIGNED}" if take_over or _must_be_signed(run) else ""


def can_roll_back(run: RunState) -> bool:
    """Return whether a rollback is possible by the history."""
    if run.plan is not None and run.plan.lowering is Lowering.OFFLINE:
        return run.view.can_be_undone
    return run.view.has(Stopping) and run.view.run_of is not RunOf.RESTART


def action_after(cluster: str, run: RunState) -> str:
    """Return what an operator does after the end of a run. `run.end`: its end by the report."""
    end = run.end
    phase = Phase.UNKNOWN if end is None else _phase_of_end(end, run.view)
    return _next_action(cluster, run, phase, None, run.view.dag_id)


def _must_be_signed(run: RunState) -> bool:
    """Return whether the next call of the run needs the name of an approver."""
    return run.command == ROLLBACK or bool(run.view.asks) or not (run.view.has_acted or run.view.has(Approval))


_COMMANDS = {Decision.RETRY: "retry", Decision.ACCEPT: "accept", Decision.ROLL_BACK: ROLLBACK}
_ENDS = {Decision.REJECTED, Decision.STOP_HERE}


def answer_command(cluster: str, run: RunState, decision: Decision, *, has_credentials: bool) -> str:
    """Return the command that does in a shell what an answer does; empty if there is none. It takes a DAG's run over.

    `has_credentials`: the brokers ask for some, which a shell has in a file.
    """
    where = f"--cluster {cluster} --run {run.name}"
    if decision in _ENDS:
        return f"kafka-rollout stop {where} --reason TEXT"
    if decision is Decision.SPLIT:
        return ""
    file = " --command-config FILE" if has_credentials else ""
    take_over = " --take-over" if run.view.dag_id else ""
    return f"kafka-rollout {_COMMANDS.get(decision, run.command)} {where}{file}{take_over} {SIGNED}"


def _next_action(cluster: str, run: RunState, phase: Phase, asked: Asked | None, dag_id: str) -> str:
    where = f"--cluster {cluster} --run {run.name}"
    if run.problem:
        return f"Check the history: `kafka-rollout runs report {where}`."
    if asked is not None and asked.terminal is not None:
        return f"{', '.join(asked.users)}: answer at the terminal of {asked.terminal}."
    if asked is not None:
        return f"Open the page of the cluster in Airflow and answer: {', '.join(asked.options)}."
    continues = (
        f"Clear {run.view.cleared} of run {run.name} of the DAG {dag_id} in Airflow"
        if dag_id and run.view.state_in_airflow != "deleted"
        else f"Continue with `kafka-rollout {run.command} {where}{_more_words(run)}`"
    )
    undo = ""
    if can_roll_back(run) and (dag_id or run.command != ROLLBACK):
        undo = f" To roll back: `kafka-rollout {ROLLBACK} {where} {SIGNED}`."
    match phase:
        case Phase.PAUSED if run.has_lock and run.view.pause is not None:
            return f"Continue with `kafka-rollout resume {where} --reason TEXT`. The run keeps its lock."
        case Phase.PAUSED | Phase.FAILED if run.is_fenced and run.question() is not None:
            return f"Let the run continue with `kafka-rollout resume {where} --reason TEXT`, then answer its request."
        case Phase.PAUSED:
            return f"{continues}.{undo}"
        case Phase.FAILED:
            return f"Read the reason and fix the cause. {continues}.{undo}"
        case Phase.REFUSED:
            return "Remove the blockers, then start a new run."
        case Phase.ROLLED_BACK:
            return "Correct the cause of the rollback, then start a new run."
        case Phase.FINISHED if run.current_end is not None and (
            run.current_end.outcome == Outcome.ROLLED_NOT_FINALIZED
        ):
            return f"After the soak, start a run that finalizes the levels of {cluster}."
        case Phase.FINISHED | Phase.DRY_RUN:
            return "No action is needed."
    events = f"`kafka-rollout runs report {where} --events`"
    return f"No action is needed: the run continues by itself. {events} lists its events."
