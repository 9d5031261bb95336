"""The gate of a node in an offline downgrade, after its start and after its restore."""

from __future__ import annotations

from typing import Any

from kafka_rollout.airflow.sensors.gate import GateSensor
from kafka_rollout.domain.gates.ref import GateRef
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.offline import actions
from kafka_rollout.steps.offline.release_step import offline_release_step


class OfflineGateSensor(GateSensor):
    """The gate after a node's start.

    `is_rollback`: after an undo. It offers no rollback, because a broker may have registered.
    """

    def __init__(self, *, kafka_node: int, is_rollback: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kafka_node = kafka_node
        self.is_rollback = is_rollback

    @property
    def can_start_node(self) -> bool:
        return not self.is_rollback

    def start_node_again(self, ports: ClusterPorts, plan: Plan, ref: GateRef) -> None:
        """Start every node without a process, for example one with a new, formatted disk."""

        controller = ports.cluster.node(self.kafka_node).is_controller
        (actions.start_controllers if controller else actions.start_brokers)(ports, plan)

    def _ref(self, plan: Plan) -> GateRef:

        release_step = offline_release_step(plan)
        return GateRef(
            kind=self.kind,
            release_step=(release_step.reversed() if self.is_rollback else release_step).key,
            node_id=self.kafka_node,
        )
