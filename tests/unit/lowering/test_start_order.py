"""Brokers start in an order in which no controller elects a leader that is not in sync; over a fake cluster."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.lowering import ordered_start
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.model.unclean_elections import ENABLE
from kafka_rollout.observation.cluster_ports import ClusterPorts
from tests.fakes.cluster import COMBINED, R431, FakeCluster, make_spec
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.integration.harness.faults.without_live import stage_no_live
from tests.plans import plan_downgrade
from tests.unit.lowering.conftest import stop_in_turn
from tests.unit.lowering.test_offline import FORWARD, R421, approved, go, ports, releases, take_back

__all__ = ["ports"]  # fixture


def settle(world: FakeCluster) -> None:
    for _ in range(3):
        world.advance()
    assert world.violations == []


def lose_the_last(world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, *, after: int) -> Plan:
    """Take the first steps of a plan, in which 13 stops last; then its host does not respond."""
    world.set_topic("orders", ENABLE, "true")
    stop_in_turn(world, monkeypatch, 11, 12, 13)
    plan = approved(ports)
    go(ports, plan, FORWARD[:after])
    world.unreachable = {13}
    return plan


@pytest.mark.parametrize("back", [False, True], ids=["forward", "undone"])
@pytest.mark.parametrize("where", ["topic", "all brokers", "file of a controller"])
def test_the_brokers_of_the_last_isrs_serve_before_the_others_start(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, where: str, *, back: bool
) -> None:
    match where:
        case "topic":
            world.set_topic("orders", ENABLE, "true")
        case "all brokers":
            world.set_default(ENABLE, "true")
        case _:
            world.nodes[2].config[ENABLE] = "true"
    stop_in_turn(world, monkeypatch, 11, 12, 13)
    plan = approved(ports)
    if back:
        go(ports, plan, FORWARD[:5])
        take_back(ports, plan)
    else:
        go(ports, plan)
    settle(world)
    assert releases(world) == {"4.3.1" if back else "4.2.1"}
    assert {one.leader for one in world.topics.values()} == {13}
    started = {node_id: world.nodes[node_id].starts[-1].started_at for node_id in (11, 12, 13)}
    assert started[13] < min(started[11], started[12])


def test_the_order_of_chains_is_that_of_the_isrs_whatever_the_ids(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 stops last; 11 is the last of a partition that 12 has no replica of."""
    world.topics.clear()
    world.add_partition("chain", 0, [13, 11])
    world.add_partition("chain", 1, [11, 12])
    world.set_topic("chain", ENABLE, "true")
    stop_in_turn(world, monkeypatch, 13, 11, 12)
    go(ports, approved(ports))
    started = {node_id: world.nodes[node_id].starts[-1].started_at for node_id in (11, 12, 13)}
    assert started[12] < started[11] < started[13]
    assert world.violations == []


