"""Runner: one run of a procedure in one process. It asks, retries, shows progress and resumes by the run's history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, assert_never

from kafka_rollout.base.errors import (
    FatalError,
    LockBrokenError,
    RefusedError,
    RolloutError,
    SkippedStepError,
    StoppedError,
    TransientError,
    UserError,
)
from kafka_rollout.base.wording import count
from kafka_rollout.control import lock
from kafka_rollout.control.approval import ask, record_approval, require_approval
from kafka_rollout.control.holds import HeldError, end_before_step, refuse_held
from kafka_rollout.gates.gate import Gate, GateCheck, GateKind
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.fields import declared_fields
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.frozen_plan import replace_coordinator_log_findings
from kafka_rollout.preparation.state_comparison import refuse_unaccepted_differences
from kafka_rollout.procedure.approval_requests import EARLIER_RUNS, NODE_LOGS, TEST_TRAFFIC, read_doubts
from kafka_rollout.procedure.kinds import procedure_of
from kafka_rollout.procedure.parts import COMPARE_AFTER_ROLLBACK, OFFLINE, UNDO
from kafka_rollout.procedure.step import (
    Act,
    ActStep,
    AnyStep,
    ApprovalStep,
    EachBatch,
    EachNode,
    GateStep,
    JoinStep,
    Jump,
    JumpStep,
    OnResume,
    Procedure,
    ReplaceStep,
    RunsAfter,
    ScanStep,
    Section,
    Service,
    ServiceStep,
    Step,
    StepCall,
)
from kafka_rollout.roll.gate_checks import policy_of, wait_for_gate
from kafka_rollout.roll.loop import roll_of
from kafka_rollout.roll.walk import RollProgress, roll_back, roll_release_steps, wait_until_back
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Decision,
    StepBegan,
    StepEnded,
    StepOutcome,
    StepsSkipped,
    events_of,
    has,
)
from kafka_rollout.run.ports import Answers, Question, RunServices
from kafka_rollout.run.projections.approvals import find_doubts_of_runs, find_doubts_of_traffic
from kafka_rollout.run.projections.nodes import has_stopped_nodes
from kafka_rollout.run.projections.offline import stop_has_begun
from kafka_rollout.run.projections.open_batches import RollOf
from kafka_rollout.run.projections.runs import has_plan, is_plan_refused
from kafka_rollout.run.step_events import TrafficCompared
from kafka_rollout.run.view import RunView

PLAN = "plan"  # id of the step that freezes the plan

# Terms that a run takes from its plan alone. The gates take the others from the call, at least those of the plan.
_FROZEN_TERMS = frozenset({"pause_after", "skip_conditions"})
_PAUSES = {
    ApprovalOf.PAUSE: ("planned pause", "Approve to continue with the next node."),
    ApprovalOf.SPLIT: (
        "nodes that cannot be stopped together",
        "Approve to restart them in parts that can be stopped together now.",
    ),
}


class ShowsProgress(Protocol):
    """Where a run shows what it does."""

    def __call__(self, progress: RollProgress, /) -> None: ...
    def on_check(self, seen: GateCheck, message: str, /) -> None: ...
    def say(self, line: str, /) -> None: ...


@dataclass(slots=True, kw_only=True)
class Runner:
    """One call of a procedure.

    `results` are what its actions leave, by step. `stop_asked` is asked at safe points: between steps and between
    nodes, never while all nodes are down. `answers` and `services` are the caller's. `started` is called once the lock
    is held, so a call that is refused leaves no run behind.
    """

    ports: ClusterPorts
    procedure: Procedure
    request: Request
    answers: Answers
    services: RunServices
    progress: ShowsProgress
    stop_asked: Callable[[], bool] = field(default=lambda: False)
    started: Callable[[], None] = field(default=lambda: None)
    asks: bool = False
    """This call ended at a question of the plan: the next one needs the answer of an approver."""
    named: frozenset[str] = frozenset()
    """Fields of the request that the caller named. The others have defaults, which ask for no change of a kept plan."""
    results: dict[str, Any] = field(default_factory=dict)
    plan: Plan | None = None
    error: RolloutError | None = None
    stopped: bool = False
    _planned: bool = False  # everything that the plan consists of is known
    _past: str = ""  # a jump skips everything up to this step
    _replans: bool = False  # the run's plan was refused and nothing was changed: it plans again
    _repeats: bool = False  # levels were approved again, so every later step is done again
    _is_replaced: bool = False  # a newer call continues the run
    _scan_failed: RolloutError | None = None  # only a step that runs after anything follows

    def run(self) -> bool:
        """Walk the procedure. True when it is done, False when it stopped at a safe point.

        Raises what a step raised, after the report is written and the lock released.
        """
        if not self.request.dry_run:
            target = f" to {self.request.target}" if self.request.target else ""
            self._take_lock(f"{self.procedure.name.capitalize()}{target}.")
        try:
            self._replans = self._plans_again()
            self._walk(self.procedure.parts, "")
        except BaseException:
            with suppress(RolloutError):
                self.services.stop()
            if not self._planned:
                lock.release_lock(self.ports)
            raise
        lock.release_lock(self.ports)
        if self.error is not None:
            raise self.error
        return not self.stopped

    def roll_back(self, body: str) -> bool:
        """Return the nodes of the run to their previous release, after an approval. True when all are back."""
        plan = self.plan = self.ports.run.load_plan()
        self._planned = True
        self._take_lock(f"Roll back to {plan.source}.")
        try:
            self._ask(Question(what=ApprovalOf.ROLL_BACK, body=body))
            if plan.lowering is Lowering.OFFLINE:
                self._undo()
            else:
                policy = policy_of(self.ports, GateKind.AFTER_START, self.request, plan)
                self.stopped = not roll_back(
                    Run(self.ports, plan),
                    policy,
                    on_progress=self.progress,
                    stop_asked=self.stop_asked,
                    continues=self._continues_at,
                )
                self._step(COMPARE_AFTER_ROLLBACK.id, COMPARE_AFTER_ROLLBACK)
        except StoppedError as stop:
            self._stop(stop)
        except RolloutError as error:
            self.error = error
        for task_id, step in self.procedure:
            if isinstance(step, ServiceStep) and step.service is Service.REPORT:
                self._step(task_id, step)
        lock.release_lock(self.ports)
        if self.error is not None:
            raise self.error
        return not self.stopped

    def _take_lock(self, purpose: str) -> None:
        lock.acquire_lock(self.ports, purpose)
        try:
            self.started()
        except BaseException:
            lock.release_lock(self.ports)
            raise

    @property
    def call(self) -> StepCall:
        """What the next action gets."""
        return StepCall(
            ports=self.ports,
            request=self.request,
            plan_or_none=self.plan,
            results=self.results,
            on_progress=self.progress.say,
        )

    def _walk(self, parts: Sequence[AnyStep | EachBatch | EachNode | Section], prefix: str) -> None:
        for part in parts:
            match part:
                case Step():
                    self._step(prefix + part.id, part)
                case EachNode():
                    self._gates(prefix + part.id)
                case EachBatch():
                    skipped = [self._is_skipped(prefix + step.id) for step in part.steps]
                    if not any(skipped) and self._continues():
                        self._roll(part)
                case Section() if not part.on_decision:  # the command `rollback` is the decision
                    self._walk(part.parts, f"{prefix}{part.id}." if part.prefixes else prefix)

    def _continues(self) -> bool:
        """Return whether the run continues; asks the caller, and the history, for a stop."""
        # While an offline downgrade has all nodes down there is no safe point.
        all_down = (
            self.plan is not None and self.plan.lowering is Lowering.OFFLINE and stop_has_begun(self.ports.run.events())
        )
        if not (self.error or self.stopped or all_down) and self.stop_asked():
            self.stopped = True
        if not (self.error or self.stopped):
            try:
                end_before_step(self.ports)
            except StoppedError as stop:
                self._stop(stop)
        return self.error is None and not self.stopped

    def _is_skipped(self, task_id: str) -> bool:
        """Return whether a jump skips the step; its last step ends the jump."""
        if not self._past:
            return False
        if self._past == task_id:
            self._past = ""
        return True

    def _step(self, task_id: str, step: AnyStep) -> None:
        if self._is_skipped(task_id):
            return
        if isinstance(step, ServiceStep) and step.runs_after is RunsAfter.ANYTHING:
            self._serve(task_id, step)
            return
        if self._scan_failed is not None:
            self.error = None if step.runs_after is RunsAfter.ANYTHING else self._scan_failed
            self._scan_failed = None
        if isinstance(step, JoinStep) or not self._continues() or self._is_kept(task_id, step):
            return
        if self.procedure.follows_changes(task_id):
            lock.release_lock(self.ports)
        try:
            with self._recorded(task_id):
                if reason := step.skip(self.plan, self.request, self.ports.run.events()):
                    raise SkippedStepError(reason)
                self._do(task_id, step)
        except SkippedStepError as reason:
            self.progress.say(f"{step.label} skipped: {reason}")
        except StoppedError as stop:
            self._stop(stop)
        except RolloutError as error:
            if isinstance(step, ScanStep) and isinstance(error, (TransientError, FatalError)):
                self._scan_failed = error  # the plan has a finding for it
                self.progress.say(f"scan: {error}")
            else:
                self.error = error

    def _stop(self, stop: StoppedError) -> None:
        """End the run at a safe point. After the lock was broken, a newer call of the run can have what it left."""
        self.stopped = True
        self.progress.say(stop.sentence)
        holder = self.ports.lock.holder(self.ports.cluster.name)
        is_broken = isinstance(stop, LockBrokenError)
        self._is_replaced = is_broken and holder is not None and holder.holder == self.ports.run_id

    @contextmanager
    def _recorded(self, step: str) -> Iterator[None]:
        """Record the begin of a step and how it ends. A stop by the operator only interrupts it."""

        def end(outcome: StepOutcome, reason: str = "") -> None:
            self.ports.run.record(StepEnded(step=step, outcome=outcome, reason=reason))

        self.ports.run.record(StepBegan(step=step))
        try:
            yield
        except StoppedError:
            raise
        except SkippedStepError as skipped:
            end(StepOutcome.SKIPPED, str(skipped))
            raise
        except RolloutError as error:
            end(StepOutcome.FAILED, str(error))
            raise
        end(StepOutcome.DONE)

    def _do(self, task_id: str, step: AnyStep) -> None:
        if step.progress and not isinstance(step, GateStep):
            self.progress.say(step.progress)
        match step:
            case ApprovalStep():
                self._approve(task_id, step)
                return
            case GateStep():
                self._wait(Gate(kind=step.gate))
            case ScanStep():
                self.results["scanned"] = True
                self.services.scan(step.scan, self.request.releases_ahead(self.plan))
            case ServiceStep(service=Service.START_TRAFFIC):
                self.services.start_traffic()
            case ActStep() if step.id == PLAN and has_plan(self.ports.run.events()) and not self._replans:
                self._keep_plan()
            case ActStep():
                if step.monitored:
                    self.services.monitor_groups()
                self._act(task_id, step, step.act, changes=step.changes)
            case JumpStep(act=act) if act is not None:
                self._act(task_id, step, act)
            case JumpStep() | ServiceStep() | JoinStep() | ReplaceStep():
                pass  # a batch is replaced in `_roll`, and the last steps of a run are served in `_serve`
            case _:
                assert_never(step)
        if step.id == PLAN:
            self._replans = False
        if step.id == PLAN or (self.plan is not None and not self._planned):
            self.plan = self.ports.run.load_plan()  # what scans find becomes part of it
        if isinstance(step, JumpStep):
            self._jump(task_id, step.jump)

    def _jump(self, task_id: str, jump: Jump) -> None:
        """Skip the steps after this one if the jump has a reason."""
        self._planned = True
        if reason := jump.when(self.plan, self.request, self.ports.run.events()):
            self._past = jump.past
            skipped = self.procedure.between(task_id, jump.past)
            self.ports.run.record(StepsSkipped(steps=skipped, reason=reason))
            if self.request.dry_run:
                self.answers.show(self.procedure.dry_run_body(self.call))

    def _act(self, task_id: str, step: Step, act: Act, *, changes: bool = False) -> None:
        found = self._try(step, act, changes=changes)
        self.results.setdefault(task_id, found)  # an action can have left more than its XCom

    def _try(self, step: Step, act: Act, *, changes: bool = False) -> Any:
        """Try the action as often as its limits say; a run that does not wait tries once. Wait while it is held."""
        left = step.limits.retries if self.request.waits else 0
        while True:
            try:
                if changes:
                    refuse_held(self.call.run)
                with lock.keep_lock(self.ports):
                    return act(self.call)
            except HeldError as held:
                if not self.request.waits:
                    raise
                self._wait(held.gate)
            except TransientError as error:
                if not left:
                    raise
                left -= 1
                self.progress.say(f"again in {step.limits.pause_s:.0f} s: {error.sentence}")
                self.ports.clock.sleep(step.limits.pause_s)

    def _serve(self, task_id: str, step: ServiceStep) -> None:
        """Perform the last steps of a run, also of a failed one. Lost test records fail the run.

        The report is no entry of the history that it shows.
        """
        if self._is_replaced or step.skip(self.plan, self.request, self.ports.run.events()):
            return
        try:
            if step.service is Service.STOP_TRAFFIC:
                with suppress(SkippedStepError), self._recorded(task_id):
                    self._stop_traffic()
            elif step.service is Service.REPORT and self._planned:
                lock.release_lock(self.ports)
                self.services.report(dry_run=self.request.dry_run)
        except RolloutError as error:
            self.error = self.error or error

    def _stop_traffic(self) -> None:
        self.services.stop()
        if not has(self.ports.run.events(), TrafficCompared):
            raise SkippedStepError("This run has no test traffic.")

    def _is_kept(self, task_id: str, step: Step) -> bool:
        if self._replans or self._repeats or step.on_resume is OnResume.REPEAT:
            return False
        if task_id not in RunView.of(self.ports.run.events()).finished:
            return False
        if step.id == PLAN:  # the request must fit it
            self._keep_plan()
        return step.on_resume is OnResume.KEEP or bool(events_of(self.ports.run.events(), Approval))

    def _plans_again(self) -> bool:
        """Return whether this call resumes a run whose plan was refused before the run changed anything."""
        events = self.ports.run.events()
        if (self.procedure.name == RunOf.FEATURES and self.request.action is None) or not has_plan(events):
            return False
        plan = self.ports.run.load_plan()
        self._refuse_other_request(plan)
        return is_plan_refused(events, plan)

    def _keep_plan(self) -> None:
        """Load the plan of a resumed run. A newer scan adds its findings."""
        plan = self.ports.run.load_plan()
        self._refuse_other_request(plan)
        self._refuse_other_terms(plan)
        asked = self.request.accepted_topics
        if not set(asked) <= set(plan.accept_unavailable):
            raise UserError(
                f"The plan of run {self.ports.run.number} does not accept that these topics are unavailable: "
                f"{', '.join(sorted(set(asked) - set(plan.accept_unavailable)))}.",
                remedy="Start a new run to accept them.",
            )
        most, batches = self.request.max_batch_size, [one for step in plan.release_steps for one in step.batches]
        if most > 1 and plan.release_steps and (not batches or max(len(one.node_ids) for one in batches) > most):
            raise UserError(
                f"The plan of run {self.ports.run.number} was not made with batches of at most {most} nodes.",
                remedy="Omit --max-batch-size, or start a new run.",
            )
        if self.results.get("scanned") and plan.release_steps and not has_stopped_nodes(self.ports.run.events()):
            plan = replace_coordinator_log_findings(Run(self.ports, plan))
        self.plan = plan

    def _refuse_other_request(self, plan: Plan) -> None:
        kept = procedure_of(self.ports.run.events())
        if kept.name != self.procedure.name or (self.request.target and plan.target != self.request.target):
            raise UserError(
                f"Run {self.ports.run.number} is a {kept.name} run to {plan.target}.",
                remedy="Omit --run to start a new run.",
            )

    def _refuse_other_terms(self, plan: Plan) -> None:
        """Refuse what the approved plan decides in another way, so that no option is passed over in silence."""
        for name in sorted(self.named & _FROZEN_TERMS) if plan.terms is not None else ():
            planned, asked = getattr(plan.terms, name), getattr(self.request, name)
            if asked != planned:
                option = next(one.option for one in declared_fields(type(self.request)) if one.name == name)
                raise UserError(
                    f"The plan of run {self.ports.run.number} was made with another value of {option}: "
                    f"{planned if planned or planned == 0 else 'none'}.",
                    remedy=f"Omit {option}, or start a new run.",
                )

    def _approve(self, task_id: str, step: ApprovalStep) -> None:
        self._planned = True
        if reason := self._try(step, step.approval.check):
            raise SkippedStepError(reason)
        of = step.approval.of
        body = step.approval.body(self.call)
        hidden = {} if of is ApprovalOf.DIFFERENCES else dict(self.call.plan.hidden)
        doubts = read_doubts(self.ports.run.events(), of, body)
        lost = set(doubts) & {*find_doubts_of_traffic(self.ports.run.events())}
        left = set(doubts) & {*find_doubts_of_runs(self.ports.run.events())}
        if of_logs := len(set(doubts) - lost - left):
            hidden[NODE_LOGS] = f"{count(of_logs, 'doubt')} about logs of nodes (see the list above)"
        if lost:
            hidden[TEST_TRAFFIC] = f"{count(len(lost), 'line')} about lost or unknown test records (see the list above)"
        if left:
            hidden[EARLIER_RUNS] = f"{count(len(left), 'line')} that no approver accepted (see the list above)"
        self._ask(Question(what=of, body=body, hidden=hidden), task_id)
        self._repeats = self._repeats or of is ApprovalOf.FINALIZE

    def _ask(self, question: Question, task_id: str = "") -> None:
        """Ask, and record the answer. Without an answer the run needs an approval in its history."""
        plan = self.call.plan
        answer = ask(self.ports, self.answers, question, task_id=task_id)
        if answer is None and question.what is ApprovalOf.DIFFERENCES:
            refuse_unaccepted_differences(Run(self.ports, plan))
        if answer is None:
            require_approval(Run(self.ports, plan), question.what)
            return
        shown: Any = {"responder": answer.responder, "text": question.body, "accepted": answer.accepted}
        shown["doubts"] = read_doubts(self.ports.run.events(), question.what, question.body)
        record_approval(self.ports, question.what, answer.by, answer.decision, answer.reason, **shown)
        if answer.decision != Decision.APPROVED:
            stopped = has_stopped_nodes(self.ports.run.events())
            state = "The cluster stays in its current state." if stopped else "Nothing was changed."
            raise RefusedError(f"{answer.by} did not approve the {question.what.noun()}.", remedy=state)

    def _roll(self, each: EachBatch) -> None:
        plan = self.call.plan
        if plan.lowering is Lowering.OFFLINE or not plan.release_steps:
            return
        self.services.monitor_groups()
        try:
            self.stopped = not roll_release_steps(
                Run(self.ports, plan),
                policy_of(self.ports, GateKind.AFTER_START, self.request, plan),
                on_progress=self.progress,
                stop_asked=self.stop_asked,
                continues=self._continues_at,
            )
        except StoppedError as stop:
            self._stop(stop)
        except RolloutError as error:
            self.error = error

    def _continues_at(self, what: ApprovalOf, why: str, has_replaced: bool) -> bool:
        """Ask at a pause of the plan, or for a batch that cannot be stopped together."""
        title, effect = _PAUSES[what]
        if has_replaced and not self.answers.present:
            self.progress.say(f"{title}: {why} Check the cluster, then continue with the next call")
            self.asks = True
            return False
        body = f"**{title.capitalize()}**\n\n{why}\n\n{effect}"
        answer = ask(self.ports, self.answers, Question(what=what, body=body))
        if answer is None:
            self.progress.say(f"{title}: {why} The run waits for the answer of an approver")
            self.asks = True
            return False
        shown: Any = {"responder": answer.responder, "text": body}
        record_approval(self.ports, what, answer.by, answer.decision, answer.reason, **shown)
        if answer.decision != Decision.APPROVED:
            raise RefusedError(f"{answer.by} did not continue the run.", remedy="Continue it later, or roll it back.")
        return True

    def _undo(self) -> None:
        """Undo an offline downgrade: restore, then the gates."""
        for part in UNDO.parts:
            match part:
                case EachNode():
                    self._wait_for_nodes(RollOf.OFFLINE_UNDO)
                case ActStep() if part is COMPARE_AFTER_ROLLBACK:
                    self._step(f"{OFFLINE}.{UNDO.id}.{part.id}", part)
                case ActStep():
                    with self._recorded(f"{OFFLINE}.{UNDO.id}.{part.id}"):
                        self.progress.say(part.progress)
                        part.act(self.call)

    def _gates(self, task_id: str) -> None:
        """Wait for the gates of all nodes after an offline step, controllers first."""
        if self._is_skipped(task_id) or not self._continues():
            return
        try:
            self._wait_for_nodes(RollOf.OFFLINE)
        except StoppedError as stop:
            self._stop(stop)
        except RolloutError as error:
            self.error = error

    def _wait_for_nodes(self, of: RollOf) -> None:
        roll = roll_of(self.call.run, of)
        policy = policy_of(self.ports, GateKind.AFTER_START, self.request, self.plan)
        for batch in roll.batches:
            wait_until_back(roll, batch, policy, lambda gate, seen, message: self._on_check(seen, message))

    def _wait(self, gate: Gate) -> None:
        policy = policy_of(self.ports, gate.kind, self.request, self.plan)
        wait_for_gate(self.call.run, gate, policy, self._on_check)

    def _on_check(self, seen: GateCheck, message: str) -> None:
        self.progress.on_check(seen, message)
        if seen.is_held and not self._continues():
            raise StoppedError("The run was stopped while it was held.", remedy="Continue it, or roll it back.")
