"""Requests from within a task, repeated if needed, and decisions after a failure before finalizing.

Airflow's own HITLOperator asks once and ends with the answer. A gate must be able to check, ask, check again and ask
again in one task, so that clearing and reading a run stay simple. It uses the same mechanism: the request is written,
the task is parked in `awaiting_input` (no worker, no triggerer), and an answer resumes it at a method.

The event with the answer is a claim. A task that acts compares it with Airflow's own record (`airflow_records.py`).

Airflow keeps the text of a task's first request permanently, also when the task is cleared. A later request adds what
has changed since. The page of the run shows that text, and an answer there names it; one in Airflow's form names the
first text. So an answer accepts what the text that it names lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from airflow.sdk import Context, Param
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput

from kafka_rollout.airflow.approvals.airflow_records import (
    ENDS_PAUSE,
    REQUEST,
    keep_answer,
    map_index_of,
    place_of,
    request_name,
)
from kafka_rollout.airflow.private_api import request_answer
from kafka_rollout.base.outside_text import escape_markdown, is_listed
from kafka_rollout.base.time_limits import LEASE_S
from kafka_rollout.control.approval import accept_doubts, record_approval
from kafka_rollout.control.lock import acquire_lock, shorten_lease
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.approval_requests import doubts_part, rollback_part, unlisted_of_rollback
from kafka_rollout.procedure.kinds import KINDS, run_of_dag
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Asked,
    Channel,
    Decision,
    Event,
    Responder,
    RollbackAskedAgain,
    events_of,
)
from kafka_rollout.run.ports import Answer, Question
from kafka_rollout.run.projections.approvals import find_doubts

REASON = "reason"
WAITS_FOR = "waits_for"  # key in the task's state store (a tab of the task in Airflow's UI)
PLAN_TASK = "plan"  # its XCom contains the hash of the frozen plan
NO_REASON = "no reason given"

CHANGED = "### Changed since the first text of this request"
NEWER_TEXT = (
    "Airflow does not update this text. The page *Kafka rollout* shows what has changed since, and takes answers to it."
)
_NO_LONGER = "No longer so:"
_MOST_ACCEPTED = 200  # lines of a request
_CLEAR_TASK = "To continue, clear the task."
GATE_MEANINGS: Mapping[Decision, str] = {
    Decision.WAIT_ON: "Keep checking the gate for another gate timeout.",
    Decision.ACCEPT: (
        "Accept what the log of a node shows, or does not show, if the gate waits for nothing else. Read the log "
        "first: a client can write lines that look like errors. A layout that gates cannot read is accepted once for "
        "all brokers."
    ),
    Decision.RETRY: "Start the node again, then keep checking the gate.",
    Decision.ROLL_BACK: (
        "Roll back every node that left its previous release, through the same gates. Then end the run."
    ),
    Decision.STOP_HERE: f"Fail this task and end the run. Nothing is undone. {_CLEAR_TASK}",
}

_GIVES: Mapping[Decision, tuple[ApprovalOf, ...]] = {
    Decision.ROLL_BACK: (ApprovalOf.ROLL_BACK,),
    Decision.RETRY: (ApprovalOf.ROLL,),
    Decision.ACCEPT: (ApprovalOf.NODE_LOG,),
}
ROLL_BACK_DECISION = "roll_back_decision"  # XCom of the task with the decision to roll back


def frozen_hash(context: Context) -> str:
    """Return the hash of the plan that the first task of the run froze."""
    planned = context["ti"].xcom_pull(task_ids=PLAN_TASK)
    if not planned:
        raise AirflowFailException(f"Task {PLAN_TASK} of this run stored no plan. Clear it, or start a new run.")
    return str(planned["plan_hash"])


def ask(
    context: Context,
    ports: ClusterPorts,
    question: Question,
    *,
    method: str,
    timeout: timedelta | None,
) -> NoReturn:
    """Park the task until a user answers; it resumes at `method` with the answer as its event.

    The run history keeps the text that Airflow shows, with what has changed since Airflow showed it first.
    """
    reason = Param(
        "", type="string", title="Reason", description="Reason as a sentence. It is stored in the run history."
    )
    text = text_of(question.subject, question.body)
    name = request_name(ports.run.number, place_of(context), question.what, text)
    request = Param(name, type="string", const=name, title="Request", description="What you answer. Leave it as it is.")
    subject, body = request_answer(
        context["ti"].id,
        subject=question.subject,
        body=question.body,
        options=[option.label for option in question.options],
        params={REASON: reason.serialize(), REQUEST: request.serialize()},
        users=question.users,
    )
    question = with_changes(question, subject, body)
    if question.body != body:
        context["task"].log.warning(
            "Airflow's form shows the text of the first request. The page *Kafka rollout* shows what has changed, and "
            "takes answers to it: %s",
            question.body[len(body) :],
        )
    record_question(context, ports, question, timeout)
    options = ", ".join(option.label for option in question.options)
    show_waiting(context, f"an answer: {question.subject} ({options})")
    kwargs = {"then": method, "plan_hash": frozen_hash(context)}
    raise TaskAwaitingInput(method_name="confirm_answer", kwargs=kwargs, timeout=timeout)


def record_question(
    context: Context, ports: ClusterPorts, question: Question, timeout: timedelta | None = None
) -> None:
    """Record in the run history which text is shown to which users, and until when they can answer."""
    event = Asked(
        what=question.what,
        task_id=context["task"].task_id,
        map_index=map_index_of(context),
        record_id=str(context["ti"].id),
        text=text_of(question.subject, question.body),
        options=tuple(option.label for option in question.options),
        users=question.users,
        answer_by=0.0 if timeout is None else ports.clock.now() + timeout.total_seconds(),
        is_pause=question.is_pause,
    )
    ports.run.record(event)


def text_of(subject: str, body: str) -> str:
    """Return the text of a request as the run history has it."""
    return f"{subject}\n\n{body}"


def with_changes(question: Question, subject: str, body: str) -> Question:
    """Return the question with the text that Airflow keeps, and after it the lines that are new or no longer so.

    `subject`, `body`: of Airflow's record. A repeated question has the record's text already.
    """
    first, current = text_of(subject, body), text_of(question.subject, question.body)
    if current.startswith(first):
        return question
    new, old = (
        [line for line in one.splitlines() if line.strip() and line not in other.splitlines()]
        for one, other in ((current, first), (first, current))
    )
    added = [CHANGED, *new, *([_NO_LONGER] if old else ()), *(f"> {line}" for line in old)] if new else ()
    return replace(question, subject=subject, body="\n\n".join([body, *added]))


def newest_request(context: Context, ports: ClusterPorts) -> Asked | None:
    """Return the newest request of this task instance; None if the run history has none."""
    asked = _requests(context, ports)
    return asked[-1] if asked else None


def _requests(context: Context, ports: ClusterPorts) -> list[Asked]:
    own = (context["task"].task_id, map_index_of(context))
    return [event for event in events_of(ports.run.events(), Asked) if (event.task_id, event.map_index) == own]


def answered_request(context: Context, ports: ClusterPorts, answer: Answer) -> Asked | None:
    """Return the request of this task instance that an answer names; the newest if it names none of them."""
    requests, place, run = _requests(context, ports), place_of(context), ports.run.number
    named = (one for one in reversed(requests) if request_name(run, place, one.what, one.text) == answer.request)
    return next(named, requests[-1] if requests else None)


def lacks_changes(context: Context, ports: ClusterPorts, answer: Answer) -> bool:
    """Return whether an answer approves a text to which a later request of the task added lines."""
    named, newest = answered_request(context, ports, answer), newest_request(context, ports)
    if named is None or newest is None or answer.decision is not Decision.APPROVED:
        return False
    if set(newest.text.splitlines()) <= set(named.text.splitlines()):
        return False
    context["task"].log.warning(
        "%s approved the first text of the request, and it has changed since. The request is repeated: answer on the "
        "page *Kafka rollout*, which shows the changes.",
        answer.by,
    )
    return True


def shown_body(context: Context, ports: ClusterPorts) -> str:
    """Return the body of the newest request of this task instance. A repeated request has it too: to build the text
    again would fail while a node does not respond, and a rollback must stay possible.
    """
    asked = newest_request(context, ports)
    return "" if asked is None else asked.text.partition("\n\n")[2]


def is_answer(event: Mapping[str, Any]) -> bool:
    """Return whether an answer or its timeout resumed the task, and not a trigger."""
    return "chosen_options" in event or "error_type" in event


def read_answer(context: Context, event: Mapping[str, Any], question: str) -> Answer:
    """Return the answer of an event; fail the task if no user answered in time."""
    user = event.get("responded_by_user")
    if not event.get("chosen_options") or user is None or event.get("timedout"):
        raise AirflowFailException(
            f"There was no answer in time: {question}. A timeout never counts as approval. Clear this task to "
            "ask again."
        )
    return Answer(
        by=str(user["id"]),
        decision=Decision.of_label(str(event["chosen_options"][0])),
        reason=str((event.get("params_input") or {}).get(REASON) or "").strip(),
        request=str((event.get("params_input") or {}).get(REQUEST) or ""),
        responder=Responder(
            channel=Channel.AIRFLOW,
            user=str(user["id"]),
            name=str(user["name"]),
            record_id=str(context["ti"].id),
            answered_at=event["responded_at"].timestamp(),
        ),
    )


def show_waiting(context: Context, waits_for: str) -> None:
    """Write to the log and to the task's state store what the task waits for."""
    context["task"].log.info("Waits for %s", waits_for)
    context["task_state_store"].set(WAITS_FOR, waits_for)


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
    texts = {**GATE_MEANINGS, **(meanings or {})}
    body = (
        f"**At {datetime.now(UTC):%H:%M:%S} UTC:** {escape_markdown(why)}",
        *((note,) if note else ()),
        "\n".join(f"- **{option}**: {texts[option]}" for option in options),
        *((_acceptable(find_doubts(ports.run.events())),) if Decision.ACCEPT in options else ()),
        *(rollback_part(Run(ports, ports.run.load_plan())) if Decision.ROLL_BACK in options else ()),
        NEWER_TEXT,
    )
    question = Question(
        what=ApprovalOf.FAILED_GATE,
        subject=f"{ports.cluster.name}: {subject or f'{what} {happened}'}. How to continue?",
        body="\n\n".join(body),
        options=tuple(options),
        users=ports.cluster.approvers,
        is_pause=is_pause,
    )
    ask(context, ports, question, method="decided", timeout=timeout)


