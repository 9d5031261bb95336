"""Functions that Airflow calls when a run starts or ends, also if a user marked it and its last tasks never ran.

A DAG's on_failure_callback is not enough: Airflow does not call it for a run that is marked by hand. Airflow calls them
in its scheduler, and in transactions of its API server, so they only put into the outbox what the history must learn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from sqlalchemy import event, inspect
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import DetachedInstanceError

from kafka_rollout.airflow.common.links import TAG
from kafka_rollout.airflow.common.outbox import KEPT_S, OUTBOX, HistoryUpdate
from kafka_rollout.base.lease import call_of_clear
from kafka_rollout.run.events import ClearedInAirflow, EndedInAirflow, TakenOver, has
from kafka_rollout.run.projections.runs import find_dag_id

if TYPE_CHECKING:
    from kafka_rollout.airflow.private_api import DagRun

log = logging.getLogger(__name__)

STOPPED_WITHIN_S = 5.0  # later, the tasks of the run can have started processes that it needs


@hookimpl
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:
    """Stop the background processes of a run that was cleared. Its tasks start those that they need."""
    if _can_be_ours(dag_run):
        _put("start", dag_run.dag_id, dag_run.run_id, _stop_background, kept_s=STOPPED_WITHIN_S)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    _put_end(dag_run)


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    _put_end(dag_run)


def _put_end(dag_run: DagRun) -> None:
    if _can_be_ours(dag_run):
        end = partial(_end, state=str(dag_run.state), clear_number=dag_run.clear_number)
        _put("end", dag_run.dag_id, dag_run.run_id, end)


def _put(what: str, dag_id: str, run_id: str, apply: Callable[[str, str], None], *, kept_s: float = KEPT_S) -> None:
    """Put an update of a run's history into the outbox. `apply`: gets its cluster and its id, if the run is ours."""

    def update() -> None:
        if (cluster := _find_cluster(dag_id, run_id)) is not None:
            apply(cluster, run_id)

    OUTBOX.put(HistoryUpdate(what=f"The {what} of run {run_id}", apply=update, kept_s=kept_s))


def _stop_background(cluster: str, run_id: str) -> None:
    """Request the stop of the run's background processes, which can be elsewhere."""
    from kafka_rollout.run.store.background import SqlBackground
    from kafka_rollout.run.store.opening import database_of

    SqlBackground(database_of()).request_stop(cluster, run_id)


def _end(cluster: str, run_id: str, *, state: str, clear_number: int) -> None:
    """Stop the run's background processes, end the run's lock, count the run.

    An end that is known late changes nothing of a run that was cleared since then and goes on.
    """
    from kafka_rollout.airflow.common.metrics import count_end
    from kafka_rollout.run.store.opening import open_lock

    if open_lock(call=call_of_clear(clear_number + 1)).has_logged_call(cluster, run_id):
        return
    _stop_background(cluster, run_id)
    _record_end(cluster, run_id, state=state)
    count_end(cluster, run_id)


def _record_end(cluster: str, run_id: str, *, state: str) -> None:
    """Fence the tasks and triggers that still run, release the lock, and record an end without a report.

    A run that an approver has taken over goes on in a shell.
    """
    from kafka_rollout.report.run_report import stored_end
    from kafka_rollout.run.store.opening import open_lock, open_run

    run, lock = open_run(cluster, run_id), open_lock()
    events = run.events()
    if has(events, TakenOver):
        return
    end, lease = stored_end(run), lock.holder(cluster)
    is_over = end is not None and end.is_newest(events[-1].at)
    if is_over and (lease is None or lease.holder != run_id):
        return
    lock.end_run(cluster, run_id, f"Airflow ended ({state}) run {run.number}")
    log.info("Run %d ended and holds no lock of cluster %s.", run.number, cluster)
    if not is_over:
        run.record(EndedInAirflow(state=state))


def _record_clear(cluster: str, run_id: str, *, clear_number: int) -> None:
    """Record a clear as a call of the user: only one after a break acquires the lock again. A run that has ended in
    Airflow continues with it."""
    from kafka_rollout.run.store.opening import open_lock, open_run
    from kafka_rollout.run.view import RunView

    open_lock(call=call_of_clear(clear_number)).log_call(cluster, run_id)
    run = open_run(cluster, run_id)
    if RunView.of(run.events()).state_in_airflow:
        run.record(ClearedInAirflow())


def _note(session: Session, flush: object) -> None:
    """Note the runs that a transaction of Airflow deletes or clears; it has no listener for them."""
    cleared = [one for one in session.dirty if type(one).__name__ == "DagRun" and _is_cleared(one)]
    if cleared:
        session.info.setdefault(_CLEARED, []).extend((one.dag_id, one.run_id, one.clear_number) for one in cleared)
    deleted = [one for one in session.deleted if type(one).__name__ == "DagRun"]
    if deleted:
        session.info.setdefault(_DELETED, []).extend((one.dag_id, one.run_id) for one in deleted)


def _is_cleared(dag_run: Any) -> bool:
    return bool(inspect(dag_run).attrs.clear_number.history.has_changes())


def _put_noted(session: Session) -> None:
    """Put what was noted into the outbox: Airflow has committed its transaction."""
    for dag_id, run_id, clear_number in session.info.pop(_CLEARED, ()):
        _put("clear", dag_id, run_id, partial(_record_clear, clear_number=clear_number))
    for dag_id, run_id in session.info.pop(_DELETED, ()):
        _put("deletion", dag_id, run_id, partial(_record_end, state="deleted"))


def _forget_noted(session: Session) -> None:
    session.info.pop(_DELETED, None)
    session.info.pop(_CLEARED, None)


_DELETED, _CLEARED = "kafka-rollout: deleted runs", "kafka-rollout: cleared runs"
event.listen(Session, "after_flush", _note)
event.listen(Session, "after_commit", _put_noted)
event.listen(Session, "after_rollback", _forget_noted)


def _can_be_ours(dag_run: DagRun) -> bool:
    """Return whether the DAG has our tag, also a user's own that embeds an upgrade, or whether its tags are not loaded.

    Airflow calls the listener for every DAG.
    """
    try:
        return dag_run.dag_model is None or any(tag.name == TAG for tag in dag_run.dag_model.tags)
    except DetachedInstanceError:
        return True


def _find_cluster(dag_id: str, run_id: str) -> str | None:
    """Return the cluster of a run of this project that has begun; None for another run. Another DAG can have a run with
    the same id."""
    from kafka_rollout.run.store.history import list_clusters_of_run
    from kafka_rollout.run.store.opening import database_of, open_run

    for cluster in list_clusters_of_run(database_of(), run_id):
        if find_dag_id(open_run(cluster, run_id).events()) == dag_id:
            return cluster
    return None
