"""Everything of Airflow that its public interface does not have. No other module imports a private name of Airflow.

The supported range of Airflow in pyproject.toml is one minor version because of this module. Imports are inside the
functions: those of the page are needed by the API server only, those of requests by tasks and the triggerer only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun as DagRun  # noqa: PLC0414  # for the listener of runs


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRequest:
    """The text of a Human-in-the-loop request as Airflow shows it. `body`: Markdown."""

    subject: str
    body: str


def request_answer(
    record_id: UUID, *, subject: str, body: str, options: Sequence[str], params: dict[str, Any], users: Sequence[str]
) -> ShownRequest:
    """Write the Human-in-the-loop record of this task instance, and return the text that Airflow shows.

    Airflow removes an earlier answer from the record, and keeps the text of the first request. `users`: ids of the
    users who can answer; empty: everyone who can change the DAG. Airflow's own `upsert_hitl_detail` sends the same
    message, but does not return the text.
    """
    from airflow.sdk.api.datamodels._generated import HITLUser
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload, HITLDetailRequestResult
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    found = SUPERVISOR_COMMS.send(
        msg=CreateHITLDetailPayload(
            ti_id=record_id,
            options=list(options),
            subject=subject,
            body=body,
            defaults=None,  # a timeout is not an answer
            multiple=False,
            params=params,
            assigned_users=[HITLUser(id=user, name=user) for user in users],
        )
    )
    if not isinstance(found, HITLDetailRequestResult):
        return ShownRequest(subject=subject, body=body)
    return ShownRequest(subject=found.subject, body=found.body or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """A user's answer of a Human-in-the-loop record. `user`: the id. `params`: the form's fields.

    `answered_at`: epoch seconds.
    """

    user: str
    name: str
    options: tuple[str, ...]
    params: Mapping[str, Any]
    answered_at: float


def read_record(record_id: UUID) -> RecordedAnswer | None:
    """Return the answer of a Human-in-the-loop record; None if it has no answer of a user.

    Only the triggerer can read a record: Airflow refuses it to a worker.
    """
    from airflow.sdk.execution_time.hitl import get_hitl_detail_content_detail

    found = get_hitl_detail_content_detail(ti_id=record_id)
    user = found.responded_by_user
    if not found.response_received or user is None or not found.chosen_options or found.responded_at is None:
        return None
    return RecordedAnswer(
        user=user.id,
        name=user.name,
        options=tuple(found.chosen_options),
        params=dict(found.params_input or {}),
        answered_at=found.responded_at.timestamp(),
    )


def require_website() -> Any:
    """Return the dependency of a route that only users of Airflow can read."""
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
    from airflow.api_fastapi.core_api.security import requires_access_view
    from fastapi import Depends

    return Depends(requires_access_view(AccessView.WEBSITE))


def require_runs() -> Any:
    """Return the dependency of a route that only users can read who can read the runs of its `dag_id`."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag
    from fastapi import Depends

    return Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.RUN))


def require_control() -> Any:
    """Return the dependency of a route that only users can call who can change the runs of its `dag_id`."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag
    from fastapi import Depends

    return Depends(requires_access_dag(method="PUT", access_entity=DagAccessEntity.RUN))


def current_user() -> Any:
    """Return the dependency with the user of the request."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends

    return Depends(get_user)


def can_read_runs(user: Any, dag_id: str) -> bool:
    """Return whether the user can read the runs of a DAG. `user`: of `current_user`."""
    return _is_authorized(user, dag_id, "GET", "RUN")


def can_control(user: Any, dag_id: str) -> bool:
    """Return whether the user can change the runs of a DAG, as `require_control` checks it."""
    return _is_authorized(user, dag_id, "PUT", "RUN")


def can_trigger(user: Any, dag_id: str) -> bool:
    """Return whether the user can start runs of a DAG. Airflow checks the same when it starts one."""
    return _is_authorized(user, dag_id, "POST", "RUN")


def can_answer(user: Any, dag_id: str, assigned: Collection[str]) -> bool:
    """Return whether the user can answer a Human-in-the-loop request of a DAG.

    `assigned`: ids of the users who can answer; empty: everyone who can change the DAG. Airflow checks the same when it
    takes the answer.
    """
    from airflow.api_fastapi.app import get_auth_manager

    if not _is_authorized(user, dag_id, "PUT", "HITL_DETAIL"):
        return False
    return not assigned or get_auth_manager().is_authorized_hitl_task(assigned_users=set(assigned), user=user)


def _is_authorized(user: Any, dag_id: str, method: Literal["GET", "POST", "PUT"], entity: str) -> bool:
    """`entity`: name of a DagAccessEntity."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
    from airflow.models.dag import DagModel

    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return get_auth_manager().is_authorized_dag(
        method=method, access_entity=DagAccessEntity[entity], details=details, user=user
    )


def count_in_scheduler(metric: str, tags: dict[str, str]) -> None:
    """Increment a counter of the scheduler. The public Stats of tasks is not started in the scheduler's process."""
    from airflow.observability.stats import incr

    incr(metric, tags=tags)


def send_gauge(metric: str, value: int, tags: dict[str, str]) -> None:
    """Send a gauge from a task."""
    from airflow.sdk.observability.stats import gauge

    gauge(metric, value, tags=tags)
