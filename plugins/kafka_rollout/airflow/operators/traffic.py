"""Background processes of a run: the test traffic, if requested, and the group monitor."""

from __future__ import annotations

from airflow.sdk import Context

from kafka_rollout.airflow.common.base import request_in
from kafka_rollout.airflow.common.cluster_hook import KafkaClusterHook
from kafka_rollout.base.errors import RolloutError
from kafka_rollout.run.background import BackgroundProcess
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.report.run import GROUPS_WATCHED


def run_traffic(ports: ClusterPorts) -> BackgroundProcess:
    """Return the run's test traffic; start it if it does not run."""
    from kafka_rollout.traffic.processes.of_run import start_traffic

    return start_traffic(
        ports.cluster,
        ports.run_id,
        security=KafkaClusterHook(ports.cluster.name).security(),
        lowered=ports.run.load_plan().lowered,
    )


def watch_groups(ports: ClusterPorts) -> None:
    """Start the group monitor of the cluster: rebalances, unassigned time. Read-only."""
    from kafka_rollout.traffic.processes.of_run import start_group_monitor

    start_group_monitor(ports.cluster.name, ports.run_id, security=KafkaClusterHook(ports.cluster.name).security())


def stop_watching_groups(ports: ClusterPorts) -> None:
    from kafka_rollout.traffic.processes.of_run import stop_group_monitor

    if (watched := stop_group_monitor(ports.cluster.name, ports.run_id)) is not None:
        ports.run.attach(GROUPS_WATCHED, watched)


def keep_traffic_running(context: Context, ports: ClusterPorts) -> None:
    """Before a change: make sure that the group monitor runs, and the test traffic if the run requests it.

    A failed run stops its test traffic, because it may never continue. If the failed task is cleared, the task that
    started the traffic does not run again, so every changing task calls this. A failure to start the traffic stops
    nothing, because the change may be the fix for the cluster.
    """
    watch_groups(ports)
    if not request_in(context).traffic:
        return
    try:
        run_traffic(ports)
    except RolloutError as error:
        context["task"].log.warning("The following change runs without test traffic: %s", error)
