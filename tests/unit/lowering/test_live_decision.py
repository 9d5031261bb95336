"""The last query before the first kill of a live downgrade, and the decision after the last one, on a fake cluster."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.control import lock
from kafka_rollout.control.claims import claiming
from kafka_rollout.lowering import live
from kafka_rollout.metadata_log.log_choice import NodeLog
from kafka_rollout.metadata_log.losses import Loss
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.node_starts import Starts
from kafka_rollout.observation.run import Run
from kafka_rollout.run.events import has, newest
from kafka_rollout.run.step_events import LiveKept, OfflineSnapshotWritten, OfflineStopping, OfflineUndoing
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.metadata_logs import FakeMetadataLogs
from tests.fakes.runtime import FakeRuntime
from tests.unit.lowering.test_live import CONTROLLERS, approved, is_lowered
from tests.unit.lowering.test_offline import R421


def test_a_host_that_is_lost_after_the_gate_leaves_every_controller_running(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, choose = approved(ports), live._readable_controller

    def lose_one(*given: Any) -> NodeSpec:
        chosen = choose(*given)
        world.unreachable = {2}
        return chosen

    monkeypatch.setattr(live, "_readable_controller", lose_one)
    with pytest.raises(TransientError, match="Not every controller's host responds: The host of node 2 cannot"):
        live.lower_live(Run(ports, plan))
    assert world.stops == []
    assert not has(ports.run.events(), OfflineStopping)


def test_files_of_controllers_that_still_run_do_not_decide(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An election ends between a read of running controllers and their kill. Only files after the kill show it."""
    plan, read = approved(ports), FakeMetadataLogs.node_log

    def before_the_election(logs: Any, node: NodeSpec, **options: Any) -> NodeLog:
        log = read(logs, node, **options)
        if not world.replaced or not any(world.runs(node_id) for node_id in CONTROLLERS):
            return log
        epoch = world.snapshot_epoch if node.is_controller else 3
        return replace(log, epoch=epoch, newest_epoch=epoch, known_epoch=4, leader_id=-1, snapshots=frozenset())

    with monkeypatch.context() as patched:
        patched.setattr(FakeMetadataLogs, "node_log", before_the_election)
        patched.setattr(live, "quorum_lacks", lambda *given: "ssh: connection reset")
        patched.setattr(live, "serves_at_level", lambda *given: False)
        with pytest.raises(TransientError, match="A leader was elected at the new level"):
            live.lower_live(Run(ports, plan))
    assert has(ports.run.events(), LiveKept)
    assert not has(ports.run.events(), OfflineUndoing)
    assert world.replaced.keys() == CONTROLLERS
    live.lower_live(Run(ports, plan))
    assert is_lowered(world)
    assert world.violations == []


def test_a_return_to_the_old_logs_leaves_the_epochs_that_running_brokers_know(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, undo_install = approved(ports), FakeMetadataLogs.undo_install
    kept: list[bool] = []

    def records(logs: Any, node: NodeSpec, snapshot: str, *, cluster_id: str, keep_epoch: bool = False) -> str | None:
        kept.append(keep_epoch)
        return undo_install(logs, node, snapshot, cluster_id=cluster_id, keep_epoch=keep_epoch)

    monkeypatch.setattr(FakeMetadataLogs, "undo_install", records)
    world.late_losses = [
        Loss(kind="cordoned log directories", subject="broker 11", sentence="Broker 11 loses /data/2.")
    ]
    with pytest.raises(RefusedError, match="The controllers run on their old logs again"):
        live.lower_live(Run(ports, plan))
    assert kept == [True, True, True]


def test_the_running_release_writes_the_snapshot_because_it_loads_it_first(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    plan = approved(ports)
    live.lower_live(Run(ports, plan))
    written = newest(ports.run.events(), OfflineSnapshotWritten)
    assert written is not None
    assert written.proved_by == (R431, R421)


def test_of_the_controllers_that_are_restored_only_one_at_a_time_is_spared_by_the_others(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three would find the two others running, if they were asked at the same time."""
    run, stop, together = Run(ports, approved(ports)), FakeRuntime.stop, Barrier(2)
    running: list[int] = []

    def all_at_once(runtime: FakeRuntime, node: NodeSpec, **limits: Any) -> None:
        with suppress(BrokenBarrierError):
            together.wait(0.2)
        stop(runtime, node, **limits)
        running.append(sum(world.runs(node_id) for node_id in CONTROLLERS))

    monkeypatch.setattr(FakeRuntime, "stop", all_at_once)
    monkeypatch.setattr(live, "served_level", lambda ports: 30)
    monkeypatch.setattr(live, "_can_have_snapshot", lambda *given: True)
    lock.acquire_lock(ports, "A test.")
    with ports.lock.acting(run.cluster.name, ports.run_id, "A test"), claiming(ports, run.cluster.controllers):
        live._return_to_old_logs(live.Controllers(run, Starts(run)), "A test.", None, epoch=None)
    assert running == [2, 2, 2]
    assert all(world.runs(node_id) for node_id in CONTROLLERS)
