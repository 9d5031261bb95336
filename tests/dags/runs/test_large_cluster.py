"""Runs of a cluster that is too large for a task group for each node: one task takes all nodes of a release step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.airflow.common.node_task_groups import Nodes, NodeStepsOfTask
from kafka_rollout.airflow.operators.nodes import WORKS_S, RollNodesOperator
from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.model.plan import ReleaseStepPosition
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.events import Approval, events_of
from kafka_rollout.run.step_events import GatePassed
from kafka_rollout.steps.procedures.parts import REPLACE
from tests.dags.conftest import DAG_ID, FakeRuns, spec_with_homes
from tests.dags.runs.dag_run import clear_and_continue, run_dag
from tests.dags.runs.test_downgrade_offline import lose_the_first_connection
from tests.dags.runs.test_downgrade_run import releases
from tests.dags.runs.test_downgrade_run import run as run_downgrade
from tests.dags.runs.test_upgrade_run import node_steps, one_by_one, outcome
from tests.fakes.cluster import R340, R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.integration.harness.faults.without_live import stage_no_live
from tests.plans import plan_upgrade
from tests.records import change_lock, run_history
from tests.unit.steps.offline.test_actions import R421

pytestmark = pytest.mark.airflow

OTHERS = "roll.other_nodes"
FORTH, BACK = "3.9.1-to-4.3.1", "4.3.1-to-3.9.1"
ORDER = [2, 3, 1, 11, 12, 13]


@pytest.fixture
def runs(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    """A cluster of six nodes counts as large, so that the runs are short."""
    monkeypatch.setattr("kafka_rollout.airflow.graphs.procedure.NODE_GROUPS_UP_TO", 5)
    return runs


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The worker dies once between the stop and the start of broker 11; Airflow then repeats the task."""
    start, kills = FakeCluster.start, list[int]()

    def start_or_die(world: FakeCluster, node_id: int) -> None:
        if node_id == 11 and not kills:
            kills.append(node_id)
            raise SystemError("killed")
        start(world, node_id)

    monkeypatch.setattr(FakeCluster, "start", start_or_die)
    return kills


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[GateRef]:
    """The gates of nodes that were watched in the triggerer."""
    from kafka_rollout.airflow.gates.trigger import GateTrigger

    run_trigger, gates = GateTrigger.run, list[GateRef]()

    def run(trigger: GateTrigger) -> Any:
        gates.append(from_json(GateRef, trigger.gate))
        return run_trigger(trigger)

    monkeypatch.setattr(GateTrigger, "run", run)
    return gates


def stops(record: Any) -> list[int]:
    return [node for _, what, node in node_steps(record) if what == "stopping"]


def test_all_nodes_are_replaced_in_the_order_of_the_plan_and_the_canary_is_approved(
    runs: FakeRuns, inventory: Path
) -> None:
    spec = spec_with_homes(controllers=3, brokers=10)
    (inventory / "fake.yaml").write_text(dump_cluster(spec))
    runs.world = FakeCluster(R391, spec=spec)
    stopped: list[int] = []
    runs.while_asked = lambda task: stopped.append(len(runs.world.stops))
    state, states, record = runs.run(finalize="after_approval", canary_approval=True)
    assert state == "success", states
    assert node_steps(record) == one_by_one(FORTH, [2, 3, 1, *range(11, 21)])
    assert runs.asked == ["approve_plan", "roll.approve_canary", "approve_finalize"]
    assert stopped == [0, 1, 13]
    names = ("begin", "first_node", "approve_canary", "first_batch", "approve_first_batch", "other_nodes")
    tasks = {f"roll.{name}" for name in names}
    assert {task for task in states if task.startswith("roll.")} == tasks
    assert (states["via_tolerant_release.other_nodes"], states["roll_back.nodes"]) == ("skipped", "skipped")
    assert runs.world.finalized[METADATA_VERSION] == 30
    assert outcome(record) == "finished"
    assert change_lock(runs.home).holder("fake") is None


