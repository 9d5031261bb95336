"""Approvals: the request, the answer of Airflow's record, and its effect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred

from kafka_rollout.airflow.common.answer import APPROVE, ROLL_BACK, AnswerTrigger
from kafka_rollout.airflow.common.asking import Answer, AsksPeople, Question, approvers, ask, read_answer, shown_text
from kafka_rollout.airflow.common.base import (
    RolloutOperator,
    cluster_ports,
    errors_for_airflow,
    frozen_plan,
    request_in,
    skip_if,
)
from kafka_rollout.airflow.common.confirming import keep_answer
from kafka_rollout.airflow.common.deciding import (
    decide_roll_back,
    keep_lock_while_asking,
    require_listed_approver,
)
from kafka_rollout.airflow.common.node_task_groups import NodeTaskGroup
from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.plan import Plan
from kafka_rollout.run.events import APPROVED, REJECTED, Answered, AnswerReceived, ApprovalOf
from kafka_rollout.run.projections.runs import is_plan_refused, newest_answer
from kafka_rollout.run.store.opening import open_run
from kafka_rollout.steps.common.approval import record_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.lock import shorten_lease
from kafka_rollout.steps.step import Step, StepCall

REJECT = "Reject"
_PLAN_AGAIN = "Then clear the task observe with all downstream tasks: the run plans again."


class ApprovalOperator(AsksPeople, RolloutOperator):
    """Request one approval. A rejection or a timeout fails the task, so no later task begins.

    If an answer comes fast on a busy machine, Airflow's scheduler can confuse the end of the process that asked with
    the end of the process that got the answer (its executor has one key for both). It then rejects the writes of the
    lost attempt. So each answer is stored in the run history, and the approver is not asked twice. A cleared task asks
    again.
    """

    def __init__(self, *, step: Step, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if step.approval is None:
            raise TypeError(f"Step {step.id} has no approval.")
        self.step = step
        self.approval = step.approval
        self.what = step.approval.of

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        if request_in(context).dry_run:  # cleared in an attempt to continue it
            raise AirflowFailException(
                "This run is a dry run and changes nothing. Start a new run without the dry run."
            )
        found = newest_answer(ports.run.events(), self.task_id, context["ti"].max_tries, plan.hash)
        if found is not None:
            self.log.info("Airflow lost the attempt that got the answer. The answer is read from Airflow's record.")
            raise TaskDeferred(trigger=AnswerTrigger(record_id=str(context["ti"].id)), method_name="answered")
        self.check(context, ports, plan)
        self._ask(context, ports, plan)

    def answered(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue with the answer, or with its timeout."""
        with errors_for_airflow(), cluster_ports(self.cluster, context) as ports:
            plan = frozen_plan(ports, context)
            if event.get("error_type") == "record":
                self.log.warning("Airflow's record of the answer cannot be used (%s): asked again.", event.get("error"))
                self._ask(context, ports, plan)
            answer = read_answer(context, event, self.approval.subject(plan))
            require_listed_approver(context, ports, answer)
            if not answer.reason:
                self.log.warning("%s chose '%s' without a reason: the request is repeated.", answer.by, answer.option)
                self._ask(context, ports, plan)
            if self._is_recorded(context, ports, plan, answer):
                return self._conclude(context, plan, answer)
            shorten_lease(ports, f"{self.what} of {plan.direction} to {plan.target}: {answer.option}")
            decision = APPROVED if answer.option == APPROVE else REJECTED
            given: Any = {"responder": answer.responder, "text": shown_text(ports, self.task_id)}
            record_approval(ports, self.what, answer.by, decision, answer.reason, **given)
            if answer.option == ROLL_BACK:
                record_approval(ports, ApprovalOf.ROLL_BACK, answer.by, APPROVED, answer.reason, **given)
            ports.run.record(
                Answered(
                    option=answer.option,
                    by=answer.by,
                    reason=answer.reason,
                    task_id=self.task_id,
                    max_tries=context["ti"].max_tries,
                    plan_hash=plan.hash,
                    responder=answer.responder,
                )
            )
            return self._conclude(context, plan, answer)

    def _is_recorded(self, context: Context, ports: ClusterPorts, plan: Plan, answer: Answer) -> bool:
        """Return whether a lost attempt of this task has recorded this answer."""
        found = newest_answer(ports.run.events(), self.task_id, context["ti"].max_tries, plan.hash)
        if not isinstance(found, Answered) or found.responder is None:
            return False
        responder = replace(found.responder, record_id=answer.responder.record_id)  # a retry has another id
        return Answer(option=found.option, reason=found.reason, responder=responder) == answer

    def _conclude(self, context: Context, plan: Plan, answer: Answer) -> dict[str, str]:
        """Carry out the answer. This is the first call that reports to Airflow."""
        gives = {APPROVE: (self.what,), ROLL_BACK: (ApprovalOf.ROLL_BACK,)}
        keep_answer(context, plan.hash, gives.get(answer.option, ()), answer.responder)
        if answer.option == ROLL_BACK:
            decide_roll_back(context, self.task_id, answer)
        if answer.option != APPROVE:
            raise AirflowFailException(f"{answer.by} rejected: {answer.reason}")
        self.log.info("%s approved: %s", answer.by, answer.reason)
        return {"by": answer.by, "reason": answer.reason}

    def before_confirming(self, context: Context) -> None:
        received = AnswerReceived(task_id=self.task_id, max_tries=context["ti"].max_tries)
        open_run(self.cluster, str(context["run_id"])).record(received)

    def _ask(self, context: Context, ports: ClusterPorts, plan: Plan) -> NoReturn:
        timeout = keep_lock_while_asking(context, ports, f"waits for the approval: {self.approval.subject(plan)}")
        question = Question(
            subject=self.approval.subject(plan),
            body=self.body(context, ports, plan),
            options=self.choices(plan),
            users=approvers(context, ports),
        )
        ask(context, ports, question, method="answered", timeout=timeout, text_must_be_present=True)

    def choices(self, plan: Plan) -> tuple[str, ...]:
        """Return the possible answers. If every node already ran the target, there is no node to roll back."""
        return (APPROVE, REJECT, ROLL_BACK) if self._offers_roll_back(plan) else (APPROVE, REJECT)

    def _offers_roll_back(self, plan: Plan) -> bool:
        return self.approval.offers_roll_back and bool(plan.release_steps)

    def check(self, context: Context, ports: ClusterPorts, plan: Plan) -> None:
        """Refuse or skip before the request. This task, cleared alone, would refuse the same plan again."""
        try:
            reason = self.approval.check(self._call(context, ports, plan))
        except RefusedError as error:
            if is_plan_refused(ports.run.events(), plan):
                raise RefusedError(error.sentence, remedy=f"{error.remedy} {_PLAN_AGAIN}") from error
            raise
        skip_if(reason, ports, self.task_id)

    def body(self, context: Context, ports: ClusterPorts, plan: Plan) -> str:
        """Return the Markdown text, always the same for the same plan."""
        body = self.approval.body(self._call(context, ports, plan))
        if self._offers_roll_back(plan):
            body += f"\n\n**{ROLL_BACK}** rolls back every node to {plan.source} instead."
            if self.what is ApprovalOf.FINALIZE:
                body += " A rollback is not possible after this approval."
        return body

    def _call(self, context: Context, ports: ClusterPorts, plan: Plan) -> StepCall:
        return StepCall(ports=ports, request=request_in(context), plan_or_none=plan, log=self.log)


class ApproveCanaryOperator(ApprovalOperator):
    """The approval after the first node, if the run requests it."""

    def __init__(self, *, node_group: NodeTaskGroup, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.node_group = node_group

    def check(self, context: Context, ports: ClusterPorts, plan: Plan) -> None:
        super().check(context, ports, plan)
        # Skipped node task groups are skipped when the release step begins, and run when they are cleared.
        if not self.node_group.is_canary(plan):
            raise AirflowSkipException("Only the first node of the run is a canary.")

    def body(self, context: Context, ports: ClusterPorts, plan: Plan) -> str:
        return (
            f"{self.approval.body(self._call(context, ports, plan))}\n\n- **{APPROVE}**: Replace the other nodes.\n"
            f"- **{REJECT}**: End the run. Nothing is undone.\n- **{ROLL_BACK}**: Roll back the node to "
            f"{plan.release_steps[0].from_release}. Then end the run."
        )
