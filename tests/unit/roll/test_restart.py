"""A restart on the release that a node runs is proved by its process: the release looks the same before and after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import BeforeStop, GateKind, GatePolicy
from kafka_rollout.gates.node import state_before_stop
from kafka_rollout.gates.reasons import NEW_PROCESS
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ProcessState
from kafka_rollout.observation.cluster_ports import ClusterPorts, observe
from kafka_rollout.observation.node_steps import NodeStepState, node_step_state
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.frozen_plan import recheck
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.roll.gate_checks import check_gate, wait_for_gate
from kafka_rollout.roll.loop import begin_rollback
from kafka_rollout.roll.node import replace_node, restart_node
from kafka_rollout.roll.walk import roll_release_steps
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports, gate_of, in_step
from tests.fakes.runtime import FakeRuntime
from tests.unit.roll.test_node import Killed, count_calls, killed_after

STEP = "3.9.1-to-3.9.1"
NODE = 12
QUICK = GatePolicy(checks=1, interval_s=1, timeout_s=60)


def planned(ports: ClusterPorts, *nodes: str) -> Plan:
    plan = plan_change(ports, Request(nodes=nodes), RunOf.RESTART)
    assert plan.blockers == ()
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a new configuration")
    return plan


def starts(cluster: FakeCluster) -> dict[int, int]:
    return {node_id: len(node.starts) for node_id, node in cluster.nodes.items() if node.starts}


def test_a_node_is_needed_until_its_process_is_a_new_one(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = planned(ports)
    at = in_step(ports, plan, STEP, NODE)
    assert node_step_state(NodeRun(Run(ports, plan), *at)) is NodeStepState.NEEDED
    assert replace_node(NodeRun(Run(ports, plan), *at))
    assert node_step_state(NodeRun(Run(ports, plan), *at)) is NodeStepState.RUNS_TARGET
    assert not replace_node(NodeRun(Run(ports, plan), *at))
    assert cluster.nodes[NODE].running == R391
    assert starts(cluster) == {NODE: 1}


def test_a_gate_does_not_pass_for_the_process_of_before_the_stop(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = planned(ports)
    after = gate_of(ports, plan, GateKind.AFTER_START, STEP, NODE)
    assert NEW_PROCESS in check_gate(Run(ports, plan), after).waits_for, "no stop of this run: nothing is proved"
    old = cluster.nodes[NODE].pid
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE)))
    wait_for_gate(Run(ports, plan), after, QUICK)
    cluster.nodes[NODE].pid, cluster.nodes[NODE].starts[:] = old, []
    seen = check_gate(Run(ports, plan), after)
    assert seen.waits_for == f"{NEW_PROCESS}: no process since pid {old}, which ran before the stop"


def test_a_kill_after_any_call_ends_with_one_restart(tmp_path: Path) -> None:
    def fresh(number: int) -> tuple[FakeCluster, ClusterPorts, Plan]:
        cluster = FakeCluster(R391)
        ports = fake_ports(cluster, tmp_path, run_id=f"run-{number}")
        plan = planned(ports)
        ports.lock.break_("fake", "the run before")
        return cluster, ports, plan

    _, ports, plan = fresh(0)
    total = count_calls(
        ports, lambda counted: replace_node(NodeRun(Run(counted, plan), *in_step(counted, plan, STEP, NODE)))
    )
    assert total > 10
    for calls in range(1, total):
        cluster, ports, plan = fresh(calls)
        with pytest.raises(Killed):
            replace_node(NodeRun(Run(killed_after(ports, calls), plan), *in_step(ports, plan, STEP, NODE)))
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE)))
        assert starts(cluster) == {NODE: 1}, f"killed after call {calls}"


def test_a_process_that_ends_between_two_readings_is_not_a_new_one(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed run has sent the signal; the node shuts down while the next call observes it."""
    plan = planned(ports)
    node = ports.cluster.node(NODE)
    ports.run.save_before_stop(STEP, state_before_stop(observe(ports), NODE, R391, 1.0))
    gone = [ports.runtime.process(node), ProcessState(pid=None)]
    monkeypatch.setattr(FakeRuntime, "process", lambda self, node: gone.pop(0) if len(gone) > 1 else gone[0])
    assert node_step_state(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE))) is NodeStepState.NEEDED


