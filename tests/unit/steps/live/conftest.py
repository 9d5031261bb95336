"""The fake cluster of the tests of a live downgrade, and its ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import fake_ports


@pytest.fixture
def world() -> FakeCluster:
    return FakeCluster(R431)


@pytest.fixture
def ports(world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterPorts:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    world.clock.sleep(1000)  # every node has run for some time
    return fake_ports(world, tmp_path)
