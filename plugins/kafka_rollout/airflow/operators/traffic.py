"""What runs beside a run while something is changed: the live-traffic ledger, if asked for, and the watch of groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kafka_rollout.airflow.common.base import run_folder
from kafka_rollout.domain.model.errors import RolloutError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_rollout.steps.common.cluster_ports import ClusterPorts

SECURITY_FILE = "ledger-security.json"  # private to the run, and gone when the ledger is stopped
GROUPS_SECURITY_FILE = "groups-security.json"


def ledger_folder(ports: ClusterPorts) -> Path:
    return run_folder(ports) / "ledger"


def run_ledger(ports: ClusterPorts) -> int:
    """The pid of the run's ledger, started if it does not run."""
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
    """The cluster's groups are watched from here on: rebalances, time without owner. Reads only, and stops nothing."""
    from kafka_rollout.airflow.hooks.kafka_cluster import KafkaClusterHook
    from kafka_rollout.composition.background import start_group_monitor

    security_file = ports.run.private_path(GROUPS_SECURITY_FILE)
    KafkaClusterHook(ports.cluster.name).security().write_file(security_file)
    start_group_monitor(run_folder(ports), cluster=ports.cluster.name, run_id=ports.run_id, security_file=security_file)


def stop_watching_groups(ports: ClusterPorts) -> None:
    from kafka_rollout.composition.background import stop_group_monitor

    stop_group_monitor(run_folder(ports))
    ports.run.private_path(GROUPS_SECURITY_FILE).unlink(missing_ok=True)


def keep_ledger_running(context: Context, ports: ClusterPorts) -> None:
    """Before a change: groups are watched, and the ledger of a run that asks for one runs.

    A run that fails ends its ledger, since nobody may come back. When the failed task is cleared, the task that
    started the ledger is not run again, so whoever changes something sees to it. A ledger that cannot be started stops
    nothing: the cluster may be in the very state that the change is to mend.
    """
    watch_groups(ports)
    if not context["params"].get("ledger"):
        return
    try:
        run_ledger(ports)
    except RolloutError as error:
        context["task"].log.warning("What follows is without live traffic: %s", error)
