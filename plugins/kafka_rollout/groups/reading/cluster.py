"""The groups of a running cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_rollout.model.groups import DescribedGroup
from kafka_rollout.model.topology import ClusterSpec

if TYPE_CHECKING:
    from kafka_rollout.kafka.client.requests import ClusterConnections
    from kafka_rollout.kafka.client.security.client_security import ClientSecurity

_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterGroups:
    """Reads the groups of one cluster; changes nothing."""

    cluster: ClusterSpec
    connections: ClusterConnections
    security: ClientSecurity | None

    def describe(self) -> tuple[DescribedGroup, ...]:
        from kafka_rollout.kafka.client.groups import describe_groups

        return describe_groups(self.connections)

    def migration_policies(self) -> Mapping[int, str | None]:
        """Return node id → group.consumer.migration.policy; None for a broker without this setting."""
        from kafka_rollout.kafka.client.groups import migration_policies

        return migration_policies(self.connections)

    def with_lag(self, groups: Sequence[DescribedGroup]) -> tuple[DescribedGroup, ...]:
        """Return the groups with their lag, the number of records that they have not consumed yet."""
        from kafka_rollout.kafka.client.groups import with_lag

        return with_lag(self.cluster.bootstrap_servers, self.security, groups)


@contextmanager
def open_groups(cluster: ClusterSpec, security: ClientSecurity | None) -> Iterator[ClusterGroups]:
    """Open connections to every broker, and close them at the end."""
    from kafka_rollout.kafka.client.requests import ClusterConnections
    from kafka_rollout.kafka.client.security.client_security import ClientSecurity

    connections = ClusterConnections(cluster, security or ClientSecurity(), timeout_s=_TIMEOUT_S)
    try:
        yield ClusterGroups(cluster=cluster, connections=connections, security=security)
    finally:
        connections.close()
