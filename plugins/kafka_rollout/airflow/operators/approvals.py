"""Approvals: approver, the approved text, and the reason."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_rollout.airflow.common.asking import Answer, Question, approvers, ask, read_answer
from kafka_rollout.airflow.common.base import RolloutOperator, cluster_ports, errors_for_airflow, frozen_plan
from kafka_rollout.airflow.common.deciding import ROLL_BACK, hold_while_asking, leave_roll_back
from kafka_rollout.airflow.common.node_task_groups import NodeTaskGroup

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_rollout.domain.model.plan import Plan
    from kafka_rollout.steps.common.cluster_ports import ClusterPorts

APPROVE = "Approve"
REJECT = "Reject"


class ApprovalOperator(RolloutOperator):
    """Request one approval. A rejection or a timeout fails the task, so no later task begins."""

    what: ClassVar[str]  # an ApprovalOf

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        if context["params"]["dry_run"]:  # cleared in an attempt to continue it
            raise AirflowFailException(
                "This run is a dry run and changes nothing. Start a new run without the dry run."
            )
        if (answer := self._answer_of_lost_try(context, ports, plan)) is not None:
            self.log.info("%s chose '%s' in an attempt of this task that Airflow lost.", answer.by, answer.option)
            return self._conclude(context, answer)
        self.check(context, ports, plan)
        self._ask(context, ports, plan)

    def answered(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue with the answer, or with its timeout."""
        from kafka_rollout.domain.run.events import APPROVED, REJECTED, Answered, ApprovalOf
        from kafka_rollout.steps.common.approval import record_approval
        from kafka_rollout.steps.common.lock import shorten_lease

        with errors_for_airflow(), cluster_ports(self.cluster, context) as ports:
            plan = frozen_plan(ports, context)
            answer = read_answer(event, self.subject(plan))
            if not answer.reason:
                self.log.warning("%s chose '%s' without a reason: the request is repeated.", answer.by, answer.option)
                self._ask(context, ports, plan)
            shorten_lease(ports, f"{self.what} of {plan.direction} to {plan.target}: {answer.option}")
            decision = APPROVED if answer.option == APPROVE else REJECTED
            record_approval(ports, self.what, answer.by, decision, answer.reason)
            if answer.option == ROLL_BACK:
                record_approval(ports, ApprovalOf.ROLL_BACK, answer.by, APPROVED, answer.reason)
            ports.run.record(
                Answered(
                    option=answer.option,
                    by=answer.by,
                    reason=answer.reason,
                    task_id=self.task_id,
                    max_tries=context["ti"].max_tries,
                    plan_hash=plan.hash,
                )
            )
            return self._conclude(context, answer)

    def _conclude(self, context: Context, answer: Answer) -> dict[str, str]:
        """Carry out the answer; the first call that reports to Airflow."""
        if answer.option == ROLL_BACK:
            leave_roll_back(context, self.task_id, answer)
        return self._decided(answer)

    def _answer_of_lost_try(self, context: Context, ports: ClusterPorts, plan: Plan) -> Answer | None:
        """Return an answer whose task Airflow lost immediately after it was given.

        Airflow's scheduler can confuse the end of the process that asked with the end of the process that got the
        answer (its executor has one key for both), if an answer comes fast on a busy machine. It then rejects what the
        lost attempt writes. So the answer is stored in the run history, and the approver is not asked twice. A cleared
        task asks again. So does a run that was deleted in Airflow and triggered with the same id, which continues the
        same history.
        """
        from kafka_rollout.domain.run.projections.runs import answer_of

        found = answer_of(ports.run.events(), self.task_id, context["ti"].max_tries, plan.hash)
        return None if found is None else Answer(option=found.option, by=found.by, reason=found.reason)

    def _decided(self, answer: Answer) -> dict[str, str]:
        if answer.option != APPROVE:
            raise AirflowFailException(f"{answer.by} rejected: {answer.reason}")
        self.log.info("%s approved: %s", answer.by, answer.reason)
        return {"by": answer.by, "reason": answer.reason}

    def _ask(self, context: Context, ports: ClusterPorts, plan: Plan) -> NoReturn:
        timeout = hold_while_asking(context, ports, f"waits for the approval: {self.subject(plan)}")
        ask(
            context,
            Question(
                subject=self.subject(plan),
                body=self.body(context, ports, plan),
                options=self.choices(plan),
                users=approvers(ports.cluster.approvers, context["params"]["approvers"] or ()),
            ),
            method="answered",
            timeout=timeout,
            text_must_be_present=True,
        )

    def choices(self, plan: Plan) -> tuple[str, ...]:
        """Return the possible answers."""
        return (APPROVE, REJECT)

    def check(self, context: Context, ports: ClusterPorts, plan: Plan) -> None:
        """Refuse or skip before the request."""

    @abstractmethod
    def subject(self, plan: Plan) -> str: ...

    @abstractmethod
    def body(self, context: Context, ports: ClusterPorts, plan: Plan) -> str:
        """Return the Markdown text, always the same for the same plan."""


