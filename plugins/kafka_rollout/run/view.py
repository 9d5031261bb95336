"""RunView: the state of a run, folded from its history event by event.

Console, status, fleet, run report, notifications, progress and metrics read it. It has no plan: readers compare it with
the plan. A new event needs its class and, if it changes the state, one function in `_FOLDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, TypeVar

from kafka_rollout.gates.gate import GateCheck, GateKind, GateRef
from kafka_rollout.gates.reasons import ANSWERS, PROCESS
from kafka_rollout.metadata_log.outage import Outage
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import (
    STOP_TRAFFIC,
    Approval,
    ApprovalOf,
    Asked,
    AskingEnded,
    Begun,
    ClearedInAirflow,
    Decision,
    EndedInAirflow,
    Event,
    LockedOut,
    PauseAsked,
    Planned,
    ResumeAsked,
    RollbackClosed,
    Rolled,
    RolledBack,
    StartedAtShell,
    StepBegan,
    StepEnded,
    StepEvent,
    StepOutcome,
    StepsSkipped,
    StopAsked,
    StoppedByOperator,
    TakenOver,
    Unknown,
    Voided,
    find_text,
)
from kafka_rollout.run.projections.nodes import undisturbed_seconds
from kafka_rollout.run.projections.open_batches import RollOf, find_cleared
from kafka_rollout.run.step_events import (
    ComparedAfter,
    ContentsCompared,
    DefaultSet,
    Finalizing,
    GateChecked,
    GateEnded,
    GateFailed,
    GatePassed,
    LiveFailed,
    LiveKept,
    LiveLowered,
    NodeEvent,
    OfflineNoReturn,
    OfflineServed,
    OfflineStopping,
    OfflineUndoing,
    OfflineUndone,
    OfflineWritable,
    PreparingStop,
    RegistrationsRead,
    RollbackPlanned,
    Started,
    Stopped,
    Stopping,
    StopPrepared,
)

E = TypeVar("E", bound=Event)
INVALID = "invalid"
CHANGES = (DefaultSet, Finalizing, Stopping, Stopped, OfflineStopping, LiveLowered)
"""The events of a run that has changed the cluster, or tried to."""
_TURNS = (OfflineStopping, OfflineUndoing, OfflineUndone, LiveFailed, LiveKept, RolledBack)


class StepState(StrEnum):
    DONE = "done"
    SKIPPED = "skipped"
    OPEN = "open"
    BEGUN = "begun"  # it runs, or was interrupted
    WAITING = "waiting"  # for an answer
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step that began or was skipped."""

    state: StepState
    """By the newest event about it."""
    at: float
    """When it got this state (epoch s): of a step that has begun, when it began last."""
    began_at: float = 0.0
    reason: str = ""
    """Why it was skipped, has failed or waits."""


class NodeStage(StrEnum):
    """The stage of a node in one release step, by the history. The values are the words that the page shows."""

    WAITING = "waiting"
    GATE_BEFORE = "waiting for its gate"
    PREPARING = "preparing its stop"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    CATCHING_UP = "catching up"
    DONE = "done"
    FAILED = "failed"
    ROLLED_BACK = "rolled back"
    UNCHANGED = "unchanged"  # the run goes back, or has ended, and never stopped it


