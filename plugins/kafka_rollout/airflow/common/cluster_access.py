"""The ports of a cluster, from its inventory and an Airflow Connection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from kafka_rollout.airflow.hooks.kafka_cluster import settings_of
from kafka_rollout.base.errors import RolloutError, UserError
from kafka_rollout.base.lease import NEWEST_CALL, call_of_clear
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.wiring.cluster_ports import open_cluster_ports, open_ports_to_read

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from paramiko import SSHClient

    from kafka_rollout.client.security.client_security import ClientSecurity, PrometheusAccess
    from kafka_rollout.observation.cluster_ports import ClusterPorts

log = logging.getLogger(__name__)


class ClusterAccess:
    """Opens a cluster of the inventory. `connection_id`: the Connection with its SASL and TLS settings.

    Login and password are for SASL, other settings are in the extra field
    (client/security/client_security.py). Without a Connection the listeners use plain text.
    `controller_connection_id` and `traffic_connection_id`: the Connections of the controller listener and of the test
    traffic, if their settings differ. `prometheus_connection_id`: a Connection of type HTTP.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster

    def security(self) -> ClientSecurity:
        """Return the credentials for every client of the cluster."""
        spec = get_cluster(self.cluster)
        connections = [BaseHook.get_connection(name) if name else None for name in spec.connection_ids]
        prometheus = None
        if name := spec.prometheus_connection_id:
            with _unknown_without(name):
                prometheus = _access(BaseHook.get_connection(name))
        return _security(*connections, prometheus=prometheus)

    async def asecurity(self) -> ClientSecurity:
        """The same for a trigger: the triggerer must not be called synchronously."""
        spec = get_cluster(self.cluster)
        connections = [await BaseHook.aget_connection(name) if name else None for name in spec.connection_ids]
        prometheus = None
        if name := spec.prometheus_connection_id:
            with _unknown_without(name):
                prometheus = _access(await BaseHook.aget_connection(name))
        return _security(*connections, prometheus=prometheus)

    def open(
        self, run: str, security: ClientSecurity | None = None, *, clears: int | None
    ) -> AbstractContextManager[ClusterPorts]:
        """Open the ports of a DAG run. The run id is also the id of the run history and the holder of the lock.

        `clears`: how often users have cleared tasks of the run (`clears_of`): each clear is a call of a person. None if
        it is not known.
        """
        return open_cluster_ports(
            self.cluster,
            run,
            security if security is not None else self.security(),
            call=NEWEST_CALL if clears is None else call_of_clear(clears),
            ssh=self.ssh(),
        )

    def open_to_read(self, security: ClientSecurity | None = None) -> AbstractContextManager[ClusterPorts]:
        """Open the ports without a run: nothing is stored, and every change is refused."""
        found = security if security is not None else self.security()
        return open_ports_to_read(get_cluster(self.cluster), found, ssh=self.ssh())

    def ssh(self) -> Callable[[str], SSHClient] | None:
        """Return how the hosts are reached; None without an SSH Connection (then by the worker's SSH configuration).

        The function raises UserError for a Connection that switches off the check of host keys.
        """
        name = get_cluster(self.cluster).ssh_connection_id
        if name is None:
            return None

        def connect(host: str) -> SSHClient:
            from airflow.providers.ssh.hooks.ssh import SSHHook

            from kafka_rollout.nodes.runtimes.hosts.shells import connect_with

            hook = SSHHook(ssh_conn_id=name, remote_host=host)
            if hook.no_host_key_check or hook.allow_host_key_change:
                raise UserError(
                    f"The Airflow Connection {name} switches off the check of host keys.",
                    remedy="Remove no_host_key_check and allow_host_key_change from its extra field, and add the host "
                    "keys to known_hosts of the workers.",
                )
            return connect_with(hook)

        return connect


def clears_of(context: Any) -> int:
    """Return how often users have cleared tasks of the DAG run. A retry of a task does not change it."""
    return int(getattr(context.get("dag_run"), "clear_number", None) or 0)


@contextmanager
def _unknown_without(name: str) -> Iterator[None]:
    """Log an error of the Connection of Prometheus: its conditions are unknown then, and a rollback needs none."""
    try:
        yield
    except Exception as error:
        why = str(error) if isinstance(error, RolloutError) else f"{type(error).__name__}."
        log.warning("Connection %s cannot be read: %s", name, why)


def _access(connection: Connection) -> PrometheusAccess:
    from kafka_rollout.client.security.client_security import PrometheusAccess

    return PrometheusAccess.from_airflow_connection(connection)


def _security(*connections: Connection | None, prometheus: PrometheusAccess | None) -> ClientSecurity:
    from kafka_rollout.client.security.credentials import use_connections

    return use_connections(*(settings_of(one) if one else None for one in connections), prometheus=prometheus)