def test_a_walk_restarts_the_named_nodes_once_and_a_second_walk_nothing(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    by_name = ports.cluster.node(2).name
    plan = planned(ports, "12", by_name)
    assert [node_step.node_id for node_step in plan.release_steps[0].order] == [2, 12]
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert starts(cluster) == {2: 1, 12: 1}
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert starts(cluster) == {2: 1, 12: 1}


def test_a_node_that_another_run_has_just_restarted_is_restarted_again(
    ports: ClusterPorts, cluster: FakeCluster, tmp_path: Path
) -> None:
    plan = planned(ports)
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE)))
    ports.lock.break_("fake", "the next run")
    cluster.advance()
    again = fake_ports(cluster, tmp_path, run_id="run-2")
    plan = planned(again)
    assert node_step_state(NodeRun(Run(again, plan), *in_step(again, plan, STEP, NODE))) is NodeStepState.NEEDED


def test_a_node_that_does_not_start_is_retried_and_never_rolled_back(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = planned(ports)
    cluster.cannot_start.add((NODE, R391))
    at = in_step(ports, plan, STEP, NODE)
    replace_node(NodeRun(Run(ports, plan), *at))
    with pytest.raises(RefusedError, match="no release to return to"):
        begin_rollback(Run(ports, plan))
    cluster.cannot_start.clear()
    restart_node(NodeRun(Run(ports, plan), *at))
    wait_for_gate(Run(ports, plan), gate_of(ports, plan, GateKind.AFTER_START, STEP, NODE), QUICK)


def test_a_node_that_would_start_on_another_release_is_not_stopped(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = planned(ports)
    cluster.nodes[NODE].installed = R431
    with pytest.raises(RefusedError, match=r"would be on 4\.3\.1, and this step starts it on 3\.9\.1"):
        replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE)))
    assert cluster.nodes[NODE].running == R391


def test_a_retry_does_not_stop_a_node_that_would_start_on_another_release(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    plan = planned(ports)
    at = in_step(ports, plan, STEP, NODE)
    replace_node(NodeRun(Run(ports, plan), *at))
    cluster.nodes[NODE].installed, before = R431, cluster.nodes[NODE].pid
    with pytest.raises(RefusedError, match="this step starts it on 3"):
        restart_node(NodeRun(Run(ports, plan), *at))
    assert (cluster.nodes[NODE].running, cluster.nodes[NODE].pid) == (R391, before)


def test_a_restart_installs_nothing_and_writes_no_file(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(ports.cluster, release_overrides={"3.9.1": {"num.io.threads": "16"}})
    ports = replace(ports, cluster=spec)
    plan = planned(ports)
    assert plan.config_changes == ()
    monkeypatch.delattr(FakeRuntime, "install")
    assert replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, NODE)))
    assert starts(cluster) == {NODE: 1}


def test_nodes_on_different_releases_are_not_restarted(ports: ClusterPorts, cluster: FakeCluster) -> None:
    cluster.nodes[NODE].running = cluster.nodes[NODE].installed = R431
    with pytest.raises(RefusedError, match="different releases"):
        plan_change(ports, Request(), RunOf.RESTART)


def test_an_unknown_node_is_named_with_the_known_ones(ports: ClusterPorts) -> None:
    with pytest.raises(UserError, match=r"no node 99\b.*broker"):
        plan_change(ports, Request(nodes=("99",)), RunOf.RESTART)


@pytest.mark.parametrize(
    ("process", "same"),
    [
        (ProcessState(pid=100, started_at=50.4), True),
        (ProcessState(pid=100), True),
        (ProcessState(pid=100, started_at=80.0), False),
        (ProcessState(pid=101, started_at=50.0), False),
        (ProcessState(pid=None), False),
    ],
)
def test_a_process_is_known_by_its_id_and_its_start(process: ProcessState, same: bool) -> None:
    before = BeforeStop(
        node_id=1,
        release="3.9.1",
        at=60.0,
        in_isr=frozenset(),
        leads=frozenset(),
        was_active_controller=False,
        pid=100,
        started_at=50.0,
    )
    assert before.is_of(process) is same


def test_a_restart_of_controllers_alone_is_not_blocked_by_topics_of_the_brokers(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.add_partition("single", 0, [12], min_isr=1)
    ports = fake_ports(cluster, tmp_path)
    whole = plan_change(ports, Request(), RunOf.RESTART)
    assert "RF-ONE-TOPIC" in {found.code for found in whole.blockers}
    controllers = tuple(str(node.node_id) for node in ports.cluster.controllers)
    plan = plan_change(ports, Request(nodes=controllers), RunOf.RESTART)
    assert "RF-ONE-TOPIC" not in {found.code for found in plan.findings}
    assert recheck(Run(ports, plan)).ok
