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
