"""Functions that Airflow calls when a run starts or ends, also if a user marked it and its last tasks never ran.

A DAG's on_failure_callback is not enough: Airflow does not call it for a run that is marked by hand.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl
from sqlalchemy.orm.exc import DetachedInstanceError

from kafka_rollout.airflow.common.links import TAG
from kafka_rollout.run.projections.runs import find_dag_id

if TYPE_CHECKING:
    from kafka_rollout.airflow.private_api import DagRun

log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:
    """Stop the background processes of a run that was cleared. Its tasks start those that they need."""
    from kafka_rollout.run.store.background import SqlBackground
    from kafka_rollout.run.store.opening import database_of

    if (cluster := _cluster_of(dag_run)) is not None:
        SqlBackground(database_of()).request_stop(cluster, dag_run.run_id)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    _end(dag_run)


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    _end(dag_run)


def _end(dag_run: DagRun) -> None:
    """Request the stop of the run's background processes, which can be elsewhere, release the lock, count the run."""
    from kafka_rollout.airflow.common.metrics import count_end
    from kafka_rollout.run.store.background import SqlBackground
    from kafka_rollout.run.store.opening import database_of, open_lock

    if (cluster := _cluster_of(dag_run)) is None:
        return
    SqlBackground(database_of()).request_stop(cluster, dag_run.run_id)
    lock = open_lock()
    lease = lock.holder(cluster)
    if lease is not None and lease.holder == dag_run.run_id:
        lock.release(cluster, dag_run.run_id)
        log.info("Run %s ended and released the lock of cluster %s.", dag_run.run_id, cluster)
    count_end(cluster, dag_run.run_id)


def _cluster_of(dag_run: DagRun) -> str | None:
    """Return the cluster of a run of this project that has begun; None for another run.

    Airflow calls the listener for every DAG. Only runs of DAGs with our tag cost a query of the run histories. The DAG
    can be a user's own that embeds an upgrade, and another DAG can have a run with the same id.
    """
    from kafka_rollout.run.store.history import list_clusters_of_run
    from kafka_rollout.run.store.opening import database_of, open_run

    try:
        if dag_run.dag_model is not None and all(tag.name != TAG for tag in dag_run.dag_model.tags):
            return None
    except DetachedInstanceError:  # the tags were not loaded with the run
        pass
    for cluster in list_clusters_of_run(database_of(), dag_run.run_id):
        if find_dag_id(open_run(cluster, dag_run.run_id).events()) == dag_run.dag_id:
            return cluster
    return None
