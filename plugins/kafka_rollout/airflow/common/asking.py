"""Decision requests from within a task, repeated if needed.

Airflow's own HITLOperator asks once and ends with the answer. A gate must be able to check, ask, check again and ask
again in one task, so that clearing and reading a run stay simple. It uses the same mechanism: the request is written,
the task is parked in `awaiting_input` (no worker, no triggerer), and an answer resumes it at a method.

Airflow keeps the text of a task's first request permanently, also when the task is cleared. So the text of a decision
request must stay true. The text of an approval is compared with the text that Airflow shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NoReturn

from airflow.sdk import Context, Param
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput, TaskDeferred

from kafka_rollout.airflow.common.answer import AnswerTrigger
from kafka_rollout.run.events import Asked, Channel, Responder, events_of
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

REASON = "reason"
WAITS_FOR = "waits_for"  # key in the task's state store (a tab of the task in Airflow's UI)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A decision request.

    `body`: Markdown. `users`: the users who can answer; empty: everyone who can change the DAG.
    """

    subject: str
    body: str
    options: tuple[str, ...]
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of Airflow's record."""

    option: str
    reason: str
    responder: Responder

    @property
    def by(self) -> str:
        """Airflow's user id, as in the inventory's list of approvers."""
        return self.responder.user


class AsksPeople:
    """Mixin of tasks that ask. Only the answer in Airflow's Human-in-the-loop record counts."""

    def confirm_answer(self, context: Context, event: dict[str, Any], then: str) -> Any:
        """Continue after an answer: read it from Airflow's record, then call the method `then` with it."""
        if "chosen_options" not in event:
            return getattr(self, then)(context, event)  # the approval timeout
        self.before_confirming(context)
        raise TaskDeferred(trigger=AnswerTrigger(record_id=str(context["ti"].id)), method_name=then)

    def before_confirming(self, context: Context) -> None:
        """Record what an attempt that Airflow loses must not forget."""


def ask(
    context: Context,
    ports: ClusterPorts,
    question: Question,
    *,
    method: str,
    timeout: timedelta | None,
    text_must_be_present: bool = False,
) -> NoReturn:
    """Park the task until a user answers; it resumes at `method` with the answer of Airflow's record as its event.

    The run history keeps the text that Airflow shows. `text_must_be_present`: refuse to ask under an old text that
    Airflow kept.
    """
    from airflow.sdk.api.datamodels._generated import HITLUser
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload, HITLDetailRequestResult
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    reason = Param(
        "", type="string", title="Reason", description="Reason as a sentence. It is stored in the run history."
    )
    shown = SUPERVISOR_COMMS.send(
        msg=CreateHITLDetailPayload(
            ti_id=context["ti"].id,
            options=list(question.options),
            subject=question.subject,
            body=question.body,
            defaults=None,  # a timeout is not an answer
            multiple=False,
            params={REASON: reason.serialize()},
            assigned_users=[HITLUser(id=user, name=user) for user in question.users],
        )
    )
    if isinstance(shown, HITLDetailRequestResult):
        if text_must_be_present and not _shows(shown.body or "", question.body):
            raise AirflowFailException(
                "Airflow still shows the text of the first request of this task, but what to approve has changed "
                "since. Start a new run: it asks with the current text."
            )
        if shown.body != question.body:
            context["task"].log.info("Airflow shows the text of the first request; the current text: %s", question.body)
        question = replace(question, subject=shown.subject, body=shown.body or "")
    record_question(context, ports, question)
    show_waiting(context, f"an answer: {question.subject} ({', '.join(question.options)})")
    raise TaskAwaitingInput(method_name="confirm_answer", kwargs={"then": method}, timeout=timeout)


def _shows(shown: str, body: str) -> bool:
    """Return whether an old text has every line of the present one: an approver has then read all of it."""
    return set(body.splitlines()) <= set(shown.splitlines())


def record_question(context: Context, ports: ClusterPorts, question: Question) -> None:
    """Record in the run history which text is shown to which users."""
    event = Asked(
        task_id=context["task"].task_id,
        record_id=str(context["ti"].id),
        text=f"{question.subject}\n\n{question.body}",
        options=question.options,
        users=question.users,
    )
    ports.run.record(event)


def shown_text(ports: ClusterPorts, task_id: str) -> str:
    """Return the text that Airflow showed with the newest request of the task; empty if the run history has none."""
    asked = [event.text for event in events_of(ports.run.events(), Asked) if event.task_id == task_id]
    return asked[-1] if asked else ""


def is_answer(event: Mapping[str, Any]) -> bool:
    """Return whether an answer or its timeout resumed the task, and not a trigger."""
    return "chosen_options" in event or "error_type" in event


def read_answer(context: Context, event: Mapping[str, Any], question: str) -> Answer:
    """Return the answer; fail the task if there was none in time, or if it is not from this task's own record."""
    if event.get("error_type") == "record":
        raise AirflowFailException(
            f"Airflow's record of the answer to '{question}' cannot be used: {event.get('error')}. "
            "Clear this task to ask again."
        )
    if "chosen_options" not in event or event.get("timedout"):
        raise AirflowFailException(
            f"There was no answer in time: {question}. A timeout never counts as approval. Clear this task to "
            "ask again."
        )
    if event.get("record_id") != str(context["ti"].id):
        raise AirflowFailException(
            f"The answer to '{question}' is not from Airflow's record of this task. Clear this task to ask again."
        )
    user = event["responded_by_user"]
    return Answer(
        option=str(event["chosen_options"][0]),
        reason=str((event.get("params_input") or {}).get(REASON) or "").strip(),
        responder=Responder(
            channel=Channel.AIRFLOW,
            user=str(user["id"]),
            name=str(user["name"]),
            record_id=str(event["record_id"]),
            answered_at=float(event["responded_at"]),
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
