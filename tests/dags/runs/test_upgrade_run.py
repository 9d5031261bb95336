"""The whole upgrade DAG in one process, over a fake cluster: order, decisions, and what a run leaves behind."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.last_seen import last_seen_text
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.gates.gate import GateCondition, GateKind, GateRef
from kafka_rollout.groups.group_records import no_members_condition
from kafka_rollout.model.host_state import StartRecord
from kafka_rollout.model.state import GroupState
from kafka_rollout.releases.facts import REBALANCE_PROTOCOLS
from kafka_rollout.roll import gate_checks
from kafka_rollout.run.events import Approval, ApprovalRefuted, events_of
from kafka_rollout.run.step_events import GatePassed, IncrementalScan, Started, Stopping
from kafka_rollout.run.store.history import SqlRunStore
from tests.dags.conftest import DAG_ID, FakeRuns, combined_spec, spec_with_homes
from tests.dags.runs.dag_run import clear_and_continue, run_dag
from tests.fakes.cluster import R340, R391, R431, FakeCluster, lose_a_group_at_the_start_of
from tests.records import change_lock, failed_steps, run_history

pytestmark = pytest.mark.airflow

COMMITS = RecordKind(topic="__consumer_offsets", partition=0, key_version=1, value_version=3, count=4, first_offset=0)
PARTS = ("gate_before", "replace", "gate_after")
ONE_TURN = ("stopping", "started", "passed")


def node_steps(record: SqlRunStore) -> list[tuple[str, str, int]]:
    """What happened to nodes, in its order: (release step, stopping | started | passed, node)."""
    found = []
    for event in record.events():
        match event:
            case Stopping() | Started():
                found.append((event.release_step, event.kind, event.node_id))
            case GatePassed(ref=GateRef(kind=GateKind.AFTER_START, release_step=str(release_step), node_id=int(node))):
                found.append((release_step, "passed", node))
    return found


def one_by_one(release_step: str, nodes: list[int]) -> list[tuple[str, str, int]]:
    return [(release_step, what, node) for node in nodes for what in ONE_TURN]


def outcome(record: SqlRunStore) -> str:
    return str(record.attachment("report.json")["outcome"])


def test_nodes_are_rolled_one_after_the_other_and_the_active_controller_last(runs: FakeRuns) -> None:
    runs.world.leader = 2  # the one in the middle: its own place in the graph stays empty
    runs.world.groups = [GroupState(group_id="billing", type="consumer", state="EMPTY")]
    runs.world.spec = replace(runs.world.spec, snapshot_interval_s=300.0)
    state, states, record = runs.run(finalize="after_approval")
    assert state == "success", states
    assert node_steps(record) == one_by_one("3.9.1-to-4.3.1", [1, 3, 2, 11, 12, 13])
    assert {node.config["metadata.log.max.snapshot.interval.ms"] for node in runs.world.nodes.values()} == {"300000"}
    for task in runs.asked:
        assert "Finalizing takes up to 5 min 00 s after the levels have changed" in runs.bodies[task]
        assert "holds no lock while it waits, and you can end it" in runs.bodies[task]
    assert "1 group: 1 consumer" in runs.bodies["approve_plan"]
    assert runs.asked == ["approve_plan", "approve_finalize"]
    assert {states[f"roll.{part}[{index}]"] for part in PARTS for index in range(6)} == {"success"}
    assert {states[task] for task in ("begin_roll_back", *(f"roll_back.{part}" for part in PARTS))} == {"skipped"}
    assert runs.world.finalized["metadata.version"] == 30
    assert outcome(record) == "finished"
    assert change_lock(runs.home).holder("fake") is None
    assert last_seen_text("fake", Settings.from_environment()).endswith(": 4.3.1, metadata.version 4.3-IV0.")


def test_an_older_target_is_refused_by_the_first_task_before_the_scan(runs: FakeRuns) -> None:
    state, states, record = runs.run(target_release="3.4.1")
    assert (state, states["observe"], states["scan_before_roll"]) == ("failed", "failed", "upstream_failed")
    failed = failed_steps(record.events())[0].reason
    assert failed.startswith("Target 3.4.1 is older than the running release 3.9.1. Start a downgrade: `kafka-rollout")


@pytest.mark.full
@pytest.mark.usefixtures("combined")
def test_groups_of_a_preview_are_waited_for_before_the_first_node_is_stopped(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = GroupState(group_id="early", type="consumer", state="Stable", members=1)
    runs.world.groups = [early]
    stops_at_look: list[int] = []

    def no_members(groups: list[GroupState], kinds: frozenset[str]) -> GateCondition:
        stops_at_look.append(len(runs.world.stops))
        runs.world.groups = [replace(early, type="classic")]  # as the group's owners do during the wait
        return no_members_condition(groups, kinds)

    monkeypatch.setattr(gate_checks, "no_members_condition", no_members)
    state, states, _ = runs.run()
    assert state == "success", states
    told = runs.bodies["approve_plan"].replace("\\", "")
    assert "Kafka 4.3.1 does not serve consumer groups while group.version is 0" in told
    assert stops_at_look == [0, 0]
    assert len(runs.world.stops) == 3


@pytest.mark.full
@pytest.mark.usefixtures("combined")
def test_the_way_leads_over_a_tolerant_release_and_the_pause_after_the_first_node_comes_once(runs: FakeRuns) -> None:
    runs.world = FakeCluster(R340, spec=combined_spec())
    state, states, record = runs.run(pause_after="first-node")
    assert state == "success", states
    # The controller that is active when the plan is made is rolled last in both release steps.
    order = [2, 3, 1]
    assert node_steps(record) == one_by_one("3.4.0-to-3.4.1", order) + one_by_one("3.4.1-to-4.3.1", order)
    assert runs.asked == ["approve_plan", "roll.gate_before[1]"]
    assert outcome(record) == "rolled_not_finalized"
    assert states["finalize"] == "skipped"


def test_a_run_that_finds_the_binary_rolled_goes_on_with_the_features(runs: FakeRuns) -> None:
    runs.world = FakeCluster(R431, spec=spec_with_homes(), finalized={"metadata.version": 21})
    for node in runs.world.nodes.values():  # as a run before this one has left it
        node.starts = [StartRecord(release=r, started_at=at, pid=1) for at, r in enumerate((R340, R391, R431))]
    runs.scanned = scan_of(runs, COMMITS)
    state, states, record = runs.run(finalize="later")
    assert state == "success", states
    assert node_steps(record) == []
    assert runs.asked == ["approve_finalize"]
    assert runs.offered["approve_finalize"] == ("Approve", "Reject"), "no node was rolled that could go back"
    told = runs.bodies["approve_finalize"].replace("\\", "")
    assert "3.9.1 can still load all 4 records" in told, "a rollback does not go to 4.3.1"
    assert outcome(record) == "finished"


def test_a_dry_run_plans_and_touches_nothing(runs: FakeRuns) -> None:
    runs.world.add_partition("lonely", 0, [11])
    state, states, record = runs.run(dry_run=True)
    assert state == "success", states
    assert runs.asked == []
    assert runs.world.stops == []
    assert outcome(record) == "dry_run"
    assert [finding.code for finding in record.load_plan().blockers] == ["RF-ONE-TOPIC"]


def test_blockers_refuse_instead_of_asking(runs: FakeRuns) -> None:
    runs.world.add_partition("lonely", 0, [11])
    state, states, record = runs.run()
    assert state == "failed"
    assert states["approve_plan"] == "failed"
    assert runs.asked == []
    assert runs.world.stops == []
    assert outcome(record) == "refused"
    failed = failed_steps(record.events())[-1]
    assert failed.reason.endswith("clear the task observe with all downstream tasks: the run plans again.")


@pytest.mark.usefixtures("combined")
def test_the_log_of_a_node_that_proves_nothing_is_accepted_in_airflow(runs: FakeRuns) -> None:
    gate = "roll.gate_after[1]"
    lose_a_group_at_the_start_of(runs.world, 3)
    runs.answers[gate] = ["Wait on", "Accept the log"]
    state, _, record = runs.run()
    assert state == "success"
    assert runs.asked == ["approve_plan", gate, gate]
    given = [(one.what, one.decision) for one in events_of(record.events(), Approval)]
    assert given[-3:] == [("failed-gate", "Wait on"), ("node-log", "approved"), ("failed-gate", "Accept the log")]
    assert not events_of(record.events(), ApprovalRefuted)


def test_a_rejected_plan_touches_nothing(runs: FakeRuns) -> None:
    runs.answers["approve_plan"] = ["Reject"]
    state, states, _ = runs.run()
    assert state == "failed"
    assert states["roll.gate_before"] == "upstream_failed"
    assert runs.world.stops == []
    assert change_lock(runs.home).holder("fake") is None


def test_a_failed_gate_stops_the_roll_there_and_roll_back_goes_the_same_way_back(
    runs: FakeRuns,
) -> None:
    gate = "roll.gate_after[1]"
    runs.world.cannot_start.add((3, R431))
    runs.answers[gate] = ["Retry", "Roll back"]
    state, states, record = runs.run(finalize="after_approval")
    assert state == "failed"
    assert runs.asked == ["approve_plan", gate, gate]
    assert runs.offered[gate] == ("Wait on", "Accept the log", "Retry", "Roll back")
    assert states[gate] == "failed"
    assert {states[f"roll.{part}[{index}]"] for part in PARTS for index in range(2, 6)} == {"skipped"}
    forth, back = "3.9.1-to-4.3.1", "4.3.1-to-3.9.1"
    seen = node_steps(record)
    assert [node_step for node_step in seen if node_step[0] == back] == [
        (back, "started", 3),  # it has no process to stop
        (back, "passed", 3),
        (back, "stopping", 2),
        (back, "started", 2),
        (back, "passed", 2),
    ]
    assert [node_step for node_step in seen if node_step[0] == forth and node_step[1] == "started"] == [
        (forth, "started", 2),
        (forth, "started", 3),
        (forth, "started", 3),  # the retry
    ]
    assert states["finalize"] == "upstream_failed"
    assert {node.running for node in runs.world.nodes.values()} == {R391}
    assert outcome(record) == "rolled_back"
    assert [node for node in runs.world.nodes if node > 10 and runs.world.nodes[node].starts] == []


@pytest.mark.full
@pytest.mark.usefixtures("combined")
def test_an_answer_is_kept_although_a_node_that_comes_before_is_down_by_then(runs: FakeRuns) -> None:
    task = "roll.gate_after[1]"
    runs.world.cannot_start.add((3, R431))
    runs.while_asked = lambda asked: runs.world.lose_power(2) if asked == task else None
    runs.answers[task] = ["Roll back", "Roll back"]  # the text did not say that node 2 cannot be compared
    state, _, record = runs.run()
    assert (state, runs.asked.count(task)) == ("failed", 2)
    back = [(what, node) for release_step, what, node in node_steps(record) if release_step == "4.3.1-to-3.9.1"]
    assert back == [("started", 3), ("passed", 3), ("started", 2), ("passed", 2)]
    assert outcome(record) == "rolled_back"


@pytest.mark.usefixtures("combined")
def test_a_failed_instance_holds_the_later_ones_and_continues_when_it_is_cleared(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_rollout.airflow.operators import replace_batch
    from kafka_rollout.roll import loop

    def replace_until_3(roll: Any, batch: Any) -> bool:
        if batch.node_ids == (3,):
            raise AirflowFailException("the task was marked as failed")
        return loop.replace(roll, batch)

    stand_in = SimpleNamespace(replace=replace_until_3, name_of=loop.name_of)
    monkeypatch.setattr(replace_batch, "loop", stand_in)
    dag = runs.load()[DAG_ID]
    run = run_dag(dag, {"target_release": "4.3.1", "pace": "fast"})
    assert str(run.state) == "running"
    assert runs.world.stops == [2]
    monkeypatch.setattr(replace_batch, "loop", loop)
    run = clear_and_continue(dag, run, "roll.replace", map_index=1)
    assert str(run.state) == "success", {ti.task_id: ti.state for ti in run.get_task_instances()}
    record = run_history(runs.home, "fake", run.run_id)
    assert node_steps(record) == one_by_one("3.9.1-to-4.3.1", [2, 3, 1])
    assert runs.asked == ["approve_plan"]


def test_a_blocker_that_comes_in_the_middle_of_the_roll_is_asked_about_and_no_answer_goes_round_it(
    runs: FakeRuns,
) -> None:
    stop, asked = runs.world.stop, "roll.replace[1]"

    def stop_and_leave_a_ghost(node_id: int) -> None:
        stop(node_id)
        runs.world.find_unlisted_controllers.add(9)

    runs.world.stop = stop_and_leave_a_ghost  # type: ignore[method-assign]
    runs.answers[asked] = ["Retry", "Roll back"]
    state, states, record = runs.run(finalize="after_approval")
    assert state == "failed"
    assert runs.asked == ["approve_plan", asked, asked]
    assert "UNLISTED-CONTROLLER" in runs.bodies[asked]
    assert "Start the nodes again that this run stopped" in runs.bodies[asked]  # and it did not
    assert [node_step for node_step in node_steps(record) if node_step[1] == "stopping"] == [
        ("3.9.1-to-4.3.1", "stopping", 2),
        ("4.3.1-to-3.9.1", "stopping", 2),
    ]
    assert {states[f"roll.gate_before[{index}]"] for index in range(2, 6)} == {"skipped"}
    assert outcome(record) == "rolled_back"


@pytest.mark.full
def test_roll_back_is_offered_a_last_time_before_the_point_of_no_return(runs: FakeRuns) -> None:
    runs.answers["approve_finalize"] = ["Roll back"]
    state, states, record = runs.run(finalize="after_approval")
    assert state == "failed"
    assert "point of no return" not in runs.bodies["approve_plan"]
    assert "A rollback is not possible after this approval" in runs.bodies["approve_finalize"]
    back = [
        node for release_step, what, node in node_steps(record) if release_step == "4.3.1-to-3.9.1" and what == "passed"
    ]
    assert back == [13, 12, 11, 1, 3, 2]
    assert states["finalize"] == "upstream_failed"
    assert outcome(record) == "rolled_back"


@pytest.mark.full
def test_roll_back_instead_of_accepting_what_the_roll_changed(runs: FakeRuns) -> None:
    runs.world.nodes[12].config["log.retention.ms"] = "1000"
    runs.world.files_at_start[12] = {}  # the file lost the line after the process had read it
    runs.answers["approve_roll_differences"] = ["Roll back"]
    state, states, record = runs.run(finalize="after_approval")
    assert (state, states["check_features"]) == ("failed", "upstream_failed")
    body = runs.bodies["approve_roll_differences"]
    assert "log.retention.ms of broker 12 was 1000" in body.replace("\\", "")
    assert "A rollback is not possible" not in body
    assert outcome(record) == "rolled_back"


@pytest.mark.full
def test_a_gate_before_a_stop_that_fails_asks_and_stops_no_node(runs: FakeRuns) -> None:
    gate = "roll.gate_before[0]"
    runs.world.nodes[3].behind = 10**6
    runs.answers[gate] = ["Roll back"]
    runs.world.spec = replace(runs.world.spec, gate_timeout_s=0.6)
    state, _, _ = runs.run()
    assert state == "failed"
    assert runs.offered[gate] == ("Wait on", "Retry", "Stop here", "Roll back")
    assert runs.world.stops == []


@pytest.mark.full
def test_roll_back_goes_over_both_release_steps_the_newer_one_first(runs: FakeRuns) -> None:
    runs.world = FakeCluster(R340, spec=spec_with_homes(controllers=3, brokers=3))
    runs.answers["approve_finalize"] = ["Roll back"]
    state, _, record = runs.run(finalize="after_approval")
    assert state == "failed"
    back = [(release_step, node) for release_step, what, node in node_steps(record) if what == "passed"][12:]
    order = [13, 12, 11, 1, 3, 2]
    assert back == [(release_step, node) for release_step in ("4.3.1-to-3.4.1", "3.4.1-to-3.4.0") for node in order]
    assert outcome(record) == "rolled_back"


def test_what_the_target_cannot_load_is_a_blocker_of_the_plan(runs: FakeRuns) -> None:
    runs.scanned = scan_of(runs, COMMITS, replace(COMMITS, value_version=9, first_offset=4))
    state, states, record = runs.run()
    assert state == "failed"
    assert states["approve_plan"] == "failed"
    assert [finding.code for finding in record.load_plan().blockers] == ["LOGS-NOT-LOADABLE"]
    assert runs.asked == []


def test_a_scan_that_could_not_be_done_is_a_blocker_beside_all_others(runs: FakeRuns) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    runs.scanned = AirflowFailException("Spark had no memory.")
    runs.world.add_partition("lonely", 0, [11])
    state, states, record = runs.run(dry_run=True)
    assert state == "failed"
    assert states["scan_before_roll"] == "failed"
    assert [f.code for f in record.load_plan().blockers] == ["RF-ONE-TOPIC", "LOGS-NOT-SCANNED"]
    assert runs.asked == []


def test_the_scan_evaluates_for_the_group_coordinator_of_the_next_start(runs: FakeRuns) -> None:
    runs.world = FakeCluster(R340, spec=spec_with_homes())
    for node in runs.world.nodes.values():
        node.config[REBALANCE_PROTOCOLS] = "classic,consumer"
    runs.scanned = AirflowFailException("It is not needed here.")
    runs.run(dry_run=True, target_release="3.9.1")
    assert [request.new_group_coordinator for request in runs.scan_requests] == [True]


def test_a_verdict_that_got_worse_after_the_approval_stops_before_the_first_node(runs: FakeRuns) -> None:
    runs.scanned = scan_of(runs, COMMITS)
    runs.world.written_since.append(replace(COMMITS, value_version=9))
    state, states, record = runs.run()
    assert state == "running", "the other batches wait until the failed one is cleared"
    assert runs.asked == ["approve_plan"]
    assert states["roll.replace[0]"] == "failed"
    assert runs.world.stops == []
    (tail,) = events_of(record.events(), IncrementalScan)
    assert "fails at offset 4" in tail.findings[0]


def scan_of(runs: FakeRuns, *classes: RecordKind) -> ScanResult:
    catalogue = runs.world.catalogue
    return ScanResult(
        cluster="fake",
        scanned_at=0.0,
        logs=(LogRange(topic=COMMITS.topic, partition=0, start=0, end=4),),
        classes=classes,
        verdicts=evaluate_records(catalogue, classes, list(catalogue)),
    )
