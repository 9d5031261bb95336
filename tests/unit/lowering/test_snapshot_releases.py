"""Which release writes the snapshot of an offline downgrade."""

from __future__ import annotations

from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.run.events import newest
from kafka_rollout.run.step_events import OfflineSnapshotWritten
from tests.fakes.cluster import R431, FakeCluster
from tests.unit.lowering.test_offline import FORWARD, R421, approved, go, ports

__all__ = ["ports"]  # fixture


def test_the_release_that_ran_writes_the_snapshot_and_both_releases_load_it(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD)
    written = newest(ports.run.events(), OfflineSnapshotWritten)
    assert written is not None
    assert written.proved_by == (R431, R421)
