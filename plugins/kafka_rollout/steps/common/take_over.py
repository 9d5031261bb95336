"""Continuing a DAG's run from the shell: only an approver of the inventory may, and it is recorded."""

from __future__ import annotations

from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.run.events import Begun, TakenOver
from kafka_rollout.domain.run.projections.select import newest
from kafka_rollout.domain.run.responder import Responder
from kafka_rollout.steps.common.approval import refuse_stranger
from kafka_rollout.steps.common.cluster_ports import ClusterPorts


def take_over_run(ports: ClusterPorts, by: str | None, responder: Responder, *, wanted: bool) -> None:
    """Record that `by` takes the run over from its DAG; does nothing for a run of the shell.

    Repeating it records it again. Raises RefusedError for a DAG's run without `wanted` or without a name, and where
    the inventory does not allow the name.
    """
    begun = newest(ports.run.events(), Begun)
    if begun is None:
        return
    dag_id = begun.dag_id
    if not (wanted and by):
        raise RefusedError(
            f"Run {ports.run_id} belongs to the DAG {dag_id}.",
            remedy="Continue it in Airflow. If Airflow cannot continue it, an approver can take it over: add "
            "--take-over --approve-as NAME.",
        )
    refuse_stranger(ports.cluster, by)
    ports.run.record(TakenOver(by=by.strip(), dag_id=dag_id, responder=responder))