def keeps_lock(context: Context) -> bool:
    """Return whether the run can still change the cluster in this task or after it."""
    ti = context["ti"]
    return not KINDS[run_of_dag(ti.dag_id)].procedure.follows_changes(ti.task_id)


def keep_lock_while_asking(context: Context, ports: ClusterPorts, purpose: str) -> timedelta:
    """Keep the cluster's lock until the approval timeout, unless nothing is left to change; return this time."""
    timeout = timedelta(hours=ports.cluster.approval_timeout_hours)
    if keeps_lock(context):
        acquire_lock(ports, purpose, for_s=timeout.total_seconds() + LEASE_S)
    return timeout


def take_lock_after_answer(context: Context, ports: ClusterPorts, purpose: str) -> None:
    """Set an ordinary lease again after the long lease for an answer. Raises as `acquire_lock`."""
    if keeps_lock(context):
        shorten_lease(ports, purpose)


def why_ask_again(context: Context, ports: ClusterPorts, answer: Answer) -> str:
    """Return why *Roll back* is asked once more; empty for another answer, and if the text lists what it leaves out.

    The page of the run and the log of the task show the rest. The same answer, given again, rolls back: a rollback must
    stay possible.
    """
    asked = answered_request(context, ports, answer)
    if answer.decision is not Decision.ROLL_BACK or _was_repeated(ports.run.events(), newest_request(context, ports)):
        return ""
    unlisted = unlisted_of_rollback(Run(ports, ports.run.load_plan()), "" if asked is None else asked.text)
    if not unlisted:
        return ""
    ports.run.record(RollbackAskedAgain(by=answer.by, sentences=unlisted))
    why = f"{answer.by} chose to roll back. Since the request, a rollback cannot compare: {' '.join(unlisted)}"
    context["task"].log.warning("%s To accept this, choose the same again.", why)
    return why


