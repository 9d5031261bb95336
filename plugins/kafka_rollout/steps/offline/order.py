"""The steps of an offline downgrade in their order: the one list that the command and the DAG go through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.offline import actions as offline


class OfflineStep(StrEnum):
    """The values are the names of the DAG's tasks."""

    STOP_ALL = "stop_all"
    CHOOSE_LOG = "choose_log"
    WRITE_SNAPSHOT = "write_snapshot"
    INSTALL_SNAPSHOT = "install_snapshot"
    INSTALL_BINARIES = "install_binaries"
    START_CONTROLLERS = "start_controllers"
    START_BROKERS = "start_brokers"

    @property
    def words(self) -> str:
        return self.value.replace("_", " ")

    def act(self, ports: ClusterPorts, plan: Plan) -> Any:
        """Do it; what it says of itself, as plain data (an XCom). Raises what the step raises."""
        return _ACTS[self](ports, plan)


_ACTS: Mapping[OfflineStep, Callable[[ClusterPorts, Plan], Any]] = {
    OfflineStep.STOP_ALL: lambda ports, plan: list(offline.stop_all(ports, plan)),
    OfflineStep.CHOOSE_LOG: lambda ports, plan: offline.choose(ports, plan).to_dict(),
    OfflineStep.WRITE_SNAPSHOT: lambda ports, plan: offline.write_snapshot(ports, plan).name,
    OfflineStep.INSTALL_SNAPSHOT: lambda ports, plan: {
        str(node_id): sentence for node_id, sentence in offline.install_snapshot(ports, plan).items()
    },
    OfflineStep.INSTALL_BINARIES: offline.install_binaries,
    OfflineStep.START_CONTROLLERS: lambda ports, plan: list(offline.start_controllers(ports, plan).acted),
    OfflineStep.START_BROKERS: lambda ports, plan: list(offline.start_brokers(ports, plan).acted),
}
