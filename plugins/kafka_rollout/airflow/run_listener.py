"""Functions that Airflow calls when a run ends, also if a user marked it and its last tasks never ran.

A DAG's on_failure_callback is not enough: Airflow does not call it for a run that is marked by hand.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

from kafka_rollout.airflow.common.dag_ids import CHANGING_DAG_PREFIXES

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:
    """A run that was cleared starts again. Its tasks start the background processes that they need."""
    _stop_background(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    _let_go(dag_run)


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    _let_go(dag_run)


def _let_go(dag_run: DagRun) -> None:
    """Stop the background processes of a run that is over, and release the cluster's lock."""
    from kafka_rollout.composition.records import open_lock

    _stop_background(dag_run)
    if (found := _own_run(dag_run)) is None:
        return
    cluster, run = found
    lock = open_lock()
    held = lock.holder(cluster)
    if held is not None and held.holder == run:
        lock.release(cluster, run)
        log.info("Run %s is over and released the lock of cluster %s.", run, cluster)


def _stop_background(dag_run: DagRun) -> None:
    """Request it: the processes can run on other machines, and a scheduler does not wait for them."""
    from kafka_rollout.composition.background import request_stop

    if (found := _own_run(dag_run)) is not None:
        request_stop(*found)


def _own_run(dag_run: DagRun) -> tuple[str, str] | None:
    """(cluster, run id) of a run of this project that has begun; None if another DAG has a run with the same id."""
    prefix = next((p for p in CHANGING_DAG_PREFIXES if dag_run.dag_id.startswith(p)), None)
    if prefix is None:
        return None
    from kafka_rollout.composition.records import open_run
    from kafka_rollout.domain.run.projections.runs import begun_by

    cluster, run = dag_run.dag_id.removeprefix(prefix), str(dag_run.run_id)
    return (cluster, run) if begun_by(open_run(cluster, run).events()) == dag_run.dag_id else None
