"""Decision requests from within a task, repeated if needed.

Airflow's own HITLOperator asks once and ends with the answer. A gate must be able to check, ask, check again and ask
again in one task, so that clearing and reading a run stay simple. It uses the same mechanism: the request is written,
the task is parked in `awaiting_input` (no worker, no triggerer), and an answer resumes it at a method.

Airflow keeps the text of a task's first request permanently, also when the task is cleared. So the text of a decision
request must stay true. The text of an approval is compared with the text that Airflow shows.
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
    option: str
    by: str
    reason: str


def ask(
    context: Context, question: Question, *, method: str, timeout: timedelta | None, text_must_be_present: bool = False
) -> NoReturn:
    """Park the task until a user answers; it resumes at `method` with the answer as its event.

    `text_must_be_present`: refuse to ask under an old text that Airflow kept.
    """
    from airflow.sdk.api.datamodels._generated import HITLUser
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload, HITLDetailRequestResult
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    reason = Param(
        "", type="string", title="Reason", description=("Reason as a sentence. It is stored in the run history.")
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
    if isinstance(shown, HITLDetailRequestResult) and shown.body != question.body:
        if text_must_be_present:
            raise AirflowFailException(
                "Airflow still shows the text of the first request of this task, but the plan has changed "
                "since. Start a new run: it asks with the current plan."
            )
        context["task"].log.info("Airflow shows the text of the first request; the current text: %s", question.body)
    tell(context, f"a person: {question.subject} ({', '.join(question.options)})")
    raise TaskAwaitingInput(method_name=method, timeout=timeout)


def is_answer(event: Mapping[str, Any]) -> bool:
    """Return whether an answer or its timeout resumed the task, and not a trigger."""
    return "chosen_options" in event or "error_type" in event


def read_answer(event: Mapping[str, Any], question: str) -> Answer:
    """Return the answer; fail the task if there was none in time."""
    if "chosen_options" not in event or event.get("timedout"):
        raise AirflowFailException(
            f"There was no answer in time: {question}. A timeout never counts as approval. Clear this task to "
            "ask again."
        )
    user = event.get("responded_by_user") or {}
    entered = event.get("params_input") or {}
    return Answer(
        option=str(event["chosen_options"][0]),
        by=str(user.get("name") or user.get("id") or ""),
        reason=str(entered.get(REASON) or "").strip(),
    )


def tell(context: Context, waits_for: str) -> None:
    """Write to the log and to the task what the task waits for."""
    context["task"].log.info("Waits for %s", waits_for)
    context["task_state_store"].set(WAITS_FOR, waits_for)


def approvers(inventory: Sequence[str], chosen: Sequence[str]) -> tuple[str, ...]:
    """Return who can answer: the users of the run, which must be in the inventory's list if it has one."""
    strangers = [user for user in chosen if inventory and user not in inventory]
    if strangers:
        raise AirflowFailException(
            f"These users are not approvers of this cluster: {', '.join(strangers)}. The inventory lists "
            f"{', '.join(inventory)}."
        )
    return tuple(chosen or inventory)
