"""Approvals: the request, the answer of Airflow's record, and its effect."""

from __future__ import annotations

from typing import Any, NoReturn

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.airflow.approvals.airflow_records import keep_answer
from kafka_rollout.airflow.approvals.asking import (
    NEWER_TEXT,
    ask,
    decide_roll_back,
    keep_lock_while_asking,
    lacks_changes,
    read_answer,
    recorded_with,
    shown_body,
    take_lock_after_answer,
    why_ask_again,
)
from kafka_rollout.airflow.common.base import (
    RolloutOperator,
    frozen_plan,
    request_in,
    skip_if,
)
from kafka_rollout.base.errors import RefusedError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.approval_requests import kept_rollback_part, read_doubts
from kafka_rollout.procedure.step import ApprovalStep, StepCall
from kafka_rollout.run.events import ApprovalOf, Decision
from kafka_rollout.run.ports import Question
from kafka_rollout.run.projections.runs import is_plan_refused

_PLAN_AGAIN = "Then clear the task observe with all downstream tasks: the run plans again."


class ApprovalOperator(RolloutOperator):
    """Request one approval. A rejection or a timeout fails the task, so no later task begins.

    A retry and a cleared task ask again: Airflow then removes the earlier answer from its record.
    """

    def __init__(self, *, step: ApprovalStep, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.approval = step.approval
        self.what = step.approval.of

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        run = Run(ports, frozen_plan(ports, context))
        if request_in(context).dry_run:  # cleared in an attempt to continue it
            raise AirflowFailException(
                "This run is a dry run and changes nothing. Start a new run without the dry run."
            )
        self.check(context, run)
        self._ask(context, run, self.body(context, run))

    def answered(self, context: Context, event: dict[str, Any]) -> Any:
        """Record the answer. The task that acts compares it with Airflow's record."""
        with self.working(context) as ports:
            run = Run(ports, frozen_plan(ports, context))
            plan = run.plan
            answer = read_answer(context, event, self.approval.subject(plan))
            chosen = answer.decision.label
            if not answer.reason:
                self.log.warning("%s chose '%s' without a reason: the request is repeated.", answer.by, chosen)
            repeats = lacks_changes(context, ports, answer) or why_ask_again(context, ports, answer)
            if not answer.reason or repeats:
                self._ask(context, run, shown_body(context, ports))
            take_lock_after_answer(context, ports, f"{self.what.noun(plan.direction)} to {plan.target}: {chosen}")
            given = recorded_with(context, ports, answer)
            rolls_back = answer.decision is Decision.ROLL_BACK
            decision = Decision.REJECTED if rolls_back else answer.decision
            doubts = read_doubts(ports.run.events(), self.what, given["text"])
            record_approval(ports, self.what, answer.by, decision, answer.reason, doubts=doubts, **given)
            if rolls_back:
                record_approval(ports, ApprovalOf.ROLL_BACK, answer.by, Decision.APPROVED, answer.reason, **given)
            gives = {Decision.APPROVED: (self.what,), Decision.ROLL_BACK: (ApprovalOf.ROLL_BACK,)}
            keep_answer(context, plan.hash, gives.get(answer.decision, ()), answer.by)
            if rolls_back:
                decide_roll_back(context, self.task_id, answer)
            if answer.decision is not Decision.APPROVED:
                raise AirflowFailException(f"{answer.by} rejected: {answer.reason}")
        self.log.info("%s approved: %s", answer.by, answer.reason)
        return {"by": answer.by, "reason": answer.reason}

    def _ask(self, context: Context, run: Run, body: str) -> NoReturn:
        subject = self.approval.subject(run.plan)
        timeout = keep_lock_while_asking(context, run.ports, f"waits for the approval: {subject}")
        question = Question(
            what=self.what,
            subject=subject,
            body=body,
            options=self.choices(run.plan),
            users=run.cluster.approvers,
        )
        ask(context, run.ports, question, method="answered", timeout=timeout)

    def choices(self, plan: Plan) -> tuple[Decision, ...]:
        """Return the possible answers. If every node already ran the target, there is no node to roll back."""
        roll_back = (Decision.ROLL_BACK,) if self._offers_roll_back(plan) else ()
        return (Decision.APPROVED, Decision.REJECTED, *roll_back)

    def _offers_roll_back(self, plan: Plan) -> bool:
        return self.approval.offers_roll_back and plan.changes_release

    def check(self, context: Context, run: Run) -> None:
        """Refuse or skip before the request. This task, cleared alone, would refuse the same plan again."""
        try:
            reason = self.approval.check(self._call(context, run))
        except RefusedError as error:
            if is_plan_refused(run.history.events(), run.plan):
                raise RefusedError(error.sentence, remedy=f"{error.remedy} {_PLAN_AGAIN}") from error
            raise
        skip_if(reason)

    def body(self, context: Context, run: Run) -> str:
        """Return the Markdown text, always the same for the same plan and the same doubts."""
        body = self.approval.body(self._call(context, run))
        if self._offers_roll_back(run.plan):
            body += f"\n\n**{Decision.ROLL_BACK.label}** rolls back every node to {run.plan.source} instead."
            if self.what is ApprovalOf.FINALIZE:
                body += " A rollback is not possible after this approval."
            body = "\n\n".join([body, *kept_rollback_part(run, self.what)])
        return f"{body}\n\n{NEWER_TEXT}"

    def _call(self, context: Context, run: Run) -> StepCall:
        return StepCall(ports=run.ports, request=request_in(context), plan_or_none=run.plan, log=self.log)
