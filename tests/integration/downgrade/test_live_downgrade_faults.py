"""Faults while no controller is active in a live downgrade of a real cluster, with test traffic: nothing is lost.

The tests share a cluster. Each raises metadata.version to 30 again, as `kafka_features` does.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.gates.gate import Gate, GateKind
from kafka_rollout.lowering import live
from kafka_rollout.lowering.lowered_snapshot import write_once
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.roll.gate_checks import wait_for_gate
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import LiveLowered, OfflineInstalled
from tests.integration.conftest import MakeCluster
from tests.integration.downgrade.test_live_downgrade import (
    GATE,
    NEW,
    approved_plan,
    create_topic,
    levels,
    traffic,
)
from tests.integration.downgrade.test_offline_downgrade import format_anew
from tests.integration.harness.faults.separation import needs_routing_rules, run_as_another_user, separated
from tests.integration.harness.feature_harness import opened
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(make_shared_cluster: MakeCluster) -> LocalCluster:
    return make_shared_cluster(str(NEW), layout="separate")


@pytest.fixture
def ports(cluster: LocalCluster, tmp_path: Path) -> Iterator[ClusterPorts]:
    with opened(cluster, tmp_path / "home") as ports:
        if set(levels(ports).values()) != {30}:
            with KafkaAdmin(cluster.spec) as admin:
                assert all(one.accepted for one in admin.update_features({METADATA_VERSION: 30}, validate_only=False))
            wait_until(lambda: set(levels(ports).values()) == {30}, 60)
        yield ports


@pytest.mark.parametrize("fault", ["killed", "paused", pytest.param("separated", marks=needs_routing_rules)])
def test_a_broker_that_fails_without_a_controller_gets_its_leaders_moved_and_comes_back(
    cluster: LocalCluster, ports: ClusterPorts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    broker = cluster.spec.brokers[0]
    if fault == "separated":
        run_as_another_user(broker, tmp_path, monkeypatch)
        cluster.runtime.stop(broker, deadline_s=60)
        cluster.runtime.start(broker)
        cluster.wait_until_ready()
    pid = ports.runtime.process(broker).pid
    assert pid is not None
    with traffic(cluster, tmp_path / f"faults-{fault}"):
        with ExitStack() as ends:

            def fail() -> None:
                if fault == "separated":
                    ends.enter_context(separated(broker))
                else:
                    os.kill(pid, signal.SIGSTOP if fault == "paused" else signal.SIGKILL)
                if fault == "paused":
                    ends.callback(os.kill, pid, signal.SIGCONT)

            lower_with(ports, monkeypatch, fail)
            wait_until(lambda: all(p.leader not in (-1, broker.node_id) for p in ports.admin.partitions()), 120)
        cluster.runtime.start(broker)
        assert (ports.runtime.process(broker).pid == pid) is (fault != "killed")
        is_whole(ports)


def test_a_controller_whose_disk_is_lost_stays_out_and_the_others_continue(
    cluster: LocalCluster, ports: ClusterPorts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = cluster.spec.controllers[0]
    with traffic(cluster, tmp_path / "disk"):
        lower_with(ports, monkeypatch, lambda: empty(ports.runtime.metadata_log_dir(lost)))
        wait_until(lambda: ports.runtime.process(lost).pid is None, 60)
        had_log = {event.node_id: event.had_log for event in events_of(ports.run.events(), OfflineInstalled)}
        assert had_log == {node.node_id: node != lost for node in cluster.spec.controllers}
        create_topic(ports, "without-the-lost-one")
        format_anew(cluster, lost)
        cluster.runtime.start(lost)
        is_whole(ports)


def lower_with(ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, fault: Callable[[], None]) -> None:
    """Lower 30 to 29. The fault happens when every controller has stopped."""
    plan = approved_plan(ports)

    def write_after_the_fault(*given: object) -> Path:
        assert all(ports.runtime.process(node).pid is None for node in ports.cluster.controllers)
        fault()
        return write_once(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(live, "write_once", write_after_the_fault)
    print(live.lower_live(Run(ports, plan)))
    assert len(events_of(ports.run.events(), LiveLowered)) == 1


def is_whole(ports: ClusterPorts) -> None:
    wait_for_gate(Run(ports, ports.run.load_plan()), Gate(kind=GateKind.METADATA_VERSION), GATE)
    wait_until(lambda: set(levels(ports).values()) == {29}, 60)
    wait_until(lambda: all(len(one.isr) == len(one.replicas) for one in ports.admin.partitions()), 120)
    assert ports.admin.registered().fenced == frozenset()


def empty(directory: Path | None) -> None:
    assert directory is not None
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
