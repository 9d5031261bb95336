"""Runs of the DAG in batches: brokers that share no partition restart together."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.control.approval import record_approval
from kafka_rollout.control.holds import HeldError
from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.roll.loop import replace, roll_of
from kafka_rollout.run.events import ApprovalOf, Decision, StepBegan, events_of
from kafka_rollout.run.step_events import BatchSplit, GatePassed
from kafka_rollout.run.view import RunView, StepState
from tests.dags.conftest import FakeRuns, spec_with_homes
from tests.dags.runs.test_upgrade_run import node_steps, outcome
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import upgrade_request

pytestmark = pytest.mark.airflow

FORTH, BACK = "3.9.1-to-4.3.1", "4.3.1-to-3.9.1"
FAILED = "roll.gate_after[6]"
BATCHES = [{2}, {3}, {1}, {11}, {14}, {12, 15}, {13, 16}]


@pytest.fixture
def runs(runs: FakeRuns, inventory: Any) -> FakeRuns:
    """Racks: a with 11 and 14, b with 12 and 15, c with 13 and 16. The stops of a batch wait for each other."""
    spec = spec_with_homes(brokers=6)
    (inventory / "fake.yaml").write_text(dump_cluster(spec))
    runs.world = FakeCluster(R391, spec=spec)
    runs.world.java = 17
    for node in spec.brokers:
        runs.world.nodes[node.node_id].config["broker.rack"] = "abc"[(node.node_id - 11) % 3]
    return runs


def expect_together(world: FakeCluster, *batches: set[int]) -> None:
    """Let each stop wait for the other stops of its batch; an error if they do not come."""
    met = {node_id: barrier for batch in batches for barrier in [Barrier(len(batch))] for node_id in batch}

    def stop_with_the_others(node_id: int) -> None:
        if node_id in met:
            met[node_id].wait(60)
        FakeCluster.stop(world, node_id)

    world.stop = stop_with_the_others  # type: ignore[method-assign]


def stopped(record: Any, release_step: str) -> list[int]:
    return [node for key, what, node in node_steps(record) if (key, what) == (release_step, "stopping")]


def unescaped(runs: FakeRuns, task: str) -> str:
    return runs.bodies[task].replace("\\", "")


def in_batches(nodes: list[int], sizes: list[int]) -> list[set[int]]:
    found, rest = [], list(nodes)
    for size in sizes:
        found.append(set(rest[:size]))
        rest = rest[size:]
    assert not rest
    return found


def test_the_brokers_of_a_rack_restart_together_after_the_approval(runs: FakeRuns) -> None:
    expect_together(runs.world, {12, 15}, {13, 16})
    at_approval: list[int] = []
    runs.while_asked = lambda task: at_approval.append(len(runs.world.stops))
    state, states, record = runs.run(max_batch_size=3, pause_after="first-batch")
    assert state == "success", states
    assert in_batches(stopped(record, FORTH), [len(batch) for batch in BATCHES]) == BATCHES
    pause = "roll.gate_before[6]"
    assert runs.asked == ["approve_plan", pause]
    assert at_approval == [0, 7]
    assert "The first batch is done, nodes 12, 15, which restarted together." in unescaped(runs, pause)
    body = unescaped(runs, "approve_plan")
    assert "- Pause for an approver after the first batch" in body
    assert "6: broker-12 (12), broker-15 (15). Ends here: no other node of rack b is left" in body
    assert "Expected duration: 7 min 00 s, one node at a time 9 min 00 s" in body
    assert states["roll.gate_after[6]"] == "success"
    assert states["roll_back.replace"] == "skipped"
    assert not events_of(record.events(), BatchSplit)
    assert outcome(record) == "rolled_not_finalized"


@pytest.mark.full
def test_a_plan_without_a_batch_has_an_instance_for_each_node(runs: FakeRuns) -> None:
    del runs.world.nodes[12].config["broker.rack"]
    state, states, record = runs.run(max_batch_size=3)
    assert state == "success", states
    assert stopped(record, FORTH) == [2, 3, 1, *range(11, 17)]
    assert "node 12 has no broker.rack, so brokers restart one at a time" in runs.bodies["approve_plan"].replace(
        "\\", ""
    )
    assert {states[f"roll.gate_after[{index}]"] for index in range(9)} == {"success"}


def test_a_node_that_fails_in_a_batch_stops_later_batches_and_the_rollback_goes_in_batches(runs: FakeRuns) -> None:
    runs.world.cannot_start.add((16, R431))
    expect_together(runs.world, {13, 16})
    runs.answers[FAILED] = ["Retry", "Roll back"]

    def then_back_together(task: str) -> None:
        if runs.asked.count(FAILED) == 2:
            expect_together(runs.world, {12, 15})

    runs.while_asked = then_back_together
    state, states, record = runs.run(max_batch_size=3)
    assert state == "failed"
    assert runs.asked == ["approve_plan", FAILED, FAILED]
    assert "no process" in unescaped(runs, FAILED)
    starts = [node for key, what, node in node_steps(record) if (key, what) == (FORTH, "started")]
    assert sorted(starts[-3:]) == [13, 16, 16], "Retry starts only the node that failed"
    assert {node.running for node in runs.world.nodes.values()} == {R391}
    assert states["roll_back.gate_after[6]"] == "success"
    back = [node for key, what, node in node_steps(record) if (key, what) == (BACK, "passed")]
    assert back[:2] == [16, 13], "node 16 is down: it is started first"
    assert in_batches(back[2:], [2, 1, 1, 1, 1, 1]) == [{12, 15}, {14}, {11}, {1}, {3}, {2}]
    view = RunView.of(record.events())
    assert view.parts["roll.gate_after", 6].state is StepState.FAILED
    assert {one.state for one in view.parts.values()} == {StepState.DONE, StepState.FAILED}
    assert len(view.parts) == 3 * 7 * 2
    assert len([one for one in view.all(StepBegan) if one.batch is not None]) <= len(view.parts) + 2
    assert outcome(record) == "rolled_back"


def test_a_worker_that_dies_in_a_batch_is_repeated_without_another_stop(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, kills = FakeCluster.start, list[int]()

    def start_or_die(world: FakeCluster, node_id: int) -> None:
        if node_id == 15 and not kills:
            kills.append(node_id)
            raise SystemError("killed")
        start(world, node_id)

    monkeypatch.setattr(FakeCluster, "start", start_or_die)
    state, states, record = runs.run(max_batch_size=3)
    assert (state, kills) == ("success", [15]), states
    assert in_batches(stopped(record, FORTH), [len(batch) for batch in BATCHES]) == BATCHES
    assert runs.asked == ["approve_plan"]


@pytest.mark.full
def test_an_approver_splits_a_batch_whose_replicas_were_moved_after_the_plan(runs: FakeRuns) -> None:
    gate = "roll.gate_before[5]"

    def move(task: str) -> None:
        if task == "approve_plan":
            runs.world.add_partition("moved", 0, [12, 15, 11], min_isr=2)

    runs.while_asked = move
    runs.answers[gate] = ["Wait on", "Split the batch"]
    expect_together(runs.world, {13, 16})
    state, states, record = runs.run(max_batch_size=3)
    assert state == "success", states
    assert runs.offered[gate] == ("Wait on", "Retry", "Split the batch", "Stop here", "Roll back")
    assert "moved-0" in unescaped(runs, gate)
    assert [split.parts for split in events_of(record.events(), BatchSplit)] == [((12,), (15,))]
    acts = [(what, node) for _, what, node in node_steps(record) if node in {12, 15}]
    assert acts == [(what, node) for node in (12, 15) for what in ("stopping", "started", "passed")]


def test_the_nodes_after_the_first_batch_need_its_approval_also_if_its_gate_is_marked_as_passed(
    runs: FakeRuns, tmp_path: Path
) -> None:
    ports = fake_ports(runs.world, tmp_path)
    request = upgrade_request(R431, finalize=False, max_batch_size=3, pause_after="first-batch")
    plan = plan_change(ports, request, RunOf.UPGRADE, terms=request.terms(ports.cluster))
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    roll = roll_of(Run(ports, plan))
    for batch in roll.batches[:6]:
        for key, node_id in batch.key:
            ref = GateRef(kind=GateKind.AFTER_START, release_step=key, node_id=node_id)
            ports.run.record(GatePassed(ref=ref, gate="after", message="passed"))
    with pytest.raises(HeldError, match="The plan pauses before node"):
        replace(roll, roll.batches[6])
    record_approval(ports, ApprovalOf.PAUSE, "alice", Decision.APPROVED, "the first batch serves")
    assert not replace(roll, roll.batches[6])
    assert sorted(runs.world.stops) == [13, 16]
