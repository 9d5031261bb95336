"""The cluster as its inventory describes it: what we were told, before anything is observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kafka_rollout.domain.model.errors import UserError

DAILY = "@daily"
NEVER = "never"


class Role(StrEnum):
    """KRaft's process.roles."""

    BROKER = "broker"
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node of the inventory.

    `broker_address` and `controller_address` are `host:port` (None where the node lacks the role);
    `prometheus_url` is the exporter's /metrics, `jolokia_url` the agent's base; `directory` is the node's home for
    the local_process runtime (holds server.properties, libs of the release, data, logs).
    """

    node_id: int
    name: str
    roles: frozenset[Role]
    broker_address: str | None = None
    controller_address: str | None = None
    prometheus_url: str | None = None
    jolokia_url: str | None = None
    rack: str | None = None
    directory: str | None = None

    @property
    def is_controller(self) -> bool:
        return Role.CONTROLLER in self.roles

    @property
    def is_broker(self) -> bool:
        return Role.BROKER in self.roles


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """One cluster of the inventory.

    `connection_id` names the Airflow Connection that holds the credentials (None: PLAINTEXT without any),
    `controller_connection_id` that of the controllers' listener, where its settings are others;
    `runtime` is `local_process`, `ssh_service` or `strimzi`; `release_overrides` are configuration lines that the
    roll brings in with a release (release as text → key → value); `scan_schedule` is a cron expression in UTC, a
    preset such as DAILY, or NEVER.
    """

    name: str
    nodes: tuple[NodeSpec, ...]
    runtime: str = "local_process"
    connection_id: str | None = None
    controller_connection_id: str | None = None
    owner: str = "kafka-platform"
    approvers: tuple[str, ...] = ()
    scan_schedule: str = DAILY
    release_overrides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def node(self, node_id: int) -> NodeSpec:
        for node in self.nodes:
            if node.node_id == node_id:
                return node
        raise UserError(
            f"Node {node_id} is not in the inventory of cluster {self.name}.",
            remedy=f"It has nodes {', '.join(str(n.node_id) for n in self.nodes)}.",
        )

    @property
    def brokers(self) -> tuple[NodeSpec, ...]:
        return tuple(node for node in self.nodes if node.is_broker)

    @property
    def controllers(self) -> tuple[NodeSpec, ...]:
        return tuple(node for node in self.nodes if node.is_controller)

    @property
    def brokers_alone(self) -> tuple[NodeSpec, ...]:
        """Brokers that are no controllers."""
        return tuple(node for node in self.nodes if not node.is_controller)

    @property
    def controllers_first(self) -> tuple[NodeSpec, ...]:
        """All nodes in the order in which a stopped cluster is started."""
        return (*self.controllers, *self.brokers_alone)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.broker_address for node in self.brokers if node.broker_address)

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(node.controller_address for node in self.controllers if node.controller_address)