def _was_repeated(events: Sequence[Event], asked: Asked | None) -> bool:
    """Return whether the request repeats one whose answer was to roll back."""
    at = len(events) - 1 - next((n for n, one in enumerate(reversed(events)) if one == asked), 0)
    before = (one for one in reversed(events[:at]) if isinstance(one, Asked | Approval | RollbackAskedAgain))
    return isinstance(next(before, None), RollbackAskedAgain)


def record_decision(
    context: Context, ports: ClusterPorts, what: str, answer: Answer, how_to_continue: str = _CLEAR_TASK
) -> Approval:
    """Record the decision. Rolling back and stopping fail the task, so no later task begins.

    An answer that continues ends the pause of the plan that the request was about: that one whose text it names.
    Airflow's form keeps the text of the first request of a task.
    """
    asked = answered_request(context, ports, answer)
    reason = answer.reason or NO_REASON
    take_lock_after_answer(context, ports, f"{what}: {answer.decision}")
    given = recorded_with(context, ports, answer)
    ends_pause = asked is not None and asked.is_pause and answer.decision in ENDS_PAUSE
    if ends_pause:
        record_approval(ports, ApprovalOf.PAUSE, answer.by, Decision.APPROVED, f"{what}: {reason}", **given)
    doubts = _shown_doubts(context, ports, answer) if answer.decision is Decision.ACCEPT else ()
    if doubts:
        accept_doubts(ports, doubts, answer.by, f"{what}: {reason}", **given)
    decided = record_approval(ports, ApprovalOf.FAILED_GATE, answer.by, answer.decision, f"{what}: {reason}", **given)
    gives = _GIVES.get(answer.decision, ())
    if gives or ends_pause:  # another answer keeps what an earlier one of this task gave
        keep_answer(context, decided.plan_hash, (*gives, ApprovalOf.PAUSE) if ends_pause else gives, answer.by)
    if answer.decision is Decision.ROLL_BACK:
        record_approval(ports, ApprovalOf.ROLL_BACK, answer.by, Decision.APPROVED, f"{what}: {reason}", **given)
        decide_roll_back(context, what, answer)
    if answer.decision is Decision.STOP_HERE:
        raise AirflowFailException(f"{answer.by} stopped the run at {what}: {reason}. {how_to_continue}")
    return decided


