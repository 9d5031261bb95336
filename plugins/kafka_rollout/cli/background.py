"""Background processes of a run from a shell: the group monitor and, if requested, test traffic."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from kafka_rollout.composition.background import (
    start_group_monitor,
    start_traffic,
    stop_group_monitor,
    stop_traffic,
)
from kafka_rollout.composition.records import run_folder
from kafka_rollout.domain.model.errors import FatalError
from kafka_rollout.settings import Settings
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.report.run import GROUPS_WATCHED, LEDGER_VERDICT

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_rollout.composition.credentials import ClientSecurity


@contextmanager
def monitor_groups(ports: ClusterPorts, settings: Settings, security: ClientSecurity | None) -> Iterator[None]:
    """Watch the cluster's groups, as long as this process runs; the report shows what was seen."""
    cluster = ports.cluster.name
    start_group_monitor(cluster, ports.run_id, security=security, only_with=os.getpid(), settings=settings)
    try:
        yield
    finally:
        if (watched := stop_group_monitor(cluster, ports.run_id, settings=settings)) is not None:
            ports.run.attach(GROUPS_WATCHED, watched)


@contextmanager
def run_traffic(
    ports: ClusterPorts, settings: Settings, security: ClientSecurity | None, on_progress: Callable[[str], None]
) -> Iterator[None]:
    """Run test traffic. Raises FatalError in the end if records were lost."""
    start_traffic(ports.cluster, ports.run_id, security=security, settings=settings)
    try:
        yield
    finally:
        with lock.keep_lock(ports):
            verdict = stop_traffic(
                ports.cluster.name, ports.run_id, security=security, settings=settings, on_progress=on_progress
            )
        if verdict is not None:
            ports.run.attach(LEDGER_VERDICT, {"ok": verdict.ok, **asdict(verdict)})
    if verdict is not None and not verdict.ok:
        lost = "; ".join(d.sentence for d in verdict.discrepancies)
        raise FatalError(
            f"The traffic check failed: {lost or 'one kind of test traffic produced or consumed nothing'}",
            remedy=f"Read its journals in {run_folder(ports.cluster.name, ports.run_id, settings) / 'ledger'}.",
        )