def test_a_gate_that_fails_is_asked_about_and_the_rollback_takes_the_nodes_of_both_release_steps(
    runs: FakeRuns,
) -> None:
    runs.world = FakeCluster(R340, spec=spec_with_homes())
    runs.world.cannot_start.add((3, R431))
    runs.answers[OTHERS] = ["Wait on", "Retry", "Roll back"]
    state, states, record = runs.run(finalize="after_approval")
    assert state == "failed"
    assert runs.asked == ["approve_plan", OTHERS, OTHERS, OTHERS]
    assert runs.offered[OTHERS] == ("Wait on", "Accept the log", "Retry", "Roll back")
    assert "node 8 of 12 (controller-3 to 4.3.1)" in runs.bodies[OTHERS].replace("\\", "")
    assert [found for found in node_steps(record) if found[0] == "3.4.1-to-4.3.1" and found[1] == "started"] == [
        ("3.4.1-to-4.3.1", "started", node) for node in (2, 3, 3)
    ]
    passed = [(key, node) for key, what, node in node_steps(record) if what == "passed"][7:]
    assert passed == [
        *(("4.3.1-to-3.4.1", node) for node in (3, 2)),
        *(("3.4.1-to-3.4.0", node) for node in (13, 12, 11, 1, 3, 2)),
    ]
    assert {node.running for node in runs.world.nodes.values()} == {R340}
    assert (states["roll_back.nodes"], states["finalize"]) == ("success", "upstream_failed")
    assert outcome(record) == "rolled_back"
    decisions = [given.reason for given in events_of(record.events(), Approval) if given.what == "failed-gate"]
    assert all(reason.startswith("the node step of node 3 (3.4.1-to-4.3.1)") for reason in decisions)


def test_the_other_nodes_wait_for_the_first_one_also_if_its_task_is_marked_as_successful(tmp_path: Path) -> None:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    plan = plan_upgrade(ports, R431, finalize=True)
    others = NodeStepsOfTask(position=ReleaseStepPosition.TARGET, nodes=Nodes.OTHERS)
    task = RollNodesOperator(task_id="other_nodes", cluster="fake", step=REPLACE, nodes=others)
    with pytest.raises(RefusedError, match="Node 3 cannot be replaced yet: node 2 comes first"):
        task.check_order(ports, plan, next(iter(task.batches(ports, plan, None))))
    ports_after = fake_ports(FakeCluster(R431), tmp_path)
    assert [node.node_id for _, nodes in task.batches(ports_after, plan, None) for node in nodes] == ORDER[1:]


def test_a_node_that_recovers_while_the_approver_decides_is_not_stopped_again(runs: FakeRuns) -> None:
    runs.world.cannot_start.add((12, R431))

    def mend(task: str) -> None:
        if task == OTHERS:
            runs.world.cannot_start.clear()
            runs.world.start(12)

    runs.while_asked = mend
    runs.answers[OTHERS] = ["Wait on"]
    state, states, record = runs.run()
    assert state == "success", states
    assert stops(record) == ORDER


def test_a_blocker_during_the_roll_is_asked_about_and_retry_does_not_bypass_it(runs: FakeRuns) -> None:
    stop = runs.world.stop

    def stop_and_find_a_ghost(node_id: int) -> None:
        stop(node_id)
        if node_id == 3:
            runs.world.find_unlisted_controllers.add(9)

    runs.world.stop = stop_and_find_a_ghost  # type: ignore[method-assign]
    runs.answers[OTHERS] = ["Retry", "Roll back"]
    state, _, record = runs.run()
    assert (state, runs.asked) == ("failed", ["approve_plan", OTHERS, OTHERS])
    assert "UNLISTED-CONTROLLER" in runs.bodies[OTHERS]
    assert [found for found in node_steps(record) if found[1] == "stopping"] == [
        *((FORTH, "stopping", node) for node in (2, 3)),
        *((BACK, "stopping", node) for node in (3, 2)),
    ]
    assert outcome(record) == "rolled_back"


def test_retry_approves_again_after_the_blocker_is_gone(runs: FakeRuns) -> None:
    stop = runs.world.stop

    def stop_and_find_a_ghost(node_id: int) -> None:
        stop(node_id)
        runs.world.find_unlisted_controllers |= {9} if node_id == 3 else set()

    def shut_it_down(task: str) -> None:
        runs.world.find_unlisted_controllers.clear()

    runs.world.stop = stop_and_find_a_ghost  # type: ignore[method-assign]
    runs.while_asked = shut_it_down
    runs.answers[OTHERS] = ["Retry"]
    state, states, record = runs.run()
    assert state == "success", states
    assert stops(record) == ORDER


