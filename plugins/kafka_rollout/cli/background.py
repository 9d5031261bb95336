"""Background processes of a run from a shell: the group monitor and, if requested, test traffic."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from kafka_rollout.composition import records
from kafka_rollout.composition.background import (
    start_group_monitor,
    start_traffic,
    stop_group_monitor,
    stop_traffic,
)
from kafka_rollout.domain.model.errors import FatalError
from kafka_rollout.settings import Settings
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.report.run import GROUPS_WATCHED, LEDGER_VERDICT


@contextmanager
def monitor_groups(ports: ClusterPorts, settings: Settings, security_file: Path | None) -> Iterator[None]:
    """Watch the cluster's groups, as long as this process runs; the report shows what was seen."""
    folder = run_folder(settings, ports)
    start_group_monitor(
        folder, cluster=ports.cluster.name, run_id=ports.run_id, security_file=security_file, only_with=os.getpid()
    )
    try:
        yield
    finally:
        if (watched := stop_group_monitor(folder)) is not None:
            ports.run.attach(GROUPS_WATCHED, watched)


@contextmanager
def run_traffic(ports: ClusterPorts, settings: Settings, security_file: Path | None) -> Iterator[None]:
    """Run test traffic. Raises FatalError in the end if records were lost."""
    folder = run_folder(settings, ports) / "ledger"
    start_traffic(ports.cluster, folder, group=f"kafka-rollout-{ports.run_id}", security_file=security_file)
    try:
        yield
    finally:
        verdict = stop_traffic(folder)
        ports.run.attach(LEDGER_VERDICT, {"ok": verdict.ok, **asdict(verdict)})
    if not verdict.ok:
        lost = "; ".join(d.sentence for d in verdict.discrepancies)
        raise FatalError(
            f"The traffic check failed: {lost or 'one kind of test traffic produced or consumed nothing'}",
            remedy=f"Read its journals in {folder}.",
        )


def run_folder(settings: Settings, ports: ClusterPorts) -> Path:
    return records.run_folder(ports.cluster.name, ports.run_id, settings)
