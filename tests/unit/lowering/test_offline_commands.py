"""The operator's commands before a stop, in an offline downgrade of a fake cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.lowering import offline
from kafka_rollout.model.topology import HostCommand, ServiceSpec
from kafka_rollout.observation.run import Run
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.integration.harness.faults.without_live import stage_no_live
from tests.unit.lowering.test_offline import approved


def test_the_commands_before_a_stop_run_on_every_node_before_the_first_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They can take an hour, and the cluster serves until the first broker stops."""
    stage_no_live(monkeypatch)
    world = FakeCluster(R431)
    service = ServiceSpec(host="kafka", before_stop=(HostCommand(command="drain", timeout_s=3600.0),))
    world.spec = replace(world.spec, nodes=tuple(replace(node, service=service) for node in world.spec.nodes))
    ports = fake_ports(world, tmp_path)
    plan = approved(ports)
    prepared: list[tuple[int, int]] = []
    world.on_prepare = lambda node_id: prepared.append((node_id, len(world.stops)))
    offline.stop_all(Run(ports, plan))
    assert sorted(prepared) == [(node.node_id, 0) for node in sorted(world.spec.nodes, key=lambda node: node.node_id)]
    assert sorted(world.stops) == sorted(world.nodes)
