"""What is left of a node step, from the observed node and the run history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import GateKind, GatePolicy, GateRef
from kafka_rollout.gates.node import state_before_stop
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, observe
from kafka_rollout.observation.node_steps import stop_is_under_way
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.releases.facts import Release
from kafka_rollout.roll.loop import Part, next_part, next_part_of_batch
from kafka_rollout.roll.node import replace_nodes
from kafka_rollout.roll.walk import roll_back, roll_release_steps
from kafka_rollout.run.events import ApprovalOf, Decision, Event, events_of
from kafka_rollout.run.step_events import GatePassed, Started, Stopping
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.dying_files import KilledError

KEY = "3.9.1-to-4.3.1"
STOPPING = Stopping(node_id=11, release_step=KEY)
STARTED = Started(node_id=11, release_step=KEY, release=R431, pid=1, seconds=1.0)
PASSED = GatePassed(
    ref=GateRef(kind=GateKind.AFTER_START, release_step=KEY, node_id=11), gate="after node 11", message="passed"
)
BACK = Stopping(node_id=11, release_step="4.3.1-to-3.9.1")


@pytest.mark.parametrize(
    "case",
    [
        ((), R391, Part.GATE_BEFORE),
        ((STOPPING,), R391, Part.GATE_BEFORE),
        ((STOPPING,), None, Part.REPLACEMENT),
        ((STOPPING, STARTED), R431, Part.GATE_AFTER),
        ((STOPPING, STARTED), None, Part.GATE_AFTER),
        ((STOPPING, STARTED), R391, Part.GATE_AFTER),
        ((STOPPING, STARTED, PASSED), R431, Part.NOTHING),
        ((STOPPING, STARTED, PASSED), None, Part.GATE_AFTER),
        ((STOPPING, STARTED, PASSED), R391, Part.GATE_BEFORE),
        ((STOPPING, STARTED, PASSED, STOPPING), None, Part.REPLACEMENT),
        ((STOPPING, STARTED, BACK), None, Part.GATE_BEFORE),
        ((), R431, Part.GATE_AFTER),
    ],
)
def test_what_is_left_follows_from_the_last_act_and_what_runs(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, case: tuple[tuple[Event, ...], Release | None, Part]
) -> None:
    events, running, left = case
    cluster.nodes[11].running = running
    (release_step,) = plan.release_steps
    assert next_part(NodeRun(Run(ports, plan), release_step, ports.cluster.node(11)), events) is left


QUICK = GatePolicy(checks=2, interval_s=1, timeout_s=60)


def test_a_node_that_was_rolled_back_a_moment_ago_waits_for_its_gate_before_the_stop(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    """The stop request of the roll is recent, but the node was started since: its stop is not under way."""
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: len(cluster.stops) == 2)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "a doubt")
    assert roll_back(Run(ports, plan), QUICK)
    (release_step,) = plan.release_steps
    nodes = [ports.cluster.node(node_id) for node_id in (2, 3)]
    (asked_at, *_) = [
        event.at for event in events_of(ports.run.events(), Stopping) if (event.node_id, event.release_step) == (3, KEY)
    ]
    assert ports.clock.now() - asked_at < 120, "the request of the roll is too old for this claim"
    for node in nodes:
        assert not stop_is_under_way(NodeRun(Run(ports, plan), release_step, node))
    assert next_part_of_batch(Run(ports, plan), release_step, nodes, ports.run.events()) == (
        Part.GATE_BEFORE,
        tuple(nodes),
    )


def test_a_stop_is_under_way_until_the_node_is_started(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    (release_step,) = plan.release_steps
    node = ports.cluster.node(2)

    def killed(_node: NodeSpec, **_of: object) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports.runtime, "stop", killed)
        with pytest.raises(KilledError):
            replace_nodes(Run(ports, plan), release_step, [node])
    assert stop_is_under_way(NodeRun(Run(ports, plan), release_step, node))
    replace_nodes(Run(ports, plan), release_step, [node])
    assert not stop_is_under_way(NodeRun(Run(ports, plan), release_step, node))


@pytest.mark.parametrize(
    ("is_stopping", "later_s", "is_under_way"),
    [(None, 1.0, True), (None, 3600.0, False), (False, 1.0, False), (True, 3600.0, True)],
)
def test_a_stop_is_under_way_while_its_process_goes_down(
    ports: ClusterPorts,
    cluster: FakeCluster,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_stopping: bool | None,
    later_s: float,
    is_under_way: bool,
) -> None:
    (release_step,) = plan.release_steps
    at = NodeRun(Run(ports, plan), release_step, ports.cluster.node(2))
    ports.run.save_before_stop(KEY, state_before_stop(observe(ports), 2, R391, 1.0))
    ports.run.record(Stopping(node_id=2, release_step=KEY, at=ports.clock.now()))
    cluster.clock.sleep(later_s)
    process = ports.runtime.process
    monkeypatch.setattr(ports.runtime, "process", lambda node: replace(process(node), is_stopping=is_stopping))
    assert stop_is_under_way(at) is is_under_way
    cluster.stop(2)
    assert not stop_is_under_way(at)
    cluster.start(2)
    assert not stop_is_under_way(at), "its process is another one"
