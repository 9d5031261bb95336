"""The ports of a trigger: its gates prove by Airflow's records what they rest on, as tasks do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_rollout.airflow.approvals.airflow_records import TriggerRecords

if TYPE_CHECKING:
    from kafka_rollout.airflow.common.cluster_access import ClusterAccess
    from kafka_rollout.client.security.client_security import ClientSecurity
    from kafka_rollout.observation.cluster_ports import ClusterPorts


@contextmanager
def trigger_ports(
    hook: ClusterAccess, run_id: str, security: ClientSecurity, *, clears: int | None
) -> Iterator[ClusterPorts]:
    """Open the ports of a DAG run in the triggerer. `clears`: as in `ClusterAccess.open`."""
    with hook.open(run_id, security, clears=clears) as opened:
        yield replace(opened, confirm_approval=TriggerRecords(opened).confirm)
