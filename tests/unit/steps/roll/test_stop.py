"""The commands before a stop: they run before the gate, and what they change does not hide what was there before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import HostCommand, ServiceSpec
from kafka_rollout.run.events import ApprovalOf, Channel, Decision, PauseAsked, Responder, events_of
from kafka_rollout.run.step_events import PreparingStop, StopPrepared
from kafka_rollout.steps.common.approval import record_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.control import HeldError
from kafka_rollout.steps.roll.node import replace_node, replace_nodes
from tests.fakes.cluster import R391, R431, FakeCluster, make_spec
from tests.fakes.dying_files import KilledError
from tests.fakes.ports import fake_ports, in_step
from tests.plans import plan_upgrade

RELEASE_STEP = "3.9.1-to-4.3.1"
NODE = 12  # a broker


def draining_bench(cluster: FakeCluster, home: Path) -> tuple[ClusterPorts, Plan]:
    """The node has a command before its stop."""
    service = ServiceSpec(host="broker-12", before_stop=(HostCommand(command="drain", timeout_s=3600.0),))
    nodes = [replace(node, service=service) if node.node_id == NODE else node for node in cluster.spec.nodes]
    cluster.spec = replace(cluster.spec, nodes=tuple(nodes))
    ports = fake_ports(cluster, home)
    plan = plan_upgrade(ports, R431, finalize=False)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    return ports, plan


def test_the_gate_is_checked_after_the_commands_before_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(R391)
    ports, plan = draining_bench(cluster, tmp_path)

    def drain(node_id: int) -> None:
        assert ports.run.load_before_stop(RELEASE_STEP, node_id) is not None
        cluster.clock.sleep(300.0)
        monkeypatch.setattr(cluster, "_rejoin", lambda node_id: None)
        cluster.topics["orders-0"] = replace(cluster.topics["orders-0"], isr=(11, node_id))

    cluster.on_prepare = drain
    with pytest.raises(TransientError, match="cannot be stopped safely yet"):
        replace_node(ports, plan, *in_step(ports, plan, RELEASE_STEP, NODE))
    assert cluster.stops == []
    (prepared,) = events_of(ports.run.events(), StopPrepared)
    assert prepared.seconds == pytest.approx(300.0, abs=1.0)
    assert [event.at_most_s for event in events_of(ports.run.events(), PreparingStop)] == [3600.0]


def test_leaderships_that_the_commands_before_a_stop_move_away_count_also_after_a_kill(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports, plan = draining_bench(cluster, tmp_path)
    led = {name for name, partition in cluster.topics.items() if partition.leader == NODE}
    calls = []

    def drain(node_id: int) -> None:
        calls.append(node_id)
        for name, partition in cluster.topics.items():
            if partition.leader == node_id:
                cluster.topics[name] = replace(partition, leader=partition.isr[1])
        if len(calls) == 1:
            raise KilledError

    cluster.on_prepare = drain
    with pytest.raises(KilledError):
        replace_node(ports, plan, *in_step(ports, plan, RELEASE_STEP, NODE))
    assert cluster.stops == []
    replace_node(ports, plan, *in_step(ports, plan, RELEASE_STEP, NODE))
    assert (calls, cluster.stops) == ([NODE, NODE], [NODE])
    before = ports.run.load_before_stop(RELEASE_STEP, NODE)
    assert before is not None
    assert before.leads == led != set()


def test_a_pause_that_begins_between_the_drains_of_a_batch_holds_none_of_its_nodes(tmp_path: Path) -> None:
    cluster = FakeCluster(R391, spec=make_spec(brokers=6))
    service = ServiceSpec(host="broker", before_stop=(HostCommand(command="drain", timeout_s=60.0),))
    drained = [replace(node, service=service) if node.node_id in {12, 15} else node for node in cluster.spec.nodes]
    cluster.spec = replace(cluster.spec, nodes=tuple(drained))
    ports = fake_ports(cluster, tmp_path)
    plan = plan_upgrade(ports, R431, finalize=False)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    pause = PauseAsked(by="bob", reason="errors", responder=Responder(channel=Channel.SHELL, user="bob"))
    cluster.on_prepare = lambda node_id: ports.run.record(pause)
    replace_nodes(ports, plan, plan.release_steps[0], [cluster.spec.node(node_id) for node_id in (12, 15)])
    assert sorted(cluster.stops) == [12, 15]
    with pytest.raises(HeldError):
        replace_node(ports, plan, *in_step(ports, plan, RELEASE_STEP, 13))