def _acceptable(doubts: Sequence[str]) -> str:
    """Return the part of a request that lists what *Accept the log* accepts, a line for each doubt."""
    if not doubts:
        return f"*{Decision.ACCEPT.label}* accepts nothing in this request: no log of a node is in doubt."
    return f"*{Decision.ACCEPT.label}* accepts this alone:\n\n{doubts_part(doubts[:_MOST_ACCEPTED])}"


def _shown_doubts(context: Context, ports: ClusterPorts, answer: Answer) -> tuple[str, ...]:
    """Return the open doubts that the text lists to which an approver answered. A later doubt was not read."""
    asked = answered_request(context, ports, answer)
    open_doubts = find_doubts(ports.run.events())
    accepted = tuple(doubt for doubt in open_doubts if asked is not None and is_listed(asked.text, doubt))
    if left := [doubt for doubt in open_doubts if doubt not in accepted]:
        context["task"].log.warning(
            "Not accepted, because the text of the answered request does not list it: %s. Answer on the page "
            "*Kafka rollout*, which shows what has changed since Airflow's first text.",
            "; ".join(left),
        )
    return accepted


def recorded_with(context: Context, ports: ClusterPorts, answer: Answer) -> Any:
    """Return what `record_approval` needs of an answer in Airflow: who answered, the text, and who can answer now."""
    asked = answered_request(context, ports, answer)
    return {
        "responder": answer.responder,
        "text": "" if asked is None else asked.text,
        "of_run": ports.cluster.approvers,
    }


def decide_roll_back(context: Context, what: str, answer: Answer) -> NoReturn:
    """Store the decision for the group `roll_back`, and fail this task."""
    context["ti"].xcom_push(key=ROLL_BACK_DECISION, value={"by": answer.by, "reason": answer.reason, "what": what})
    raise AirflowFailException(f"{answer.by} decided at {what} to roll back: {answer.reason or NO_REASON}.")