class ApprovePlanOperator(ApprovalOperator):
    """The approval of the plan and its findings. With blockers it refuses and does not ask."""

    what = "roll"

    def check(self, context: Context, ports: ClusterPorts, plan: Plan) -> None:
        from kafka_rollout.steps.common.approval import refuse_blockers
        from kafka_rollout.steps.planning.check import refuse_new_blockers

        refuse_blockers(plan)
        if not plan.release_steps:
            raise AirflowSkipException(f"Every node already runs {plan.target}: no node has to be replaced.")
        refuse_new_blockers(ports, plan, waits=True)

    def subject(self, plan: Plan) -> str:
        return f"Upgrade {plan.cluster} from {plan.source} to {plan.target}?"

    def body(self, context: Context, ports: ClusterPorts, plan: Plan) -> str:
        from kafka_rollout.steps.common.approval import approval_body

        return approval_body(plan, what=self.what)


class ApproveCanaryOperator(ApprovalOperator):
    """The approval after the first node, if the run requests it."""

    what = "canary"

    def __init__(self, *, slot: NodeTaskGroup, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.slot = slot

    def choices(self, plan: Plan) -> tuple[str, ...]:
        return (APPROVE, REJECT, ROLL_BACK)

    def check(self, context: Context, ports: ClusterPorts, plan: Plan) -> None:
        # Skipped groups are skipped when the release step begins, and run when they are cleared.
        if not (context["params"]["canary_approval"] and self.slot.is_canary(plan)):
            raise AirflowSkipException("Only the first node of a run with canary approval needs this approval.")

    def subject(self, plan: Plan) -> str:
        return f"{plan.cluster}: the first node runs {plan.release_steps[0].to_release}. Continue with the other nodes?"

    def body(self, context: Context, ports: ClusterPorts, plan: Plan) -> str:
        from kafka_rollout.steps.common.approval import canary_body

        return (
            f"{canary_body(plan)}\n\n- **{APPROVE}**: replace the other nodes\n- **{REJECT}**: end the run in "
            f"its current state\n- **{ROLL_BACK}**: roll back the node to "
            f"{plan.release_steps[0].from_release}; then end the run"
        )


class ApproveFinalizeOperator(ApprovalOperator):
    """The point of no return: the loss of each feature's new level, and whether Kafka can undo it."""

    what = "finalize"

    def __init__(self, *, scan_task: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scan_task = scan_task

    def choices(self, plan: Plan) -> tuple[str, ...]:
        # A run that found all nodes upgraded has no node to roll back.
        return (APPROVE, REJECT, ROLL_BACK) if plan.release_steps else (APPROVE, REJECT)

    def check(self, context: Context, ports: ClusterPorts, plan: Plan) -> None:
        from kafka_rollout.steps.common.approval import refuse_blockers
        from kafka_rollout.steps.features.levels import pending_changes
        from kafka_rollout.steps.planning.check import refuse_new_blockers

        refuse_blockers(plan)
        refuse_new_blockers(ports, plan)
        if not pending_changes(ports, plan):
            raise AirflowSkipException("Every planned level is already finalized.")

    def subject(self, plan: Plan) -> str:
        return f"Finalize the features of {plan.cluster} at {plan.target}? This is the point of no return."

    def body(self, context: Context, ports: ClusterPorts, plan: Plan) -> str:
        from kafka_rollout.steps.common.approval import approval_body
        from kafka_rollout.steps.features.levels import check_support, undo_by_controller

        support = check_support(ports, plan)
        if not support.ok:
            raise AirflowFailException(" ".join(str(finding) for finding in support.blockers))
        scan = context["ti"].xcom_pull(task_ids=self.scan_task) or {}
        shown = replace(plan, feature_changes=undo_by_controller(ports, plan))
        body = approval_body(shown, support, what=self.what, scan=str(scan.get("sentence", "")))
        body = body.replace(shown.hash[:12], plan.hash[:12])  # the approval is for this plan
        if plan.release_steps:
            body += (
                f"\n\n**{ROLL_BACK}** rolls back every node to {plan.source} instead. After this approval a "
                "rollback is not possible."
            )
        return body
