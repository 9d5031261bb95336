"""The cluster of a public operator or sensor: by the id of a Connection, or by its name in the inventory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kafka_rollout.airflow.common.cluster_access import ClusterAccess
from kafka_rollout.airflow.hooks.kafka_cluster import KafkaClusterHook
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.releases.facts import Release

if TYPE_CHECKING:
    from kafka_rollout.client.security.client_security import ClientSecurity
    from kafka_rollout.observation.cluster_ports import ClusterPorts

Opening = Callable[[], AbstractContextManager["ClusterPorts"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyCluster:
    """Raises UserError unless it has one of both names, and for what belongs to the other one."""

    kafka_cluster_conn_id: str | None = None
    cluster: str | None = None
    """In the inventory, which has its Connections, agents and hosts."""
    prometheus_url: str | None = None
    """/metrics of the exporter of every node, with `{host}` and `{node_id}` in their places."""
    jolokia_url: str | None = None
    """Base URL of Jolokia of every node, likewise."""
    running_release: str | None = None
    """The patch release, which brokers do not report."""

    def __post_init__(self) -> None:
        if (self.kafka_cluster_conn_id is None) == (self.cluster is None):
            raise UserError(
                "A cluster is named either by kafka_cluster_conn_id or by cluster.",
                remedy="Set kafka_cluster_conn_id to the id of a Connection, or cluster to a name of the inventory.",
            )
        for name in ("prometheus_url", "jolokia_url", "running_release") if self.cluster is not None else ():
            if getattr(self, name) is not None:
                raise UserError(
                    f"{name} belongs to kafka_cluster_conn_id.", remedy="Set it in the inventory of the cluster."
                )

    @classmethod
    def of(cls, kafka_cluster_conn_id: str | None, cluster: str | None, **options: str | None) -> AnyCluster:
        """Return the cluster of an operator's arguments; without a name, that of the default Connection."""
        if kafka_cluster_conn_id is None and cluster is None:
            kafka_cluster_conn_id = KafkaClusterHook.default_conn_name
        return cls(kafka_cluster_conn_id=kafka_cluster_conn_id, cluster=cluster, **options)

    def open_to_read(self) -> AbstractContextManager[ClusterPorts]:
        """Open the ports in a task: nothing is stored, and every change is refused."""
        if self.cluster is not None:
            return self._access.open_to_read()
        return self._by_hook(self._hook)

    def source(self, settings: Settings) -> tuple[str, str, ClientSecurity]:
        """Return a name of the cluster, its bootstrap servers and its credentials."""
        if self.cluster is not None:
            return self.cluster, get_cluster(self.cluster, settings).bootstrap_servers, self._access.security()
        hook = self._hook
        return hook.kafka_cluster_conn_id, hook.bootstrap_servers(), hook.security()

    async def aopening(self) -> Opening:
        """Read the Connections in the triggerer; return how a thread of it opens the ports."""
        if self.cluster is not None:
            access = self._access
            return partial(access.open_to_read, await access.asecurity())
        hook = self._hook
        await hook.aread()
        return partial(self._by_hook, hook)

    @property
    def _access(self) -> ClusterAccess:
        return ClusterAccess(str(self.cluster))

    @property
    def _hook(self) -> KafkaClusterHook:
        return KafkaClusterHook(str(self.kafka_cluster_conn_id))

    def _by_hook(self, hook: KafkaClusterHook) -> AbstractContextManager[ClusterPorts]:
        running = None if self.running_release is None else Release.parse(self.running_release)
        return hook.open_to_read(prometheus_url=self.prometheus_url, jolokia_url=self.jolokia_url, running=running)
