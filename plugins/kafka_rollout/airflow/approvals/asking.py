"""Decision requests from within a task, repeated if needed.

Airflow's own HITLOperator asks once and ends with the answer. A gate must be able to check, ask, check again and ask
again in one task, so that clearing and reading a run stay simple. It uses the same mechanism: the request is written,
the task is parked in `awaiting_input` (no worker, no triggerer), and an answer resumes it at a method.

The event with the answer is a claim. A task that acts compares it with Airflow's own record (`records.py`).

Airflow keeps the text of a task's first request permanently, also when the task is cleared. So the text of a decision
request must stay true. The text of an approval is compared with the text that Airflow shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn

from airflow.sdk import Context, Param
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput

from kafka_rollout.airflow.private_api import request_answer
from kafka_rollout.run.events import Asked, Channel, Decision, Responder, events_of
from kafka_rollout.run.ports import Answer, Question
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

REASON = "reason"
WAITS_FOR = "waits_for"  # key in the task's state store (a tab of the task in Airflow's UI)
PLAN_TASK = "plan"  # its XCom contains the hash of the frozen plan


def frozen_hash(context: Context) -> str:
    """Return the hash of the plan that the first task of the run froze."""
    planned = context["ti"].xcom_pull(task_ids=PLAN_TASK)
    if not planned:
        raise AirflowFailException(f"Task {PLAN_TASK} of this run stored no plan. Clear it, or start a new run.")
    return str(planned["plan_hash"])


class AsksPeople:
    """Mixin of tasks that ask."""

    def confirm_answer(self, context: Context, event: dict[str, Any], then: str, plan_hash: str = "") -> Any:
        """Continue after an answer or its timeout with the method `then`.

        `plan_hash`: of the plan that was shown; empty in a request of an earlier version. Airflow stores the name of
        this method with a waiting task.
        """
        if plan_hash and plan_hash != frozen_hash(context):
            raise AirflowFailException(
                "The run has another plan than this request showed. Clear this task to ask again."
            )
        return getattr(self, then)(context, event)


def ask(
    context: Context,
    ports: ClusterPorts,
    question: Question,
    *,
    method: str,
    timeout: timedelta | None,
    text_must_be_present: bool = False,
) -> NoReturn:
    """Park the task until a user answers; it resumes at `method` with the answer as its event.

    The run history keeps the text that Airflow shows. `text_must_be_present`: refuse to ask under an old text that
    Airflow kept.
    """
    reason = Param(
        "", type="string", title="Reason", description="Reason as a sentence. It is stored in the run history."
    )
    shown = request_answer(
        context["ti"].id,
        subject=question.subject,
        body=question.body,
        options=[option.label for option in question.options],
        params={REASON: reason.serialize()},
        users=question.users,
    )
    if text_must_be_present and not _shows(shown.body, question.body):
        raise AirflowFailException(
            "Airflow still shows the text of the first request of this task, but what to approve has changed "
            "since. Start a new run: it asks with the current text."
        )
    if shown.body != question.body:
        context["task"].log.info("Airflow shows the text of the first request; the current text: %s", question.body)
    question = replace(question, subject=shown.subject, body=shown.body)
    record_question(context, ports, question, timeout)
    options = ", ".join(option.label for option in question.options)
    show_waiting(context, f"an answer: {question.subject} ({options})")
    kwargs = {"then": method, "plan_hash": frozen_hash(context)}
    raise TaskAwaitingInput(method_name="confirm_answer", kwargs=kwargs, timeout=timeout)


def _shows(shown: str, body: str) -> bool:
    """Return whether an old text has every line of the present one: an approver has then read all of it."""
    return set(body.splitlines()) <= set(shown.splitlines())


def record_question(
    context: Context, ports: ClusterPorts, question: Question, timeout: timedelta | None = None
) -> None:
    """Record in the run history which text is shown to which users, and until when they can answer."""
    event = Asked(
        task_id=context["task"].task_id,
        record_id=str(context["ti"].id),
        text=f"{question.subject}\n\n{question.body}",
        options=tuple(option.label for option in question.options),
        users=question.users,
        answer_by=0.0 if timeout is None else ports.clock.now() + timeout.total_seconds(),
        is_pause=question.is_pause,
    )
    ports.run.record(event)


def newest_request(ports: ClusterPorts, task_id: str) -> Asked | None:
    """Return the newest request of the task; None if the run history has none."""
    asked = [event for event in events_of(ports.run.events(), Asked) if event.task_id == task_id]
    return asked[-1] if asked else None


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
    answered_at = event["responded_at"]
    return Answer(
        by=str(user["id"]),
        decision=Decision.of_label(str(event["chosen_options"][0])),
        reason=str((event.get("params_input") or {}).get(REASON) or "").strip(),
        responder=Responder(
            channel=Channel.AIRFLOW,
            user=str(user["id"]),
            name=str(user["name"]),
            record_id=str(context["ti"].id),
            # An event of the trigger of earlier versions has epoch seconds.
            answered_at=answered_at.timestamp() if isinstance(answered_at, datetime) else float(answered_at),
        ),
    )


def show_waiting(context: Context, waits_for: str) -> None:
    """Write to the log and to the task's state store what the task waits for."""
    context["task"].log.info("Waits for %s", waits_for)
    context["task_state_store"].set(WAITS_FOR, waits_for)


def approvers(context: Context, ports: ClusterPorts) -> tuple[str, ...]:
    """Return who can answer: the users of the run, which must be in the inventory's list if it has one."""
    inventory, chosen = ports.cluster.approvers, tuple(context["params"].get("approvers") or ())
    strangers = [user for user in chosen if inventory and user not in inventory]
    if strangers:
        raise AirflowFailException(
            f"These users are not approvers of this cluster: {', '.join(strangers)}. The inventory lists "
            f"{', '.join(inventory)}."
        )
    return chosen or tuple(inventory)
