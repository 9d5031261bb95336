"""What runs beside a roll from a shell: the watch of groups, and live traffic with a ledger if asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_rollout.adapters.store.runs import FileRunStore
from kafka_rollout.domain.model.errors import FatalError
from kafka_rollout.settings import Settings
from kafka_rollout.steps.common.cluster_ports import ClusterPorts


@contextmanager
def run_background_checks(
    ports: ClusterPorts, settings: Settings, ledger: bool, security_file: Path | None
) -> Iterator[None]:
    """The watch of groups, and live traffic if asked for; the report shows both."""
    from kafka_rollout.adapters.background.group_monitor import FOLDER, start_group_watch, stop_group_watch

    folder = run_folder(settings, ports) / FOLDER
    start_group_watch(
        folder, cluster=ports.cluster.name, run_id=ports.run_id, security_file=security_file, only_with=os.getpid()
    )
    try:
        with _ledger_around(ports, settings, ledger, security_file):
            yield
    finally:
        stop_group_watch(folder)


@contextmanager
def _ledger_around(ports: ClusterPorts, settings: Settings, wanted: bool, security_file: Path | None) -> Iterator[None]:
    """Live traffic around a run, if asked for; what it lost fails the run."""
    if not wanted:
        yield
        return
    from kafka_rollout.adapters.background.traffic_process import start_ledger, stop_ledger

    folder = run_folder(settings, ports) / "ledger"
    start_ledger(
        bootstrap_servers=ports.cluster.bootstrap_servers,
        folder=folder,
        group=f"kafka-rollout-{ports.run_id}",
        replication_factor=min(3, len(ports.cluster.brokers)),
        security_file=security_file,
    )
    try:
        yield
    finally:
        verdict = stop_ledger(folder)
    if not verdict.ok:
        raise FatalError(
            f"The ledger is not even: {'; '.join(d.sentence for d in verdict.discrepancies) or 'a client was idle'}",
            remedy=f"Its journals are in {folder}.",
        )


def run_folder(settings: Settings, ports: ClusterPorts) -> Path:
    return FileRunStore(settings.home, ports.cluster.name, ports.run_id).folder