def test_brokers_do_not_wait_for_each_other_where_controllers_elect_from_the_isr(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.set_topic("orders", ENABLE, "false")
    world.set_default(ENABLE, "true")
    stop_in_turn(world, monkeypatch, 11, 12, 13)
    go(ports, approved(ports))
    started = [world.nodes[node_id].starts[-1].started_at for node_id in (11, 12, 13)]
    assert max(started) - min(started) < 1.0


def test_without_the_last_in_sync_replica_the_others_start_only_when_no_controller_elects_them(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = lose_the_last(world, ports, monkeypatch, after=6)
    with pytest.raises(TransientError, match=r"Broker 11 is not started yet: orders-0, .* only on node 13") as raised:
        go(ports, plan, FORWARD[6:])
    assert f"{ENABLE}=false" in raised.value.remedy
    assert not world.runs(11)
    assert not world.runs(12)
    world.set_topic("orders", ENABLE, "false")
    go(ports, plan, FORWARD[6:])
    assert world.runs(11)
    assert world.runs(12)
    world.unreachable = set()
    go(ports, plan)
    settle(world)
    assert {one.leader for one in world.topics.values()} == {13}


def test_without_a_leader_of_the_quorum_an_undo_starts_no_broker_of_which_it_knows_nothing(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.set_topic("orders", ENABLE, "true")
    plan = approved(ports)
    go(ports, plan, FORWARD[:5])
    elect = world._elect_controller
    monkeypatch.setattr(world, "_elect_controller", lambda: setattr(world, "leader", None))
    with pytest.raises(TransientError, match="the in-sync replicas are unknown"):
        take_back(ports, plan)
    assert not any(world.runs(node_id) for node_id in (11, 12, 13))
    monkeypatch.setattr(world, "_elect_controller", elect)
    elect()
    take_back(ports, plan)
    assert releases(world) == {"4.3.1"}


def test_more_brokers_than_are_usually_asked_at_a_time_are_all_stopped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = FakeCluster(R431, spec=make_spec(brokers=12))
    stage_no_live(monkeypatch)
    ports = fake_ports(world, tmp_path)
    plan = approved(ports)
    all_of_them, stop = threading.Barrier(12), FakeRuntime.stop

    def together(runtime: Any, node: NodeSpec, **options: Any) -> None:
        if node.is_broker:
            all_of_them.wait(10.0)
        stop(runtime, node, **options)

    monkeypatch.setattr(FakeRuntime, "stop", together)
    go(ports, plan, FORWARD[:1])
    assert not any(map(world.runs, world.nodes))


def test_combined_nodes_which_start_together_are_not_stopped_while_controllers_elect_unclean_leaders(
    tmp_path: Path,
) -> None:
    world = FakeCluster(R431, spec=COMBINED)
    ports = fake_ports(world, tmp_path)
    plan = approved(ports)
    world.set_topic("orders", ENABLE, "true")
    with pytest.raises(RefusedError, match="the first one that is unfenced is elected") as raised:
        go(ports, plan, FORWARD[:1])
    assert raised.value.remedy.startswith(f"Set {ENABLE}=false")
    assert all(map(world.runs, world.nodes))
    world.set_topic("orders", ENABLE, "false")
    go(ports, plan)
    assert releases(world) == {"4.2.1"}


@pytest.mark.parametrize(("spec", "is_blocked"), [(COMBINED, True), (make_spec(), False)], ids=["combined", "separate"])
def test_the_plan_of_combined_nodes_is_blocked_while_controllers_elect_unclean_leaders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: ClusterSpec, *, is_blocked: bool
) -> None:
    stage_no_live(monkeypatch)
    world = FakeCluster(R431, spec=spec)
    world.set_default(ENABLE, "true")
    world.set_topic("orders", "retention.ms", "1")
    plan = plan_downgrade(fake_ports(world, tmp_path), R421, lowering=Lowering.OFFLINE)
    assert ("UNCLEAN-ELECTION-IN-OUTAGE" in [one.code for one in plan.blockers]) is is_blocked


def test_nothing_stops_while_a_replica_that_is_out_of_sync_could_be_elected(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker runs: it would lead at once when the members of the ISR stop."""
    monkeypatch.setattr(world, "_rejoin", lambda node_id: None)
    world.topics["orders-0"] = replace(world.topics["orders-0"], isr=(11, 13), leader=11)
    plan = approved(ports)
    world.set_default(ENABLE, "true")
    with pytest.raises(TransientError, match="replicas of orders-0 are out of sync"):
        go(ports, plan, FORWARD[:1])
    assert all(map(world.runs, world.nodes))
    world.set_default(ENABLE, "false")
    go(ports, plan, FORWARD[:1])
    assert not any(map(world.runs, world.nodes))


@pytest.mark.parametrize("back", [False, True], ids=["forward", "undone"])
def test_a_broker_that_something_else_started_counts_as_soon_as_it_serves(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, *, back: bool
) -> None:
    """Its host does not respond, so the run does not start it."""
    plan = lose_the_last(world, ports, monkeypatch, after=1)
    if back:
        world.start(13)
        with pytest.raises(TransientError, match="not finished on every node: node 13: The host of node 13 ") as raised:
            take_back(ports, plan)
        assert "Broker" not in raised.value.sentence
    else:
        go(ports, plan, FORWARD[1:6])
        world.start(13)
        go(ports, plan, FORWARD[6:])
    assert all(map(world.runs, (11, 12, 13)))
    settle(world)


def test_an_undo_names_the_way_out_for_brokers_that_wait_for_a_lost_one(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = lose_the_last(world, ports, monkeypatch, after=1)
    with pytest.raises(TransientError, match="Broker 11 is not started yet") as raised:
        take_back(ports, plan)
    assert not world.runs(11)
    assert f"{ENABLE}=false" in raised.value.remedy
    assert "kafka-rollout rollback" in raised.value.remedy
    world.set_topic("orders", ENABLE, "false")
    with pytest.raises(TransientError, match=r"not finished on every node: node 13: The host of node 13 [^:]*$"):
        take_back(ports, plan)
    assert world.runs(11)
    assert world.runs(12)


@pytest.mark.parametrize(
    ("floor", "serves", "way"),
    [
        (15, False, "--bootstrap-controller 127.0.0.1:9001,127.0.0.1:9002,127.0.0.1:9003"),
        (30, False, "Start a broker with an unused node.id"),
        (30, True, "--bootstrap-server 127.0.0.1:9013"),
    ],
    ids=["controllers register", "below 3.7-IV0", "a broker serves"],
)
def test_the_way_out_of_brokers_that_wait_is_one_that_kafka_offers_now(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, *, floor: int, serves: bool, way: str
) -> None:
    """Kafka's tools reach controllers from metadata.version 15 on (KIP-919). It is 29 here."""
    monkeypatch.setattr(ordered_start, "METADATA_VERSION_FLOOR", floor)
    world.topics.clear()
    world.add_partition("orders", 0, [11, 12] if serves else [11, 12, 13])
    world.set_topic("orders", ENABLE, "true")
    stop_in_turn(world, monkeypatch, 11, 13, 12)
    plan = approved(ports)
    go(ports, plan, FORWARD[:-1])
    world.unreachable = {12}
    with pytest.raises(TransientError, match="Broker 11 is not started yet") as raised:
        go(ports, plan, FORWARD[-1:])
    assert way in raised.value.remedy
    assert f"--entity-type topics --entity-name TOPIC --add-config {ENABLE}=false" in raised.value.remedy
