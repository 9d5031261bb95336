"""A host is lost in an offline downgrade of a fake cluster, with all nodes stopped: going on and going back."""

from __future__ import annotations

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import GateKind
from kafka_rollout.lowering import offline
from kafka_rollout.lowering.offline import undo_offline
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.roll.gate_checks import check_gate
from kafka_rollout.run.events import ApprovalOf, Decision, has
from kafka_rollout.run.step_events import OfflineUndone
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import gate_of
from tests.unit.lowering.conftest import stop_in_turn
from tests.unit.lowering.test_offline import (
    FORWARD,
    RELEASE_STEP,
    approved,
    go,
    ports,
    releases,
    take_back,
)

__all__ = ["ports"]  # fixture
NODES = (1, 2, 3, 11, 12, 13)
LOST = (1, 3, 12)  # the first controller, whose log is chosen; the last one; a broker


def started_at_boot(world: FakeCluster, ports: ClusterPorts) -> Plan:
    """Lose the host of controller 3 after the stop, until systemd starts its unit when the others are started.

    The controller fetches the snapshot from the leader.
    """
    plan = approved(ports)
    go(ports, plan, FORWARD[:1])
    world.unreachable = {3}
    go(ports, plan, FORWARD[1:6])
    world.unreachable = set()
    world.start(3)
    return plan


