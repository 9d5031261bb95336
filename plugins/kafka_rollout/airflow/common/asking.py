"""Asking a person from within a task, as often as it takes.

Airflow's own HITLOperator asks once and ends with the answer. A gate must be able to watch, ask, watch on and ask
again in one task, so that clearing and reading a run stay simple. It works on the same mechanism: the request is
written, the task is parked in `awaiting_input` (no worker, no triggerer), and an answer resumes it at a method.

Airflow keeps the text of a task's first question for ever, also when the task is cleared. A question is therefore
worded so that it stays true, and one whose text must be the present one (an approval) is compared with what Airflow
shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput

if TYPE_CHECKING:
    from airflow.sdk import Context

REASON = "reason"
WAITS_FOR = "waits_for"  # the key in the task's state store (a tab of the task in Airflow's UI)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`body` is Markdown; `users` may answer (empty: everyone who may change the DAG)."""

    subject: str
    body: str
    options: tuple[str, ...]
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    option: str
    by: str
    reason: str


def ask(
    context: Context, question: Question, *, method: str, timeout: timedelta | None, text_must_be_present: bool = False
) -> NoReturn:
    """Park the task until a person answers; it resumes at `method` with the answer as its event.

    `text_must_be_present` refuses to ask under a text that Airflow kept from an earlier time.
    """
    from airflow.sdk.api.datamodels._generated import HITLUser
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload, HITLDetailRequestResult
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    reason = Param("", type="string", title="Reason", description="Why, in a sentence. It is kept in the run's record.")
    shown = SUPERVISOR_COMMS.send(
        msg=CreateHITLDetailPayload(
            ti_id=context["ti"].id,
            options=list(question.options),
            subject=question.subject,
            body=question.body,
            defaults=None,  # a timeout never answers
            multiple=False,
            params={REASON: reason.serialize()},
            assigned_users=[HITLUser(id=user, name=user) for user in question.users],
        )
    )
    if isinstance(shown, HITLDetailRequestResult) and shown.body != question.body:
        if text_must_be_present:
            raise AirflowFailException(
                "Airflow still shows the text of this task's first question, but what it asks about has changed since. "
                "Start a new run: it asks with the present plan."
            )
        context["task"].log.info("Airflow shows the text of the first question; the present one: %s", question.body)
    tell(context, f"a person: {question.subject} ({', '.join(question.options)})")
    raise TaskAwaitingInput(method_name=method, timeout=timeout)


def is_answer(event: Mapping[str, Any]) -> bool:
    """Whether a task was resumed by a person's answer, or by the end of the time for one, and not by a trigger."""
    return "chosen_options" in event or "error_type" in event


def read_answer(event: Mapping[str, Any], question: str) -> Answer:
    """The answer; fails the task when nobody gave one in time."""
    if "chosen_options" not in event or event.get("timedout"):
        raise AirflowFailException(
            f"Nobody answered in time: {question}. Time never approves; clear this task to ask again."
        )
    user = event.get("responded_by_user") or {}
    entered = event.get("params_input") or {}
    return Answer(
        option=str(event["chosen_options"][0]),
        by=str(user.get("name") or user.get("id") or ""),
        reason=str(entered.get(REASON) or "").strip(),
    )


def tell(context: Context, waits_for: str) -> None:
    """Say in the log and on the task what it waits for."""
    context["task"].log.info("Waits for %s", waits_for)
    context["task_state_store"].set(WAITS_FOR, waits_for)


def approvers(inventory: Sequence[str], chosen: Sequence[str]) -> tuple[str, ...]:
    """Who may answer: those chosen for the run, out of the inventory's where it names any."""
    strangers = [user for user in chosen if inventory and user not in inventory]
    if strangers:
        raise AirflowFailException(
            f"{', '.join(strangers)} may not approve changes of this cluster. "
            f"Its inventory names {', '.join(inventory)}."
        )
    return tuple(chosen or inventory)
