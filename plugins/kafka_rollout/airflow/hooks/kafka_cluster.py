"""A Kafka cluster by the id of an Airflow Connection, without an inventory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from kafka_rollout.base.errors import RolloutError, UserError
from kafka_rollout.base.wording import count

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from confluent_kafka.admin import AdminClient

    from kafka_rollout.client.security.client_security import ClientSecurity
    from kafka_rollout.client.security.credentials import ConnectionSettings
    from kafka_rollout.observation.cluster_ports import ClusterPorts
    from kafka_rollout.releases.facts import Release


class KafkaClusterHook(BaseHook):
    """A cluster by a Connection of type *Kafka cluster*, or of Airflow's Kafka provider.

    Host and port are those of a broker; several brokers are in Host as `host:port,host:port`. The extra
    `bootstrap.servers` comes first. Login and password are for SASL, the other settings of security are extras with
    the names of librdkafka. Raises UserError for a Connection that cannot be used.
    """

    conn_name_attr = "kafka_cluster_conn_id"
    default_conn_name = "kafka_cluster_default"
    conn_type = "kafka_rollout"
    hook_name = "Kafka cluster"

    def __init__(self, kafka_cluster_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.kafka_cluster_conn_id = kafka_cluster_conn_id
        self._read: Connection | None = None

    def bootstrap_servers(self) -> str:
        """Return `host:port` of one or more brokers, with commas."""
        connection = self._connection()
        extra: Any = connection.extra_dejson
        host = (extra.get("bootstrap.servers") if isinstance(extra, dict) else None) or connection.host
        if not host:
            raise UserError(
                f"The Connection {connection.conn_id} names no broker.",
                remedy="Write a broker into its fields Host and Port, or several as host:port,host:port into Host.",
            )
        return _with_port(str(host), connection.port)

    def security(self) -> ClientSecurity:
        """Return the credentials."""
        from kafka_rollout.client.security.credentials import use_connections

        return use_connections(settings_of(self._connection()), None, None)

    async def aread(self) -> None:
        """Read the Connection: in the triggerer, which must not be called synchronously, before anything else."""
        self._read = await self.aget_connection(self.kafka_cluster_conn_id)

    def _connection(self) -> Connection:
        return self._read or self.get_connection(self.kafka_cluster_conn_id)

    def get_conn(self) -> AdminClient:
        """Return a client of the cluster's administration; it connects at its first request."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap_servers(), **self.security().confluent()})

    @contextmanager
    def open_to_read(
        self, *, prometheus_url: str | None = None, jolokia_url: str | None = None, running: Release | None = None
    ) -> Iterator[ClusterPorts]:
        """Find the nodes and open their ports; nothing is stored, and every change is refused.

        `prometheus_url`, `jolokia_url`, `running`: as `discover_spec`, which also has the errors.
        """
        from kafka_rollout.base.system.settings import Settings
        from kafka_rollout.client.requests import SilentNodes
        from kafka_rollout.clusters.discovery import discover_spec
        from kafka_rollout.wiring.cluster_ports import open_ports_to_read

        settings, silent, security = Settings.from_environment(), SilentNodes(), self.security()
        spec = discover_spec(
            self.bootstrap_servers(),
            security,
            settings,
            running=running,
            silent=silent,
            prometheus_url=prometheus_url,
            jolokia_url=jolokia_url,
        )
        with open_ports_to_read(spec, security, settings, silent=silent) as ports:
            yield ports

    def test_connection(self) -> tuple[bool, str]:
        """Return whether every node responds with these credentials, and what was seen: the button *Test*."""
        from kafka_rollout.clusters.discovery import discover_cluster

        try:
            found = discover_cluster(self.bootstrap_servers(), self.security())
        except RolloutError as error:
            return False, str(error)
        brokers = sum(node.is_broker for node in found.nodes)
        controllers = sum(node.is_controller for node in found.nodes)
        seen = f"Cluster {found.cluster_id}: {count(brokers, 'broker')}, {count(controllers, 'controller')}."
        return not found.problems, " ".join([seen, *found.problems])


def _with_port(host: str, port: int | None) -> str:
    """Return the host with the port, unless it has one. An address of IPv6 gets its brackets."""
    if host.count(":") > 1 and not re.search(r"[\[\],]", host):
        host = f"[{host}]"
    return f"{host}:{port}" if port and (":" not in host or host.endswith("]")) else host


def settings_of(connection: Connection) -> ConnectionSettings:
    """Return what a Connection says about security."""
    from kafka_rollout.client.security.credentials import ConnectionSettings

    return ConnectionSettings(login=connection.login, password=connection.password, extra=connection.extra_dejson)
