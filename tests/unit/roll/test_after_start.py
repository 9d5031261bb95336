"""The commands after a start, in a roll: when all nodes of a batch were started, and again if one failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from kafka_rollout.base.errors import FatalError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import GatePolicy
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import HostCommand, NodeSpec, ServiceSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.roll import loop
from kafka_rollout.roll.node import finish_nodes, replace_node, replace_nodes, restart_node
from kafka_rollout.roll.walk import roll_release_steps
from kafka_rollout.run.events import ApprovalOf, Decision, events_of
from kafka_rollout.run.projections.nodes import unfinished_starts
from kafka_rollout.run.step_events import Started, StartFinished, StartUnfinished
from tests.fakes.cluster import R391, R431, FakeCluster, make_spec
from tests.fakes.dying_files import KilledError
from tests.fakes.ports import fake_ports, in_step
from tests.fakes.runtime import FakeRuntime
from tests.plans import upgrade_request

RELEASE_STEP = "3.9.1-to-4.3.1"
BATCH = (12, 15)
QUICK = GatePolicy(checks=2, interval_s=1, timeout_s=120)


def bench(cluster: FakeCluster, home: Path, *, max_batch_size: int = 1) -> tuple[ClusterPorts, Plan]:
    commands = (HostCommand(command="undrain", timeout_s=60.0),)
    nodes = [replace(one, service=ServiceSpec(host=one.name, after_start=commands)) for one in cluster.spec.nodes]
    cluster.spec = replace(cluster.spec, nodes=tuple(nodes))
    ports = fake_ports(cluster, home)
    plan = plan_change(ports, upgrade_request(R431, finalize=False, max_batch_size=max_batch_size), RunOf.UPGRADE)
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


@pytest.mark.parametrize("error", [FatalError("Command 1 of after_start of node 12 failed."), KilledError()])
def test_the_commands_of_a_part_of_a_batch_run_again_before_its_next_stop(tmp_path: Path, error: BaseException) -> None:
    cluster, ran = FakeCluster(R391, spec=make_spec(brokers=6)), list[int]()
    for node in cluster.spec.brokers:
        cluster.nodes[node.node_id].config["broker.rack"] = "abc"[(node.node_id - 11) % 3]
    ports, plan = bench(cluster, tmp_path, max_batch_size=3)
    cluster.add_partition("moved", 0, [*BATCH, 11], min_isr=2)
    fails = [12]

    def undrain(node_id: int) -> None:
        if node_id in fails:
            raise error
        assert node_id != 15 or 12 in ran
        ran.append(node_id)

    cluster.on_started = undrain
    for _ in range(2):
        with pytest.raises(type(error)):
            roll_release_steps(Run(ports, plan), QUICK, continues=lambda *_: True)
    assert cluster.nodes[15].running == R391, "the batch restarts in parts"
    fails.clear()
    assert roll_release_steps(Run(ports, plan), QUICK, continues=lambda *_: True)
    assert ran.count(12) == 1
    assert not unfinished_starts(ports.run.events())


@pytest.mark.parametrize("is_raised", [False, True], ids=["its process ends", "its start fails"])
def test_a_command_that_failed_while_another_node_of_the_batch_is_down_runs_again_when_that_node_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_raised: bool
) -> None:
    cluster, ran = FakeCluster(R391, spec=make_spec(brokers=6)), list[int]()
    ports, plan = bench(cluster, tmp_path)
    run, step, start = Run(ports, plan), plan.release_steps[0], FakeRuntime.start
    batch = [cluster.spec.node(node_id) for node_id in BATCH]

    def start_or_raise(runtime: FakeRuntime, node: NodeSpec) -> None:
        if node.node_id == 15 and is_raised:
            raise FatalError("The start of node 15 failed.")
        start(runtime, node)

    def fail(node_id: int) -> None:
        raise FatalError(f"Command 1 of after_start of node {node_id} failed.", remedy="Fix it.")

    cluster.on_started, cluster.cannot_start = fail, {(15, R431)}
    with monkeypatch.context() as patch:
        patch.setattr(FakeRuntime, "start", start_or_raise)
        with pytest.raises(FatalError, match=r"start of node 15 failed" if is_raised else r"after_start of node 12"):
            replace_nodes(run, step, batch)
    assert (cluster.runs(12), cluster.runs(15)) == (True, False)
    assert [event.node_id for event in events_of(ports.run.events(), StartUnfinished)] == [12]
    assert unfinished_starts(ports.run.events()) == {*BATCH}
    cluster.on_started, cluster.cannot_start = ran.append, set()
    restart_node(NodeRun(run, *in_step(ports, plan, RELEASE_STEP, 15)))
    finish_nodes(run, step, batch)
    assert ran == [15, 12]
    assert not unfinished_starts(ports.run.events())


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