def test_a_worker_that_dies_between_stop_and_start_is_repeated_without_another_stop(
    runs: FakeRuns, killed: list[int]
) -> None:
    state, states, record = runs.run()
    assert (state, killed) == ("success", [11]), states
    assert stops(record) == ORDER
    assert runs.asked == ["approve_plan"]


def test_a_cleared_task_continues_where_it_failed(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from kafka_rollout.steps.roll.node import replace_nodes

    def replace_until_12(ports: Any, plan: Any, release_step: Any, nodes: Any) -> Any:
        if nodes[0].node_id == 12:
            raise AirflowFailException("the task was marked as failed")
        return replace_nodes(ports, plan, release_step, nodes)

    name = "kafka_rollout.airflow.operators.nodes.replace_nodes"
    monkeypatch.setattr(name, replace_until_12)
    dag = runs.load()[DAG_ID]
    run = run_dag(dag, {"target_release": "4.3.1", "soak_seconds": 0, "checks": 2})
    assert str(run.state) == "failed"
    assert runs.world.stops == ORDER[:4]
    monkeypatch.setattr(name, replace_nodes)
    run = clear_and_continue(dag, run, OTHERS)
    record = run_history(runs.home, "fake", run.run_id)
    assert str(run.state) == "success", {ti.task_id: ti.state for ti in run.get_task_instances()}
    assert node_steps(record) == one_by_one(FORTH, ORDER)
    assert runs.asked == ["approve_plan"]


def test_the_task_waits_for_a_slow_gate_in_the_triggerer(runs: FakeRuns, watched: list[GateRef]) -> None:
    runs.world.catch_up_rounds = 40
    state, states, record = runs.run()
    assert state == "success", states
    assert node_steps(record) == one_by_one(FORTH, ORDER)
    assert [ref.node_id for ref in watched if ref.kind is GateKind.AFTER_START] == ORDER


def test_a_process_that_has_worked_for_long_hands_over_to_a_new_one(runs: FakeRuns, watched: list[GateRef]) -> None:
    stop = runs.world.stop

    def stop_slowly(node_id: int) -> None:
        stop(node_id)
        runs.world.clock.sleep(1.25 * WORKS_S if node_id in {3, 12} else 1.0)

    runs.world.stop = stop_slowly  # type: ignore[method-assign]
    state, states, record = runs.run()
    assert state == "success", states
    assert node_steps(record) == one_by_one(FORTH, ORDER)
    assert [(ref.kind, ref.node_id) for ref in watched] == [(GateKind.AFTER_START, 3), (GateKind.AFTER_START, 12)]


def test_a_restart_offers_no_rollback(runs: FakeRuns) -> None:
    runs.world = FakeCluster(R431, spec=spec_with_homes())
    runs.world.cannot_start.add((11, R431))
    runs.answers[OTHERS] = ["Stop here"]
    dag = runs.load()["kafka_restart_fake"]
    run = run_dag(dag, {"soak_seconds": 0, "checks": 1})
    assert str(run.state) == "failed"
    assert runs.offered[OTHERS] == ("Wait on", "Accept the log", "Retry", "Stop here")
    assert runs.world.stops == ORDER[:4]


def test_the_gates_of_an_offline_downgrade_are_one_task(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    stage_no_live(monkeypatch)
    runs.world = FakeCluster(R431, spec=spec_with_homes(), finalized={METADATA_VERSION: 30})
    start, failed = FakeCluster.start, list[int]()

    def start_once_its_disk_is_new(world: FakeCluster, node_id: int) -> None:
        world.cannot_start = set() if failed else {(1, R421)}
        start(world, node_id)
        if node_id == 1:
            failed.append(node_id)

    monkeypatch.setattr(FakeCluster, "start", start_once_its_disk_is_new)
    runs.world.no_log = {1}
    lose_the_first_connection(monkeypatch)
    gate = "offline.gate_after_nodes"
    runs.answers[gate] = ["Retry"]
    state, states, record = run_downgrade(runs, "4.2.1", lowering="offline")
    assert state == "success", states
    assert runs.asked == ["approve_roll", gate]
    passed = [e.ref.node_id for e in events_of(record.events(), GatePassed) if e.ref.kind is GateKind.AFTER_START]
    assert passed == [1, 2, 3, 11, 12, 13]
    assert (releases(runs.world), outcome(record)) == ({R421}, "finished")
