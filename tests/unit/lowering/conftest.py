"""The fake cluster of the tests of lower levels, and its ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.observation.cluster_ports import ClusterPorts
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.unit.fake_run import no_waiting

__all__ = ["no_waiting", "ports", "world"]  # fixtures


@pytest.fixture
def world() -> FakeCluster:
    return FakeCluster(R431)


@pytest.fixture
def ports(world: FakeCluster, tmp_path: Path) -> ClusterPorts:
    world.clock.sleep(1000)  # every node has run for some time
    return fake_ports(world, tmp_path)


def stop_in_turn(world: FakeCluster, monkeypatch: pytest.MonkeyPatch, *order: int) -> None:
    """Let the brokers end their controlled shutdowns in this order, which is that of the ISRs."""
    stop = world._stop
    waiting: list[int] = []

    def in_turn(node_id: int) -> None:
        if node_id not in order:
            stop(node_id)
            return
        waiting.append(node_id)
        world.nodes[node_id].running = None
        if len(waiting) == len(order):
            for one in order:
                stop(one)

    monkeypatch.setattr(world, "_stop", in_turn)
