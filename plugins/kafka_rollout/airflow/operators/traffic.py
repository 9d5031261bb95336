"""Background processes of a run: the test traffic, if requested, and the group monitor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kafka_rollout.airflow.common.base import run_folder
from kafka_rollout.domain.model.errors import RolloutError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_rollout.steps.common.cluster_ports import ClusterPorts

SECURITY_FILE = "ledger-security.json"  # private to the run; removed when the test traffic stops
GROUPS_SECURITY_FILE = "groups-security.json"


def ledger_folder(ports: ClusterPorts) -> Path:
    return run_folder(ports) / "ledger"


def run_ledger(ports: ClusterPorts) -> int:
    """Return the process id of the run's test traffic; start it if it does not run."""
    from kafka_rollout.airflow.hooks.kafka_cluster import KafkaClusterHook
    from kafka_rollout.composition.background import find_traffic, start_traffic

    folder = ledger_folder(ports)
    running = find_traffic(folder)
    if running is not None:
        return running
    security_file = ports.run.private_path(SECURITY_FILE)
    KafkaClusterHook(ports.cluster.name).security().write_file(security_file)
    return start_traffic(ports.cluster, folder, group=f"kafka-rollout-{ports.run_id}", security_file=security_file)


def watch_groups(ports: ClusterPorts) -> None:
    """Start the group monitor of the cluster: rebalances, unassigned time. Read-only."""
    from kafka_rollout.airflow.hooks.kafka_cluster import KafkaClusterHook
    from kafka_rollout.composition.background import start_group_monitor

    security_file = ports.run.private_path(GROUPS_SECURITY_FILE)
    KafkaClusterHook(ports.cluster.name).security().write_file(security_file)
    start_group_monitor(run_folder(ports), cluster=ports.cluster.name, run_id=ports.run_id, security_file=security_file)


def stop_watching_groups(ports: ClusterPorts) -> None:
    from kafka_rollout.composition.background import stop_group_monitor
    from kafka_rollout.steps.report.run import GROUPS_WATCHED

    if (watched := stop_group_monitor(run_folder(ports))) is not None:
        ports.run.attach(GROUPS_WATCHED, watched)
    ports.run.private_path(GROUPS_SECURITY_FILE).unlink(missing_ok=True)


def keep_ledger_running(context: Context, ports: ClusterPorts) -> None:
    """Before a change: make sure that the group monitor runs, and the test traffic if the run requests it.

    A failed run stops its test traffic, because it may never continue. If the failed task is cleared, the task that
    started the traffic does not run again, so every changing task calls this. A failure to start the traffic stops
    nothing, because the change may be the fix for the cluster.
    """
    watch_groups(ports)
    if not context["params"].get("ledger"):
        return
    try:
        run_ledger(ports)
    except RolloutError as error:
        context["task"].log.warning("The following change runs without test traffic: %s", error)
