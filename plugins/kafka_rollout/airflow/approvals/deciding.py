"""Decisions after a failure before finalizing: wait on, retry or roll back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.airflow.approvals.asking import approvers, ask, newest_request
from kafka_rollout.airflow.approvals.records import ENDS_PAUSE, keep_answer
from kafka_rollout.base.outside_text import escape_markdown
from kafka_rollout.run.events import OF_ROLLS, Approval, ApprovalOf, Decision
from kafka_rollout.run.ports import Answer, Question
from kafka_rollout.steps.common.approval import record_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.lock import LEASE_S, acquire_lock, shorten_lease

NO_REASON = "no reason given"

_MEANINGS = {
    Decision.WAIT_ON: "Keep checking the gate for another gate timeout.",
    Decision.RETRY: "Start the node again, then keep checking the gate.",
    Decision.ROLL_BACK: (
        "Roll back every node that left its previous release, through the same gates. Then end the run."
    ),
    Decision.STOP_HERE: "Fail this task and end the run. Nothing is undone. To continue, clear the task.",
}

ROLL_BACK_DECISION = "roll_back_decision"  # XCom of the task with the decision to roll back


def ask_how_to_continue(
    context: Context,
    ports: ClusterPorts,
    *,
    what: str,
    why: str,
    options: Sequence[Decision],
    meanings: Mapping[Decision, str] | None = None,
    subject: str = "",
    note: str = "",
    is_pause: bool = False,
) -> NoReturn:
    """Park the task until an approver decides; it resumes at `decided`. The run keeps the cluster's lock for this time.

    `meanings`: texts of options that have a different effect here than at the gate after a node's start. `subject`, by
    default what failed, and `note` must stay true for every request of the task: Airflow shows those of the first one.
    `is_pause`: nothing failed, the plan pauses here.
    """
    happened = "pauses" if is_pause else "failed"
    timeout = keep_lock_while_asking(context, ports, f"{what} {happened} and waits for a decision")
    texts = {**_MEANINGS, **(meanings or {})}
    body = (
        f"**At {datetime.now(UTC):%H:%M:%S} UTC:** {escape_markdown(why)}",
        *((note,) if note else ()),
        "\n".join(f"- **{option}**: {texts[option]}" for option in options),
        "Airflow does not update this text. For the current state, see the task log, the task state store (key "
        "`waits_for`) or the page *Kafka rollout*.",
    )
    question = Question(
        what=ApprovalOf.FAILED_GATE,
        subject=f"{ports.cluster.name}: {subject or f'{what} {happened}'}. How to continue?",
        body="\n\n".join(body),
        options=tuple(options),
        users=approvers(context, ports),
        is_pause=is_pause,
    )
    ask(context, ports, question, method="decided", timeout=timeout)


def keep_lock_while_asking(context: Context, ports: ClusterPorts, purpose: str) -> timedelta:
    """Keep the cluster's lock until the approval timeout; return this time."""
    timeout = timedelta(hours=float(context["params"]["approval_timeout_hours"]))
    acquire_lock(ports, purpose, for_s=timeout.total_seconds() + LEASE_S)
    return timeout


def record_decision(context: Context, ports: ClusterPorts, what: str, answer: Answer) -> Approval:
    """Record the decision. Rolling back and stopping fail the task, so no later task begins.

    An answer that continues ends the pause of the plan that the request was about.
    """
    asked = newest_request(ports, context["task"].task_id)
    reason = answer.reason or NO_REASON
    shorten_lease(ports, f"{what}: {answer.decision}")
    given = recorded_with(context, ports, answer)
    ends_pause = asked is not None and asked.is_pause and answer.decision in ENDS_PAUSE
    if ends_pause:
        record_approval(ports, ApprovalOf.PAUSE, answer.by, Decision.APPROVED, f"{what}: {reason}", **given)
    decided = record_approval(ports, ApprovalOf.FAILED_GATE, answer.by, answer.decision, f"{what}: {reason}", **given)
    gives = {Decision.ROLL_BACK: (ApprovalOf.ROLL_BACK,), Decision.RETRY: OF_ROLLS}.get(answer.decision, ())
    if gives or ends_pause:  # another answer keeps what an earlier one of this task gave
        keep_answer(context, decided.plan_hash, (*gives, ApprovalOf.PAUSE) if ends_pause else gives, answer.by)
    if answer.decision is Decision.ROLL_BACK:
        record_approval(ports, ApprovalOf.ROLL_BACK, answer.by, Decision.APPROVED, f"{what}: {reason}", **given)
        decide_roll_back(context, what, answer)
    if answer.decision is Decision.STOP_HERE:
        raise AirflowFailException(f"{answer.by} stopped the run at {what}: {reason}.")
    return decided


def recorded_with(context: Context, ports: ClusterPorts, answer: Answer) -> Any:
    """Return what `record_approval` needs of an answer in Airflow: who answered, the text, and who can answer now."""
    asked = newest_request(ports, context["task"].task_id)
    return {
        "responder": answer.responder,
        "text": "" if asked is None else asked.text,
        "of_run": approvers(context, ports),
    }


def decide_roll_back(context: Context, what: str, answer: Answer) -> NoReturn:
    """Store the decision for the group `roll_back`, and fail this task."""
    context["ti"].xcom_push(key=ROLL_BACK_DECISION, value={"by": answer.by, "reason": answer.reason, "what": what})
    raise AirflowFailException(f"{answer.by} decided at {what} to roll back: {answer.reason or NO_REASON}.")
