"""From an Airflow Connection and a cluster's name to its workbench."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from kafka_rollout.adapters.inventory import find_cluster
from kafka_rollout.adapters.settings import Settings
from kafka_rollout.adapters.workbench import open_workbench

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from kafka_rollout.adapters.security import ClientSecurity
    from kafka_rollout.steps.workbench import Workbench


class KafkaClusterHook(BaseHook):
    """A cluster of the inventory. Its `connection_id` names the Connection with its SASL and TLS settings: login and
    password for SASL, the rest in the extra field (see adapters/security.py); without one it is asked in plain text.
    """

    conn_name_attr = "kafka_cluster_conn_id"
    conn_type = "kafka"
    hook_name = "Kafka cluster"

    def __init__(self, cluster: str) -> None:
        super().__init__()
        self.cluster = cluster

    def security(self) -> ClientSecurity:
        """What every client of the cluster needs to get in."""
        connection_id = self._connection_id()
        return _security(self.get_connection(connection_id) if connection_id else None)

    async def asecurity(self) -> ClientSecurity:
        """The same for a trigger: the triggerer must not be asked synchronously."""
        connection_id = self._connection_id()
        return _security(await self.aget_connection(connection_id) if connection_id else None)

    def open(self, run: str, security: ClientSecurity | None = None) -> AbstractContextManager[Workbench]:
        """The workbench of a DAG run, whose id is the run's in the report store and the lock's holder."""
        return open_workbench(self.cluster, run, security if security is not None else self.security())

    def get_conn(self) -> Any:
        return self.security()

    def _connection_id(self) -> str | None:
        return find_cluster(Settings.from_environment().clusters, self.cluster).connection_id


def _security(connection: Connection | None) -> ClientSecurity:
    from kafka_rollout.adapters.security import ClientSecurity

    if connection is None:
        return ClientSecurity()
    return ClientSecurity.from_airflow_connection_extra(connection.extra_dejson, connection.login, connection.password)
