"""The gate of a node in an offline downgrade, after its start and after its restore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_rollout.airflow.sensors.gate import GateSensor
from kafka_rollout.domain.gates.ref import GateRef

if TYPE_CHECKING:
    from kafka_rollout.domain.model.plan import Plan
    from kafka_rollout.steps.common.cluster_ports import ClusterPorts


class OfflineGateSensor(GateSensor):
    """The gate after a node's start.

    `way_back`: after an undo. It offers no rollback, because a broker may have registered.
    """

    def __init__(self, *, kafka_node: int, way_back: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kafka_node = kafka_node
        self.way_back = way_back

    @property
    def has_a_node_to_start(self) -> bool:
        return not self.way_back

    def start_once_more(self, ports: ClusterPorts, plan: Plan, ref: GateRef) -> None:
        """Start every node without a process, for example one with a new, formatted disk."""
        from kafka_rollout.steps.offline import actions

        controller = ports.cluster.node(self.kafka_node).is_controller
        (actions.start_controllers if controller else actions.start_brokers)(ports, plan)

    def _ref(self, plan: Plan) -> GateRef:
        from kafka_rollout.steps.offline.release_step import offline_release_step

        release_step = offline_release_step(plan)
        return GateRef(
            kind=self.kind,
            release_step=(release_step.reversed() if self.way_back else release_step).key,
            node_id=self.kafka_node,
        )
