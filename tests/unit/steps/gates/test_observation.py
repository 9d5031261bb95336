"""What the gates read of a cluster: through which brokers, by which limits, and from whose counters and logs."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from kafka_rollout.domain.gates.check import GateKind, GateRef
from kafka_rollout.domain.model.cluster.state import PartitionState, RegisteredNodes
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.gates.checks import check_gate
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import FakeAdmin

RELEASE_STEP = "3.9.1-to-4.3.1"
BEFORE = GateRef(kind=GateKind.BEFORE_STOP, release_step=RELEASE_STEP, node_id=12)
AFTER = GateRef(kind=GateKind.AFTER_START, release_step=RELEASE_STEP, node_id=12)


def test_partitions_and_registrations_are_read_only_through_brokers_with_current_metadata(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions, registered = FakeAdmin.partitions, FakeAdmin.registered
    asked: dict[str, list[int]] = {}

    def read_partitions(admin: FakeAdmin, *, through: Collection[int] = ()) -> tuple[PartitionState, ...]:
        asked["partitions"] = sorted(through)
        return partitions(admin, through=through)

    def read_registered(admin: FakeAdmin, *, through: Collection[int] = ()) -> RegisteredNodes:
        asked["registered"] = sorted(through)
        return registered(admin, through=through)

    monkeypatch.setattr(FakeAdmin, "partitions", read_partitions)
    monkeypatch.setattr(FakeAdmin, "registered", read_registered)
    cluster.nodes[11].behind = 100  # the first broker of the inventory answers from its old metadata
    assert not check_gate(ports, plan, BEFORE).passes
    assert asked == {"partitions": [12, 13], "registered": [12, 13]}
