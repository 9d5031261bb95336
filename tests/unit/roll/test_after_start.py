"""The commands after a start, in a roll: when all nodes of a batch were started, and again if one failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from kafka_rollout.base.errors import FatalError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import HostCommand, ServiceSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.roll import loop
from kafka_rollout.roll.node import replace_node, replace_nodes, restart_node
from kafka_rollout.run.events import ApprovalOf, Decision, events_of
from kafka_rollout.run.step_events import Started, StartFinished, StartUnfinished
from tests.fakes.cluster import R391, R431, FakeCluster, make_spec
from tests.fakes.dying_files import KilledError
from tests.fakes.ports import fake_ports, in_step
from tests.plans import upgrade_request

RELEASE_STEP = "3.9.1-to-4.3.1"
BATCH = (12, 15)


def bench(cluster: FakeCluster, home: Path) -> tuple[ClusterPorts, Plan]:
    commands = (HostCommand(command="undrain", timeout_s=60.0),)
    nodes = [replace(one, service=ServiceSpec(host=one.name, after_start=commands)) for one in cluster.spec.nodes]
    cluster.spec = replace(cluster.spec, nodes=tuple(nodes))
    ports = fake_ports(cluster, home)
    plan = plan_change(ports, upgrade_request(R431, finalize=False), RunOf.UPGRADE)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    return ports, plan


def test_the_commands_of_a_batch_run_at_the_same_time_when_all_of_it_were_started(tmp_path: Path) -> None:
    cluster, together = FakeCluster(R391, spec=make_spec(brokers=6)), Barrier(2)
    ports, plan = bench(cluster, tmp_path)

    def undrain(node_id: int) -> None:
        together.wait(20)
        assert all(cluster.runs(one) for one in BATCH)

    cluster.on_started = undrain
    replace_nodes(Run(ports, plan), plan.release_steps[0], [cluster.spec.node(node_id) for node_id in BATCH])
    assert sorted(event.node_id for event in events_of(ports.run.events(), StartFinished)) == [*BATCH]


def test_a_command_that_failed_ends_the_step_and_runs_again_without_a_second_start(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports, plan = bench(cluster, tmp_path)
    roll = loop.roll_of(Run(ports, plan))
    batch = roll.batches[0]

    def fail(node_id: int) -> None:
        raise FatalError(f"Command 1 of after_start of node {node_id} failed.", remedy="Fix it.")

    cluster.on_started = fail
    with pytest.raises(FatalError, match="Command 1 of after_start"):
        loop.replace(roll, batch)
    assert [event.node_id for event in events_of(ports.run.events(), StartUnfinished)] == [*batch.node_ids]
    again = list[int]()
    cluster.on_started = again.append
    for _ in range(2):
        assert not loop.replace(roll, batch)
    assert again == [*batch.node_ids]
    assert [event.node_id for event in events_of(ports.run.events(), Started)] == [*batch.node_ids]


def test_a_run_that_was_killed_in_a_command_runs_it_again(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports, plan = bench(cluster, tmp_path)
    roll = loop.roll_of(Run(ports, plan))

    def die(node_id: int) -> None:
        raise KilledError

    cluster.on_started = die
    with pytest.raises(KilledError):
        loop.replace(roll, roll.batches[0])
    again = list[int]()
    cluster.on_started = again.append
    loop.replace(roll, roll.batches[0])
    assert again == [*roll.batches[0].node_ids]


def test_a_node_that_is_started_again_gets_its_commands(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports, plan = bench(cluster, tmp_path)
    at = NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, 12))
    replace_node(at)
    undrained = list[int]()
    cluster.on_started = undrained.append
    cluster.stop(12)
    restart_node(at)
    assert undrained == [12]
