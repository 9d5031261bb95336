"""The live-traffic ledger of a run: where it lies, and that it runs while something is changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kafka_rollout.domain.errors import RolloutError
from kafka_rollout.operators.rollout import run_folder

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_rollout.steps.workbench import Workbench

SECURITY_FILE = "ledger-security.json"  # private to the run, and gone when the ledger is stopped


def ledger_folder(bench: Workbench) -> Path:
    return run_folder(bench) / "ledger"


def run_ledger(bench: Workbench) -> int:
    """The pid of the run's ledger, started if it does not run."""
    from kafka_rollout.adapters.ledger.process import find_process, start_ledger
    from kafka_rollout.hooks.kafka_cluster import KafkaClusterHook

    folder = ledger_folder(bench)
    running = find_process(folder)
    if running is not None:
        return running.pid
    security_file = bench.run.private_path(SECURITY_FILE)
    KafkaClusterHook(bench.cluster.name).security().write_file(security_file)
    return start_ledger(
        bootstrap_servers=bench.cluster.bootstrap_servers,
        folder=folder,
        group=f"kafka-rollout-{bench.run_id}",
        replication_factor=min(3, len(bench.cluster.brokers)),
        security_file=security_file,
    )


def keep_ledger_running(context: Context, bench: Workbench) -> None:
    """Before a change: the ledger of a run that asks for one runs.

    A run that fails ends its ledger, since nobody may come back. When the failed task is cleared, the task that
    started the ledger is not run again, so whoever changes something sees to it. A ledger that cannot be started stops
    nothing: the cluster may be in the very state that the change is to mend.
    """
    if not context["params"].get("ledger"):
        return
    try:
        run_ledger(bench)
    except RolloutError as error:
        context["task"].log.warning("What follows is without live traffic: %s", error)
