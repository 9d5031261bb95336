"""Everything of Airflow that its public interface does not have. No other module imports a private name of Airflow.

The supported range of Airflow in pyproject.toml is one minor version because of this module. Imports are inside the
functions: those of the page are needed by the API server only, those of requests by tasks and the triggerer only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun as DagRun  # noqa: PLC0414  # for the listener of runs


def request_answer(
    record_id: UUID, *, subject: str, body: str, options: Sequence[str], params: dict[str, Any], users: Sequence[str]
) -> tuple[str, str]:
    """Write the Human-in-the-loop record of this task instance. Return subject and body that Airflow shows.

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
        return subject, body
    return found.subject, found.body or ""


def read_record(record_id: UUID) -> dict[str, Any] | None:
    """Return the answer of a Human-in-the-loop record as the event of an answer; None if it has no answer of a user.

    `responded_at`: epoch seconds. Only the triggerer can read a record: Airflow refuses it to a worker.
    """
    from airflow.sdk.execution_time.hitl import get_hitl_detail_content_detail

    found = get_hitl_detail_content_detail(ti_id=record_id)
    user = found.responded_by_user
    if not found.response_received or user is None or not found.chosen_options or found.responded_at is None:
        return None
    return {
        "chosen_options": list(found.chosen_options),
        "params_input": dict(found.params_input or {}),
        "responded_by_user": {"id": user.id, "name": user.name},
        "responded_at": found.responded_at.timestamp(),
    }


def read_states(dag_id: str, run_id: str, task_id: str) -> dict[int, str]:
    """Return the state of each instance of a mapped task in a run, by map index, without those that have no state."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states = RuntimeTaskInstance.get_task_states(dag_id=dag_id, task_ids=[task_id], run_ids=[run_id]).get(run_id, {})
    indexes = ((name.removeprefix(f"{task_id}_"), state) for name, state in states.items() if name != task_id)
    return {int(index): str(state) for index, state in indexes if state is not None}


def require_website() -> Any:
    """Return the dependency of a route that only users of Airflow can read."""
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
    from airflow.api_fastapi.core_api.security import requires_access_view
    from fastapi import Depends

    return Depends(requires_access_view(AccessView.WEBSITE))


def require_runs(method: Literal["GET", "PUT"]) -> Any:
    """Return the dependency of a route that only users can call who can read, or change, the runs of its `dag_id`."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag
    from fastapi import Depends

    return Depends(requires_access_dag(method=method, access_entity=DagAccessEntity.RUN))


def current_user() -> Any:
    """Return the dependency with the user of the request."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends

    return Depends(get_user)


def is_authorized(user: Any, method: Literal["GET", "POST", "PUT"], dag_id: str, entity: str = "RUN") -> bool:
    """Return whether the user can read (GET), start (POST) or change (PUT) the runs of a DAG, as Airflow checks it.

    `user`: of `current_user`. `entity`: name of another DagAccessEntity.
    """
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
    from airflow.models.dag import DagModel

    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return get_auth_manager().is_authorized_dag(
        method=method, access_entity=DagAccessEntity[entity], details=details, user=user
    )


def can_answer(user: Any, dag_id: str, assigned: Collection[str]) -> bool:
    """Return whether the user can answer a Human-in-the-loop request of a DAG.

    `assigned`: ids of the users who can answer; empty: everyone who can change the DAG. Airflow checks the same when it
    takes the answer.
    """
    from airflow.api_fastapi.app import get_auth_manager

    if not is_authorized(user, "PUT", dag_id, "HITL_DETAIL"):
        return False
    return not assigned or get_auth_manager().is_authorized_hitl_task(assigned_users=set(assigned), user=user)


def count_in_scheduler(metric: str, tags: dict[str, str]) -> None:
    """Increment a counter of the scheduler. The public Stats of tasks is not started in the scheduler's process."""
    from airflow.observability.stats import incr

    incr(metric, tags=tags)


def send_gauge(metric: str, value: int, tags: dict[str, str]) -> None:
    """Send a gauge from a task."""
    from airflow.sdk.observability.stats import gauge

    gauge(metric, value, tags=tags)


def time_limit(seconds: float) -> AbstractContextManager[object]:
    """Raise AirflowTaskTimeout in this worker after the time, as `execution_timeout` does.

    Of a task that begins in the triggerer, `execution_timeout` would also limit how long it waits there
    (TaskInstance.defer_task).
    """
    from airflow.sdk.execution_time.timeout import timeout

    limited: AbstractContextManager[object] = timeout(seconds)
    return limited
