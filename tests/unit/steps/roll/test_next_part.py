"""What is left of a node step, from the observed node and the run history."""

from __future__ import annotations

import pytest

from kafka_rollout.gates.check import GateKind, GateRef
from kafka_rollout.model.plan import Plan
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Event
from kafka_rollout.run.step_events import GatePassed, Started, Stopping
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.roll.node import Part, next_part
from tests.fakes.cluster import R391, R431, FakeCluster

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
        ((STOPPING,), R391, Part.REPLACEMENT),
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
    assert next_part(ports, plan, release_step, ports.cluster.node(11), events) is left