UNDER_WAY = frozenset(
    {NodeStage.PREPARING, NodeStage.STOPPING, NodeStage.STOPPED, NodeStage.STARTING, NodeStage.CATCHING_UP}
)
"""The run works on the node, and has requested its stop or prepares it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node in one release step of the plan or of its rollback. Times: epoch seconds."""

    release_step: str
    """Its key."""
    node_id: int
    stage: NodeStage = NodeStage.WAITING
    since: float = 0.0
    """When the stage began."""
    note: str = ""
    """The unmet conditions, or the failure."""
    stopping_at: float | None = None
    """The first request of its stop."""
    started_at: float | None = None
    """Its first start."""
    stop_s: float | None = None
    """Seconds of its last stop."""
    start_s: float | None = None
    """Seconds of its last start."""
    passed_at: float | None = None
    """Its newest passed gate after the start."""
    release: Release | None = None
    """The release of its last start."""
    is_down: bool = False
    """The run stopped or started it, and its gate has not passed since."""

    @property
    def began_at(self) -> float | None:
        """The first stop; the first start of a node that was down."""
        return self.started_at if self.stopping_at is None else self.stopping_at

    @property
    def took_s(self) -> float | None:
        """Seconds from the stop until the gate passed; None before, and for a node that was down."""
        if self.stopping_at is None or self.passed_at is None:
            return None
        return round(self.passed_at - self.stopping_at, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailure:
    """A failed gate of a node, or a step that failed after the node was stopped and before it was started."""

    number: int
    """The position of its event."""
    at: float
    """Epoch seconds."""
    node_id: int
    reason: str
    gate: str = ""
    """The name of the gate; empty if the node was not started again."""


class GateState(StrEnum):
    """The values are those of the report."""

    WAITS = "waits"
    PASSES = "passes"  # the newest check passed; the gate is still being watched
    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateHistory:
    """A gate and its recorded checks, oldest first. Times in epoch seconds."""

    ref: GateRef
    gate: str
    """Its name for a reader."""
    state: GateState = GateState.WAITS
    message: str = ""
    checks: tuple[GateCheck, ...] = ()
    passed_or_failed_at: float | None = None

    @property
    def began_at(self) -> float | None:
        return self.checks[0].at if self.checks else None

    @property
    def ended_at(self) -> float | None:
        """When the gate passed, failed or was last checked, whichever is later."""
        checked_at = self.checks[-1].at if self.checks else None
        return max((at for at in (self.passed_or_failed_at, checked_at) if at is not None), default=None)

    @property
    def waited_s(self) -> float | None:
        began, ended = self.began_at, self.ended_at
        return None if began is None or ended is None else ended - began

    @property
    def is_passed(self) -> bool:
        return self.state in {GateState.PASSED, GateState.PASSES}


@dataclass(slots=True, kw_only=True)
class RunView:
    """The state of a run after the events that `apply` has got so far. `followed_by` leaves the view as it is."""

    events: list[Event] = field(default_factory=list)
    """The history itself."""
    steps: dict[str, StepView] = field(default_factory=dict)
    """By id, of those that began or were skipped. The parts of all batches are one step, with the state of the newest.
    """
    parts: dict[tuple[str, int], StepView] = field(default_factory=dict)
    """The parts of batches that began: by the id of their step, and the index of the batch."""
    running: str = ""
    """The step that began last, if it has not ended. It still runs, or was interrupted."""
    part: tuple[str, int] | None = None
    """The part of a batch that began last, if it has not ended."""
    finished: set[str] = field(default_factory=set)
    """The steps that are done since the run's current plan was made."""
    nodes: dict[tuple[str, int], NodeView] = field(default_factory=dict)
    """By release step and node id; the one with the newest event last."""
    gates: dict[GateRef, GateHistory] = field(default_factory=dict)
    """In the order of the first checks."""
    opened: dict[GateRef, int] = field(default_factory=dict)
    """The gates that are watched or have failed, with the first check since the node was stopped or started."""
    passed: set[GateRef] = field(default_factory=set)
    """The gates that passed since their node was last stopped or started."""
    failed: StepEnded | None = None
    """The failure after which no step began, except for the traffic check, and no node was stopped or started."""
    asked: tuple[int, Asked] | None = None
    """Position and event of the request that no one has answered."""
    decisions: dict[tuple[ApprovalOf, str], tuple[Approval, str]] = field(default_factory=dict)
    """By subject and hash of the plan: the newest decision, and why it no longer counts (empty if it does).

    A blocker that was found later makes it invalid, and so does an entry of the history that cannot be read: it can be
    such a blocker. An approval of the opposite direction supersedes it.
    """
    pause: PauseAsked | None = None
    """The pause of an operator that is in force."""
    requested: PauseAsked | StopAsked | None = None
    """The request of an operator that has no effect yet."""
    last_act: Stopping | Started | None = None
    """The last stop request or start of a node."""
    down: dict[int, float] = field(default_factory=dict)
    """Node id → time of its stop, of those that were not started since."""
    switch: OfflineStopping | None = None
    """The stop of all controllers by a live downgrade, or of all nodes, that has not ended."""
    locked_out: str = ""
    """Who holds or broke the cluster's lock, if this stopped the run last."""
    lock_is_broken: bool = False
    """An approver broke the lock of the run, and no person has continued it since."""
    problem: str = ""
    """The newest failure of a gate, an approval or a step, as a sentence.

    It is over when a node is stopped or started, a gate passes, or another step begins after a failed one."""
    ended_by_operator: bool = False
    """An operator stopped the run, and it did not continue since."""
    state_in_airflow: str = ""
    """`EndedInAirflow.state`, if no user has cleared the run or taken it over since. A task or a trigger that Airflow
    has not killed yet can still record what it sees or does."""
    asks: str = ""
    """Why it waits then for an approver's answer, which the next call brings."""
    stop_has_begun: bool = False
    """The stop of all nodes or controllers by a downgrade has begun, and was not undone."""
    has_no_return: bool = False
    """The first broker was started after that stop."""
    node_failures: list[NodeFailure] = field(default_factory=list)
    """In their order."""
    outages: list[Outage] = field(default_factory=list)
    """In their order; several if a downgrade was undone and begun again."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> RunView:
        """Return the view of a history."""
        view = cls()
        for event in events:
            view.apply(event)
        return view

    def followed_by(self, events: Iterable[Event]) -> RunView:
        """Return the view after further events."""
        view = RunView(**{one.name: copy(getattr(self, one.name)) for one in fields(self)})
        for event in events:
            view.apply(event)
        return view

    def apply(self, event: Event) -> None:
        """Continue with the next event."""
        self.events.append(event)
        for fold in _FOLDS.get(type(event), ()):
            fold(self, event)

    # What readers ask. Each of it follows from the state above or is in one event.

    @property
    def first_at(self) -> float | None:
        return self.events[0].at if self.events else None

    @property
    def last_at(self) -> float | None:
        return self.events[-1].at if self.events else None

    @property
    def run_of(self) -> RunOf:
        """What the run changes, by its first plan; an upgrade before the first plan."""
        return next((planned.run_of for planned in self.all(Planned)), RunOf.UPGRADE)

    @property
    def dag_id(self) -> str:
        """The id of the DAG of the run; empty for a run of the command line."""
        return next((begun.dag_id for begun in self.all(Begun)), "")

    @property
    def starter(self) -> str:
        """The user of Airflow or of the shell who started the run; empty if unknown."""
        by_airflow = (begun.triggered_by for begun in self.all(Begun))
        at_shell = (started.starter.user for started in self.all(StartedAtShell))
        return next(by_airflow, next(at_shell, ""))

    @property
    def has_acted(self) -> bool:
        """Whether the run has changed the cluster, or tried to."""
        return self.has(*CHANGES)

    @property
    def can_be_undone(self) -> bool:
        """Whether an undo is possible by the history. Before an undo, the metadata logs decide."""
        return self.stop_has_begun and not self.has_no_return

    @property
    def rolls_back(self) -> bool:
        """Whether the run rolls back or has done so: by its last decision about the direction, or by an undo.

        Another answer, such as a retry in the rollback, decides no direction. False again after the end of a rollback
        of nodes at a shell, and after the undo of a live downgrade.
        """
        for event in reversed(self.events):
            match event:
                case Approval(what=ApprovalOf.FAILED_GATE) if event.decision == Decision.ROLL_BACK:
                    return True
                case Approval(what=ApprovalOf.ROLL | ApprovalOf.ROLL_BACK) if event.decision == Decision.APPROVED:
                    return event.what is ApprovalOf.ROLL_BACK
                case _ if isinstance(event, _TURNS):
                    return isinstance(event, OfflineUndoing | OfflineUndone)
        return False

    @property
    def has_turned_back(self) -> bool:
        """Whether the run rolls back, or has rolled back last."""
        return self.rolls_back or isinstance(self.newest(RolledBack, Approval, Stopping), RolledBack)

    @property
    def is_rollback_refused(self) -> bool:
        """Whether the last attempt to change nodes or levels was a refused rollback."""
        return isinstance(self.newest(Started, Finalizing, RollbackClosed, Rolled), RollbackClosed)

    @property
    def refusal(self) -> Voided | Approval | None:
        """The newest event that refused the plan: new blockers, or an answer that does not approve."""
        refused = (
            event
            for event in reversed(self.events)
            if isinstance(event, Voided) or (isinstance(event, Approval) and event.decision != Decision.APPROVED)
        )
        return next(refused, None)

    @property
    def last_failed_step(self) -> StepEnded | None:
        """The newest step that failed, also if the run continued after it."""
        return next((one for one in reversed(self.all(StepEnded)) if one.outcome is StepOutcome.FAILED), None)

    @property
    def cleared(self) -> str:
        """What a user clears in Airflow so that a DAG run continues, as the object of *clear*."""
        return find_cleared(self.events)

    @property
    def attempts(self) -> int:
        """A number that grows when the run acts, asks or fails again, but not while it writes its report."""
        failed = sum(one.outcome is StepOutcome.FAILED for one in self.all(StepEnded))
        return failed + sum(len(self.all(kind)) for kind in (Approval, Asked, GateFailed, Started, Stopping))

    @property
    def undisturbed_seconds(self) -> list[float]:
        """Seconds of the node steps that did not wait for a person."""
        return undisturbed_seconds(self.events)

    def accepted_digests(self, plan_hash: str) -> frozenset[str]:
        """Return the digests of the accepted differences: each decision is about the newest comparison before its
        text. No text lists those right before levels are raised."""
        accepted: set[str] = set()
        for at, event in enumerate(self.events):
            match event:
                case Approval() if event.what == ApprovalOf.DIFFERENCES and event.plan_hash == plan_hash:
                    before = self.events[: find_text(self.events, at) or 0]
                    listed = (one for one in reversed(before) if isinstance(one, ContentsCompared))
                    shown = next((one for one in listed if one.after is not ComparedAfter.APPROVAL), None)
                    compared = "" if shown is None else shown.digest
                    if event.decision == Decision.APPROVED:
                        accepted.add(compared)
                    else:
                        accepted.discard(compared)
        return frozenset(accepted - {""})

    def unaccepted(self, plan_hash: str) -> ContentsCompared | None:
        """Return the newest comparison if it found differences that no approver accepted."""
        compared = self.newest(ContentsCompared)
        if compared is None or not compared.digest or compared.digest in self.accepted_digests(plan_hash):
            return None
        return compared

    @property
    def cause(self) -> str:
        """Why the run stopped or asks, as a sentence, for every reader; empty if the history does not contain it."""
        return self.locked_out or self.problem

    @property
    def node_seconds(self) -> dict[str, float]:
        """Release step and node (`3.9.1-to-4.3.1 node 2`) → seconds from the stop until the gate passed."""
        took = {f"{one.release_step} node {one.node_id}": one.took_s for one in self.nodes.values()}
        return {node: seconds for node, seconds in took.items() if seconds is not None}

    @property
    def unfinished_stop(self) -> Stopping | None:
        """The last stop request, if the node was not started since."""
        return self.last_act if isinstance(self.last_act, Stopping) else None

    @property
    def nodes_not_up(self) -> Mapping[int, str]:
        """Node id → why it is not up, of those that the run stopped or started, by the newest check of their gate.

        A node that no check has seen since its start is not up.
        """
        found = dict.fromkeys(self.down, "it was asked to stop and was not started")
        checks = {gate.ref: gate.checks for gate in self.open_gates if gate.ref.kind is GateKind.AFTER_START}
        for node in {node.node_id: node for node in self.nodes.values()}.values():  # the newest of each
            if not node.is_down or node.node_id in found:
                continue
            gate = GateRef(kind=GateKind.AFTER_START, release_step=node.release_step, node_id=node.node_id)
            if not (seen := checks.get(gate, ())):
                found[node.node_id] = "it was started, and no check has seen it since"
            elif any(one.name in {PROCESS, ANSWERS} and not one.is_met for one in seen[-1].conditions):
                found[node.node_id] = seen[-1].waits_for
        return found

    @property
    def open_gates(self) -> tuple[GateHistory, ...]:
        """The gates that have not passed and that the run has not left by a rollback, the newest check first.

        A history has the checks since the node was stopped or started last.
        """
        found = [replace(self.gates[ref], checks=self.gates[ref].checks[begin:]) for ref, begin in self.opened.items()]
        return tuple(sorted(found, key=lambda gate: gate.ended_at or 0.0, reverse=True))

    def all(self, kind: type[E]) -> tuple[E, ...]:
        """Return the events of a kind, oldest first."""
        return tuple(event for event in self.events if isinstance(event, kind))

    def newest(self, *kinds: type[E]) -> E | None:
        return next((event for event in reversed(self.events) if isinstance(event, kinds)), None)

    def has(self, *kinds: type[Event]) -> bool:
        return any(isinstance(event, kinds) for event in self.events)

    def nodes_of(self, release_step: str) -> tuple[NodeView, ...]:
        """Return the nodes that have begun a release step, or do not need it; the one with the newest event last."""
        return tuple(node for (key, _), node in self.nodes.items() if key == release_step)

    def question(self, ended_at: float | None = None, *, has_lock: bool = True) -> tuple[int, Asked] | None:
        """Return position and event of the request that no one has answered yet; also one whose time is over.

        `ended_at`: the end of the run by its report (epoch seconds); a request before it is closed. `has_lock`: without
        it, no terminal waits any more, because its process was killed.
        """
        if self.asked is None:
            return None
        event = self.asked[1]
        is_over = ended_at is not None and ended_at >= event.at
        return None if is_over or (event.terminal is not None and not has_lock) else self.asked

    # The fold: one function for each group of events.

    def _began(self, event: StepBegan) -> None:
        self.running = event.shown_step
        began = StepView(state=StepState.BEGUN, at=event.at, began_at=event.at)
        self._set(event, began)
        self.part = None if event.batch is None else (event.step, event.batch)
        if event.step != STOP_TRAFFIC:
            if self.failed is not None:
                self.problem = ""
            self.failed = None
            self.lock_is_broken = False

    def _set(self, event: StepEvent, state: StepView) -> None:
        """Change the state of a step; of a part of a batch also that of the step that shows it."""
        if event.batch is not None:
            self.parts[event.step, event.batch] = state
        self.steps[event.shown_step] = state

    def _ended(self, event: StepEnded) -> None:
        self._close_question()
        known = self.steps if event.batch is None else self.parts
        of_step: Any = event.step if event.batch is None else (event.step, event.batch)
        began_at = known[of_step].began_at if of_step in known else event.at
        state = StepState(event.outcome.value)
        self._set(event, StepView(state=state, at=event.at, began_at=began_at, reason=event.reason))
        self.running = "" if self.running == event.shown_step else self.running
        self.part = None if self.part == of_step else self.part
        if event.outcome is StepOutcome.DONE and event.batch is None:
            self.finished.add(event.step)
        elif event.outcome is StepOutcome.FAILED:
            self.failed = event
            if not self._is_known(event):
                self.problem = event.reason
            if isinstance(self.last_act, Stopping):
                self._fail(event, self.last_act.node_id, event.reason)
            for node in [one for one in self.nodes.values() if one.stage in UNDER_WAY]:
                self._node(node.release_step, node.node_id, event.at, NodeStage.FAILED, note=event.reason)

    def _is_known(self, event: StepEnded) -> bool:
        """Return whether the step failed by the problem that is known, or by an approver's decision about it."""
        said = self.problem.removesuffix(".").removeprefix("Gate ")
        decided = self.newest(Approval, GateFailed, Voided)
        is_decided = isinstance(decided, Approval) and decided.what is ApprovalOf.FAILED_GATE
        return bool(self.problem) and (is_decided or said in event.reason)

    def _fail(self, event: Event, node_id: int, reason: str, gate: str = "") -> None:
        number = len(self.events) - 1
        failure = NodeFailure(number=number, at=event.at, node_id=node_id, reason=reason, gate=gate)
        self.node_failures.append(failure)

    def _skipped(self, event: StepsSkipped) -> None:
        skipped = StepView(state=StepState.SKIPPED, at=event.at, reason=event.reason)
        self.steps |= dict.fromkeys(event.steps, skipped)

    def _planned(self, event: Planned) -> None:
        before = next((one for one in reversed(self.events[:-1]) if isinstance(one, Planned)), None)
        if before is not None and before.plan_hash != event.plan_hash:
            self.finished.clear()

    def _question(self, event: Asked) -> None:
        self.asked = len(self.events) - 1, event
        self._change_running(state=StepState.WAITING, at=event.at, reason=subject_of(event))

    def _close_question(self, event: Event | None = None) -> None:
        self.asked = None
        if self.running and (step := self.steps[self.running]).state is StepState.WAITING:
            self._change_running(state=StepState.BEGUN, at=step.began_at, reason="")

    def _change_running(self, **changes: Any) -> None:
        """Change the state of the step that runs, and of its part of a batch."""
        if self.running:
            self.steps[self.running] = replace(self.steps[self.running], **changes)
        if self.part is not None:
            self.parts[self.part] = replace(self.parts[self.part], **changes)

    def _approval(self, event: Approval) -> None:
        if not self.lock_is_broken:
            self.locked_out = ""
        opposite = {ApprovalOf.ROLL_BACK: ApprovalOf.ROLL}
        for (what, plan_hash), (given, _) in self.decisions.items():
            if event.decision == Decision.APPROVED and event.what == opposite.get(what, ApprovalOf.ROLL_BACK):
                why = f"superseded: {event.by} approved the {event.what.noun()} after it"
                self.decisions[what, plan_hash] = given, why
        text = find_text(self.events, len(self.events) - 1)
        later = [] if text is None else self.events[text:]
        why = next((why for one in reversed(later) if (why := _why_invalid(one, event.what, event.plan_hash))), "")
        self.decisions[event.what, event.plan_hash] = event, why
        is_rollback = event.what is ApprovalOf.ROLL_BACK and event.decision == Decision.APPROVED
        if is_rollback or event.decision == Decision.ROLL_BACK:
            self.opened.clear()

    def _back(self, event: RollbackPlanned) -> None:
        """A rollback begins with other batches than an earlier one. The batch that the run has left does not end."""
        for (step, batch), state in list(self.parts.items()):
            if step.startswith(f"{RollOf.ROLLBACK.group}."):
                del self.parts[step, batch]
            elif state.state in {StepState.BEGUN, StepState.WAITING}:
                skipped = replace(state, state=StepState.SKIPPED, at=event.at, reason="The run is rolled back.")
                self.parts[step, batch] = skipped
        self.part = None

    def _invalid(self, event: Voided | Unknown) -> None:
        for (what, plan_hash), (given, _) in self.decisions.items():
            if why := _why_invalid(event, what, plan_hash):
                self.decisions[what, plan_hash] = given, why

    def _compared(self, event: ContentsCompared) -> None:
        for (what, plan_hash), (given, _) in self.decisions.items():
            if what is ApprovalOf.DIFFERENCES:
                self.decisions[what, plan_hash] = given, "superseded: the cluster was compared again after it"

    def _void(self, event: Voided) -> None:
        self.problem = f"The approval is no longer valid: {'; '.join(event.blockers)}"

    def _control(self, event: PauseAsked | ResumeAsked | StopAsked) -> None:
        self.requested = None if isinstance(event, ResumeAsked) else event
        if not isinstance(event, StopAsked):
            self.pause = event if isinstance(event, PauseAsked) else None
        if isinstance(event, ResumeAsked):
            self.lock_is_broken = self.ended_by_operator = False

    def _lock(self, event: LockedOut) -> None:
        self.locked_out, self.lock_is_broken = event.sentence, event.is_broken

    def _unlocked(self, event: Event) -> None:
        self.locked_out, self.lock_is_broken = "", False

    def _operator(self, event: StoppedByOperator) -> None:
        self.ended_by_operator, self.requested, self.asks = True, None, event.asks

    def _continues(self, event: Event) -> None:
        self.ended_by_operator, self.asks = False, ""

    def _in_airflow(self, event: EndedInAirflow) -> None:
        self.state_in_airflow, self.requested = event.state, None
        self._close_question()

    def _continues_in(self, event: ClearedInAirflow | TakenOver) -> None:
        self.state_in_airflow = ""

    def _turned(self, event: Approval) -> None:
        """A rollback withdraws a stop."""
        if (event.what, event.decision) == (ApprovalOf.ROLL_BACK, Decision.APPROVED):
            self.requested = None if isinstance(self.requested, StopAsked) else self.requested

    def _node(self, release_step: str, node_id: int, at: float, stage: NodeStage | None, **changes: Any) -> None:
        """Change a node, which becomes the last one. `stage`: None leaves it in its stage."""
        key = release_step, node_id
        node = self.nodes.pop(key, None) or NodeView(release_step=release_step, node_id=node_id)
        if stage is not None and (stage is not node.stage or stage in {NodeStage.DONE, NodeStage.FAILED}):
            changes["since"] = at
        if stage is not None:
            changes = {"note": "", "stage": stage, **changes}
        self.nodes[key] = replace(node, **changes)

    def _of_node(self, event: NodeEvent) -> None:
        key = event.release_step, event.node_id
        node = self.nodes.get(key) or NodeView(release_step=event.release_step, node_id=event.node_id)
        match event:
            case PreparingStop() | StopPrepared():
                self._node(*key, event.at, NodeStage.PREPARING)
            case Stopping():
                at = event.at if node.stopping_at is None else node.stopping_at
                self._node(*key, event.at, NodeStage.STOPPING, stopping_at=at, is_down=True)
            case Stopped():
                self._node(*key, event.at, NodeStage.STOPPED, stop_s=event.seconds, is_down=True)
            case Started():
                at = event.at if node.started_at is None else node.started_at
                times: dict[str, Any] = {"started_at": at, "start_s": event.seconds, "release": event.release}
                self._node(*key, event.at, NodeStage.STARTING, is_down=True, **times)

    def _touched(self, event: Stopping | Started) -> None:
        self.last_act, self.failed, self.problem = event, None, ""
        self._close_question()
        self.opened = {ref: begin for ref, begin in self.opened.items() if ref.node_id != event.node_id}
        self.passed = {ref for ref in self.passed if ref.node_id != event.node_id}
        if isinstance(event, Stopping):
            self.down[event.node_id] = event.at
        else:
            self.down.pop(event.node_id, None)
        if not self.outages or self.outages[-1].served_at is not None:
            if isinstance(event, Stopping):
                self.outages.append(Outage(began_at=event.at, unserved_at=event.at))
        else:
            self.outages[-1] = replace(self.outages[-1], unserved_at=event.at)

    def _registered(self, event: RegistrationsRead) -> None:
        for node_id in event.seen.complete:
            self._node(event.release_step, node_id, event.at, NodeStage.DONE)

    def _checked(self, event: GateChecked) -> None:
        ref, check = event.ref, event.check
        if check.is_held and isinstance(self.requested, PauseAsked):
            self.requested = None
        gate = self.gates.get(ref) or GateHistory(ref=ref, gate=check.gate)
        is_again = check.passes and ref in self.passed  # checked once more right before the act
        state = GateState.PASSED if is_again else GateState.PASSES if check.passes else GateState.WAITS
        if not is_again:
            self.passed.discard(ref)
            self._open(ref, gate)
        self.gates[ref] = replace(gate, checks=(*gate.checks, check), state=state)
        if self.running and ref.node_id is None and not is_again:
            self._change_running(reason=check.waits_for)

    def _open(self, ref: GateRef, gate: GateHistory) -> None:
        self.opened.setdefault(ref, len(gate.checks))

    def _gate_ended(self, event: GateEnded) -> None:
        gate = self.gates.get(event.ref) or GateHistory(ref=event.ref, gate=event.gate)
        state = GateState.PASSED if isinstance(event, GatePassed) else GateState.FAILED
        self.gates[event.ref] = replace(gate, state=state, message=event.message, passed_or_failed_at=event.at)
        if isinstance(event, GatePassed):
            self.opened.pop(event.ref, None)
            self.passed.add(event.ref)
            self.locked_out = self.problem = ""
            self._close_question()
        elif isinstance(event, GateFailed):
            self.passed.discard(event.ref)
            self._open(event.ref, gate)
            self.problem = event.sentence
            if event.ref.node_id is not None:
                self._fail(event, event.ref.node_id, event.reason or event.message, event.gate)

    def _gate_of_node(self, event: GateChecked | GateEnded) -> None:
        """Let a node follow its gates."""
        if event.ref.release_step is None or event.ref.node_id is None:
            return
        key = event.ref.release_step, event.ref.node_id
        stage = NodeStage.WAITING if (node := self.nodes.get(key)) is None else node.stage
        match event:
            case GateChecked():
                if (following := _stage_of(event, stage)) is not None:
                    self._node(*key, event.at, following, note=event.check.waits_for)
            case GatePassed() if event.ref.kind is GateKind.AFTER_START:
                self._node(*key, event.at, NodeStage.DONE, passed_at=event.at, is_down=False)
            case GateFailed():
                self._node(*key, event.at, NodeStage.FAILED, note=event.reason or event.message)

    def _all_stop(self, event: OfflineStopping) -> None:
        self.switch, self.stop_has_begun = event, True
        self.down |= dict.fromkeys(event.voters, event.at)

    def _switched(self, event: LiveLowered | LiveFailed) -> None:
        self.switch = None
        self.down.clear()
        if isinstance(event, LiveFailed):
            self.problem = event.sentence

    def _no_return(self, event: OfflineNoReturn) -> None:
        self.has_no_return = True

    def _undone(self, event: OfflineUndone) -> None:
        self.stop_has_begun = self.has_no_return = False

    def _outage(self, event: OfflineWritable | OfflineServed) -> None:
        if not self.outages or self.outages[-1].served_at is not None:
            return
        last = self.outages[-1]
        if isinstance(event, OfflineWritable):
            self.outages[-1] = replace(last, writable_at=event.at)
        else:
            unserved_at = max(last.unserved_at, event.unserved_at)
            self.outages[-1] = replace(last, served_at=event.at, unserved_at=unserved_at)


_FOLDS: Mapping[type[Event], Sequence[Callable[[RunView, Any], None]]] = {
    StepBegan: (RunView._began,),
    StepEnded: (RunView._ended,),
    StepsSkipped: (RunView._skipped,),
    Planned: (RunView._planned,),
    Asked: (RunView._question, RunView._continues),
    AskingEnded: (RunView._close_question,),
    TakenOver: (RunView._close_question, RunView._continues_in),
    EndedInAirflow: (RunView._in_airflow,),
    ClearedInAirflow: (RunView._continues_in,),
    Approval: (RunView._close_question, RunView._approval, RunView._continues, RunView._turned),
    Voided: (RunView._invalid, RunView._void),
    Unknown: (RunView._invalid,),
    ContentsCompared: (RunView._compared,),
    PauseAsked: (RunView._control,),
    ResumeAsked: (RunView._control,),
    StopAsked: (RunView._control,),
    LockedOut: (RunView._lock,),
    StoppedByOperator: (RunView._operator,),
    RollbackPlanned: (RunView._back,),
    Finalizing: (RunView._unlocked, RunView._continues),
    PreparingStop: (RunView._of_node,),
    StopPrepared: (RunView._of_node,),
    Stopping: (RunView._of_node, RunView._touched, RunView._continues),
    Stopped: (RunView._of_node,),
    Started: (RunView._of_node, RunView._touched, RunView._unlocked, RunView._continues),
    RegistrationsRead: (RunView._registered,),
    GateChecked: (RunView._checked, RunView._gate_of_node),
    GatePassed: (RunView._gate_ended, RunView._gate_of_node),
    GateFailed: (RunView._gate_ended, RunView._gate_of_node),
    OfflineStopping: (RunView._all_stop,),
    LiveLowered: (RunView._switched,),
    LiveFailed: (RunView._switched,),
    OfflineNoReturn: (RunView._no_return,),
    OfflineUndone: (RunView._undone,),
    OfflineWritable: (RunView._outage,),
    OfflineServed: (RunView._outage,),
}


def _stage_of(event: GateChecked, stage: NodeStage) -> NodeStage | None:
    """Return the stage of a node by a check of its gate; None if the check does not change it."""
    if event.ref.kind is GateKind.AFTER_START:
        unmet = {one.name for one in event.check.conditions if not one.is_met}
        starts = NodeStage.STARTING if unmet & {PROCESS, ANSWERS} else NodeStage.CATCHING_UP
        return None if stage is NodeStage.DONE else starts
    # After commands before the stop, a check that does not pass shows that they ended or were killed.
    waits = stage is NodeStage.PREPARING and not event.check.passes
    return NodeStage.GATE_BEFORE if waits or stage not in UNDER_WAY else None


def _why_invalid(event: Event, what: ApprovalOf, plan_hash: str) -> str:
    """Return why an event makes an approval invalid whose text is older; empty if it does not."""
    match event:
        case Unknown():
            return f"{INVALID}: a later entry of the run history (kind {event.recorded_kind}) cannot be read"
        case Voided() if event.plan_hash == plan_hash and what != ApprovalOf.ROLL_BACK:
            return f"{INVALID}: {'; '.join(event.blockers).removesuffix('.')}"
    return ""


def subject_of(asked: Asked) -> str:
    """Return the first line of the request. The other lines can have settings of the cluster."""
    return asked.text.partition("\n")[0].strip()