@pytest.fixture
def broker_11_is_in_sync(world: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops last, so the partitions have a leader without the other brokers."""
    stop_in_turn(world, monkeypatch, 13, 12, 11)


@pytest.mark.usefixtures("broker_11_is_in_sync")
@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("after", range(1, 6))
@pytest.mark.parametrize("unit_starts", [False, True], ids=["", "unit starts at the boot"])
def test_the_others_go_on_and_the_lost_one_follows_when_its_host_is_back(
    world: FakeCluster,
    ports: ClusterPorts,
    lost: int,
    after: int,
    unit_starts: bool,
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:after])
    world.unreachable = {lost}
    go(ports, plan, FORWARD[after:])
    assert {node_id for node_id in NODES if world.runs(node_id)} == set(NODES) - {lost}
    assert world.finalized[METADATA_VERSION] == 29
    gate = check_gate(
        Run(ports, plan),
        gate_of(ports, plan, GateKind.AFTER_START, RELEASE_STEP, lost),
    )
    assert not gate.passes
    assert f"The host of node {lost} cannot be reached" in gate.waits_for
    world.unreachable = set()
    if unit_starts:
        world.start(lost)
    go(ports, plan)
    assert releases(world) == {"4.2.1"}
    assert lost in world.with_snapshot, "it was not started with its old log"
    assert world.violations == []


def test_a_node_without_the_snapshot_is_not_started_when_its_host_is_back(
    world: FakeCluster,
    ports: ClusterPorts,
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:1])
    world.unreachable = {13}
    go(ports, plan, FORWARD[1:5])
    world.unreachable = set()
    go(ports, plan, FORWARD[5:])
    assert not world.runs(13)
    gate = check_gate(
        Run(ports, plan),
        gate_of(ports, plan, GateKind.AFTER_START, RELEASE_STEP, 13),
    )
    assert "the snapshot is not installed there" in gate.waits_for
    go(ports, plan)
    assert world.runs(13)


def test_a_controller_that_was_started_before_the_brokers_follows_when_they_serve(
    world: FakeCluster,
    ports: ClusterPorts,
) -> None:
    plan = started_at_boot(world, ports)
    go(ports, plan)
    assert {node_id for node_id in NODES if world.runs(node_id)} == set(NODES) - {3}
    go(ports, plan)
    assert releases(world) == {"4.2.1"}
    assert world.violations == []


def test_an_undo_does_not_start_a_controller_that_fetched_the_snapshot_and_has_no_backup(
    world: FakeCluster,
    ports: ClusterPorts,
) -> None:
    plan = started_at_boot(world, ports)
    with pytest.raises(FatalError, match="node 3: Node 3 was started during the downgrade"):
        take_back(ports, plan)
    assert {node_id for node_id in NODES if world.runs(node_id)} == set(NODES) - {3}
    assert world.finalized[METADATA_VERSION] == 30
    assert world.violations == []


def test_a_node_on_its_old_release_is_not_stopped_while_the_others_cannot_spare_it(
    world: FakeCluster,
    ports: ClusterPorts,
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:1])
    world.unreachable = {12}
    go(ports, plan, FORWARD[1:])
    world.unreachable = set()
    world.start(12)
    world.stop(11)
    with pytest.raises(RefusedError, match="Node 12 runs its old release and cannot be stopped safely yet"):
        go(ports, plan)
    assert world.runs(12)
    world.start(11)
    for _ in range(3):
        world.advance()
    go(ports, plan)
    assert releases(world) == {"4.2.1"}


def test_a_host_lost_before_its_node_was_stopped_ends_the_step_after_the_other_stops(
    world: FakeCluster,
    ports: ClusterPorts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = approved(ports)
    record = offline._record_before

    def lose(*given: object) -> None:
        record(*given)  # type: ignore[arg-type]
        world.unreachable = {11}

    monkeypatch.setattr(offline, "_record_before", lose)
    with pytest.raises(TransientError, match="The host of node 11 cannot be reached"):
        offline.stop_all(Run(ports, plan))
    assert {12, 13} <= set(world.stops)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "a test")
    with pytest.raises(TransientError, match="node 11"):
        undo_offline(Run(ports, plan))
    assert all(world.runs(node_id) for node_id in NODES)


def test_less_than_a_majority_of_the_controllers_is_refused(world: FakeCluster, ports: ClusterPorts) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:1])
    world.unreachable = {1, 2}
    with pytest.raises(RefusedError, match=r"1 of 3 voters are available"):
        offline.choose(Run(ports, plan))


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("steps", range(1, 6))
def test_an_undo_starts_the_others_and_finishes_when_the_host_is_back(
    world: FakeCluster,
    ports: ClusterPorts,
    lost: int,
    steps: int,
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:steps])
    world.unreachable = {lost}
    with pytest.raises(TransientError, match=f"node {lost}: The host of node {lost} cannot be reached"):
        take_back(ports, plan)
    assert {node_id for node_id in NODES if world.runs(node_id)} == set(NODES) - {lost}
    assert world.leader is not None
    assert world.finalized[METADATA_VERSION] == 30
    assert not has(ports.run.events(), OfflineUndone)
    world.unreachable = set()
    if steps % 2:
        world.start(lost)  # systemd starts the unit at the boot of the host
    undo_offline(Run(ports, plan))
    assert releases(world) == {"4.3.1"}
    assert world.replaced == {}
    assert world.violations == []


@pytest.mark.parametrize("steps", [1, 2], ids=["before the choice", "after the choice"])
def test_an_undo_starts_the_others_while_a_dead_host_keeps_the_downgrade_from_going_on(
    world: FakeCluster, ports: ClusterPorts, steps: int
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:steps])
    world.unreachable = {2}
    for node_id in (1, 11):  # as configuration management does it
        world.start(node_id)
    with pytest.raises((RefusedError, TransientError)) as refused:
        offline.stop_all(Run(ports, plan))
    assert "kafka-rollout rollback" in refused.value.remedy or steps == 1
    with pytest.raises(TransientError, match="node 2: The host of node 2 cannot be reached"):
        take_back(ports, plan)
    assert {node_id for node_id in NODES if world.runs(node_id)} == set(NODES) - {2}
    assert world.leader is not None
    assert world.violations == []


def test_an_undo_without_a_majority_of_logs_is_refused_once_a_snapshot_is_installed(
    world: FakeCluster,
    ports: ClusterPorts,
) -> None:
    plan = approved(ports)
    go(ports, plan, FORWARD[:5])
    world.unreachable = {1, 2}
    with pytest.raises(TransientError, match="1 of 3 controllers"):
        take_back(ports, plan)
    assert world.replaced.keys() == set(NODES)
    world.unreachable = set()
    assert undo_offline(Run(ports, plan)) == NODES
