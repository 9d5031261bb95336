"""The commands before a stop: they run before the gate, and what they change does not hide what was there before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import TransientError, UserError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.control.holds import HeldError
from kafka_rollout.gates.control import Reading
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import HostCommand, OutsideCondition, ServiceSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.roll.node import replace_node, replace_nodes
from kafka_rollout.run.events import ApprovalOf, Channel, Decision, PauseAsked, Responder, ResumeAsked, events_of
from kafka_rollout.run.step_events import PreparingStop, StopPrepared
from tests.fakes.cluster import R391, R431, FakeCluster, make_spec
from tests.fakes.dying_files import KilledError
from tests.fakes.ports import fake_ports, in_step
from tests.of_cluster import parted
from tests.plans import upgrade_request

RELEASE_STEP = "3.9.1-to-4.3.1"
NODE = 12  # a broker
BATCH = (12, 15)


def draining_bench(
    cluster: FakeCluster, home: Path, *, drained: Sequence[int] = (NODE,), timeout_s: float = 3600.0, **fields: Any
) -> tuple[ClusterPorts, Plan]:
    """The nodes `drained` have a command before their stop. `fields`: of the request or the cluster."""
    service = ServiceSpec(host="broker", before_stop=(HostCommand(command="drain", timeout_s=timeout_s),))
    nodes = [replace(node, service=service) if node.node_id in drained else node for node in cluster.spec.nodes]
    cluster.spec = replace(cluster.spec, nodes=tuple(nodes))
    cluster.spec, of_run = parted(cluster.spec, fields)
    ports = fake_ports(cluster, home)
    request = upgrade_request(R431, finalize=False, **of_run)
    plan = plan_change(ports, request, RunOf.UPGRADE, terms=request.terms(ports.cluster) if fields else None)
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
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
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
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert (calls, cluster.stops) == ([NODE, NODE], [NODE])
    before = ports.run.load_before_stop(RELEASE_STEP, NODE)
    assert before is not None
    assert before.leads == led != set()


def test_a_pause_that_begins_between_the_drains_of_a_batch_holds_all_of_its_nodes_after_them(tmp_path: Path) -> None:
    cluster = FakeCluster(R391, spec=make_spec(brokers=6))
    ports, plan = draining_bench(cluster, tmp_path, drained=BATCH)
    shell, drained = Responder(channel=Channel.SHELL, user="bob"), list[int]()

    def drain(node_id: int) -> None:
        drained.append(node_id)
        if len(drained) == 1:
            ports.run.record(PauseAsked(by="bob", reason="errors", responder=shell))

    cluster.on_prepare = drain
    batch = [cluster.spec.node(node_id) for node_id in BATCH]
    with pytest.raises(HeldError, match="The stop of this batch cannot begin yet: no pause"):
        replace_nodes(Run(ports, plan), plan.release_steps[0], batch)
    assert (drained, cluster.stops) == ([12, 15], [])
    ports.run.record(ResumeAsked(by="bob", reason="no errors", responder=shell))
    replace_nodes(Run(ports, plan), plan.release_steps[0], batch)
    assert sorted(cluster.stops) == [12, 15]


@pytest.mark.parametrize("pauses", [True, False])
def test_what_begins_during_the_commands_before_a_stop_holds_it(tmp_path: Path, pauses: bool) -> None:
    cluster = FakeCluster(R391)
    cluster.spec = replace(cluster.spec, conditions=(OutsideCondition(name="lag", query="sum(lag)", requires="< 5"),))
    cluster.outside["lag"] = [Reading(value=1)]
    ports, plan = draining_bench(cluster, tmp_path)

    def drain(node_id: int) -> None:
        cluster.clock.sleep(300.0)
        if pauses:
            shell = Responder(channel=Channel.SHELL, user="bob")
            ports.run.record(PauseAsked(by="bob", reason="errors", responder=shell))
        else:
            cluster.outside["lag"] = [Reading(value=9)]

    cluster.on_prepare = drain
    with pytest.raises(HeldError, match="no pause: paused by bob" if pauses else "condition lag: 9"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, RELEASE_STEP, NODE)))
    assert cluster.stops == []


EIGHT_MINUTES = {"window": "0 22 * * * 8m UTC"}  # a node step takes two


def at(text: str) -> float:
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


@pytest.mark.parametrize("nodes", [(NODE,), BATCH])
def test_the_commands_before_a_stop_must_fit_into_the_window_and_after_them_the_stop_follows(
    tmp_path: Path, nodes: Sequence[int]
) -> None:
    cluster = FakeCluster(R391, spec=make_spec(brokers=6))
    cluster.clock.set(at("2026-12-01 22:02"), reading_s=0.001)
    ports, plan = draining_bench(cluster, tmp_path, drained=nodes, timeout_s=300.0 / len(nodes), **EIGHT_MINUTES)
    drained = []

    def drain(node_id: int) -> None:
        drained.append(node_id)
        cluster.clock.sleep(390.0 / len(nodes))  # so that one minute is left

    cluster.on_prepare = drain
    batch = [cluster.spec.node(node_id) for node_id in nodes]
    takes = "a node step takes about 7 min 00 s, of which 5 min 00 s for the commands before the stop"
    with pytest.raises(HeldError, match=takes):
        replace_nodes(Run(ports, plan), plan.release_steps[0], batch)
    assert (drained, cluster.stops) == ([], [])
    cluster.clock.set(at("2026-12-02 22:00:30"), reading_s=0.001)
    replace_nodes(Run(ports, plan), plan.release_steps[0], batch)
    assert (drained, sorted(cluster.stops)) == ([*nodes], [*nodes])


def test_commands_before_a_stop_that_end_after_the_window_get_their_time_in_the_next_one(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.clock.set(at("2026-12-01 22:00:30"), reading_s=0.001)
    ports, plan = draining_bench(cluster, tmp_path, timeout_s=300.0, **EIGHT_MINUTES)
    cluster.on_prepare = lambda node_id: cluster.clock.sleep(460.0)
    step = in_step(ports, plan, RELEASE_STEP, NODE)
    with pytest.raises(HeldError, match="closed until Wed 2026-12-02 22:00"):
        replace_node(NodeRun(Run(ports, plan), *step))
    cluster.clock.set(at("2026-12-02 22:01"), reading_s=0.001)
    with pytest.raises(HeldError, match="7 min 40 s for the commands"):
        replace_node(NodeRun(Run(ports, plan), *step))
    assert (len(events_of(ports.run.events(), StopPrepared)), cluster.stops) == (1, [])
    cluster.clock.set(at("2026-12-03 22:00:05"), reading_s=0.001)
    replace_node(NodeRun(Run(ports, plan), *step))
    assert cluster.stops == [NODE]


def test_commands_before_a_stop_that_fit_into_no_window_are_refused_with_the_plan(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.clock.set(at("2026-12-01 12:00"), reading_s=0.001)
    with pytest.raises(
        UserError, match="The commands before a stop can take 6 min 01 s and the restart takes about 2 "
    ):
        draining_bench(cluster, tmp_path, timeout_s=361.0, **EIGHT_MINUTES)
    draining_bench(cluster, tmp_path, timeout_s=359.0, **EIGHT_MINUTES)
