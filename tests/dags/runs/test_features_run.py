"""The features DAG in one process, over a fake cluster: what is asked of whom, and what a run leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kafka_rollout.groups.group_records import GroupRecords
from kafka_rollout.model.state import GroupState, TransactionState
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Begun, StepBegan, events_of
from kafka_rollout.run.store.history import SqlRunStore
from kafka_rollout.run.view import RunView
from tests.dags.conftest import FakeRuns, spec_with_homes
from tests.dags.runs.dag_run import run_dag
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.logs import FakeLogs
from tests.records import change_lock, run_history

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow

DAG_ID = "kafka_features_fake"
CHANGING = {
    "approve",
    "gate_groups",
    "state_before",
    "pin_min_insync_replicas",
    "update",
    "look_again",
    "gate_finalized",
    "verify_metadata_version",
    "compare_after_levels",
    "approve_level_differences",
}
LEVELS = {"metadata.version": 29, "group.version": 1, "transaction.version": 2}


@pytest.fixture
def world(runs: FakeRuns) -> FakeCluster:
    runs.world = FakeCluster(R431, spec=spec_with_homes(), finalized=LEVELS)
    return runs.world


def run(runs: FakeRuns, **conf: Any) -> tuple[str, dict[str, str | None], SqlRunStore]:
    """(state of the run, states by task, the run's record)."""
    started = run_dag(runs.load()[DAG_ID], conf)
    states = {ti.task_id: ti.state for ti in started.get_task_instances()}
    return str(started.state), states, run_history(runs.home, "fake", started.run_id)


def sent(world: FakeCluster) -> list[dict[str, int]]:
    return [targets for targets, validate_only in world.updates if not validate_only]


def outcome(record: SqlRunStore) -> str:
    return str(record.attachment("report.json")["outcome"])


def check_history(record: SqlRunStore, states: dict[str, str | None]) -> None:
    """The history says of each step what Airflow says of its task, and that it began. The report follows it."""
    view = RunView.of(record.events())
    said = {step: seen.state.value for step, seen in view.steps.items()}
    words = {"success": "done", "skipped": "skipped", "failed": "failed"}
    assert said == {
        task: words[state] for task, state in states.items() if state in words and task not in {"report", "outcome"}
    }
    began = {event.step for event in view.all(StepBegan)}
    assert {step for step, state in said.items() if state != "skipped"} <= began
    assert view.running == ""


def test_everything_goes_up_after_an_approval_and_every_node_is_waited_for(runs: FakeRuns, world: FakeCluster) -> None:
    state, states, record = run(runs)
    assert state == "success", states
    assert runs.asked == ["approve"]
    assert "metadata.version 29 → 30" in runs.bodies["approve"]
    assert sent(world)[0] == {"metadata.version": 30}
    assert world.finalized["share.version"] == 1
    assert "kraft.version" not in world.finalized
    assert outcome(record) == "finished"
    check_history(record, states)
    page = record.page("report.html")
    assert "fake: features, on 4.3.1" in page
    assert "<th>Result</th>" in page
    assert "nodes started in this run" not in page
    assert change_lock(runs.home).holder("fake") is None


def test_single_features_fall_and_are_deleted_with_those_who_use_them_in_front_of_the_approver(
    runs: FakeRuns, world: FakeCluster
) -> None:
    world.groups = [GroupState(group_id="billing", type="consumer", state="Stable", members=1)]
    world.transactions = [TransactionState(transactional_id="payments", state="Ongoing", producer_id=1)]
    conf = {"action": "update", "downgrade": ["transaction.version:1", "group.version:0"]}
    world.spec = replace(world.spec, feature_approval="where_needed")
    state, states, record = run(runs, **conf)
    assert (state, states["plan"], states["approve"], sent(world)) == ("failed", "success", "failed", [])
    assert [finding.code for finding in record.load_plan().blockers] == ["PRODUCERS-END-FATALLY"]
    assert outcome(record) == "refused"
    state, states, record = run(runs, **conf, downgrade_type="UNSAFE")
    assert state == "success", states
    assert runs.asked == ["approve"], "what falls is asked for always"
    assert "billing (1 member)" in runs.bodies["approve"]
    assert "UNSAFE" in runs.bodies["approve"]
    assert sent(world) == [{"group.version": 0, "transaction.version": 1}]


def test_a_group_that_loses_its_type_is_waited_for_after_the_approval_and_before_the_request(
    runs: FakeRuns, world: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing = GroupState(group_id="billing", type="consumer", state="Stable", members=1)
    world.groups = [billing]
    sent_at_look: list[int] = []

    def converted_meanwhile(_: FakeLogs, *, planned: bool | None, by_spark: bool, incremental: bool) -> GroupRecords:
        sent_at_look.append(len(sent(world)))
        world.groups = [replace(billing, type="classic")]
        return GroupRecords(read_at=0.0, offsets=0)

    monkeypatch.setattr(FakeLogs, "group_records", converted_meanwhile)
    state, states, _ = run(runs, action="update", downgrade=["group.version:0"])
    assert state == "success", states
    assert "billing (1 member)" in runs.bodies["approve"]
    assert "The run waits for that" in runs.bodies["approve"]
    assert sent_at_look == [0, 0], "it looked until the group was converted, and nothing was sent until then"
    assert sent(world) == [{"group.version": 0}]


def test_what_kafka_can_take_back_needs_no_approval_if_the_inventory_says_so(
    runs: FakeRuns, world: FakeCluster
) -> None:
    world.spec = replace(world.spec, feature_approval="where_needed")
    conf = {"action": "update"}
    state, states, record = run(runs, **conf, upgrade=["share.version:1"])
    assert (state, states["approve"], runs.asked) == ("success", "skipped", [])
    assert sent(world) == [{"share.version": 1}]
    assert outcome(record) == "finished"
    run(runs, **conf, upgrade=["metadata.version:30"])
    assert runs.asked == ["approve"], "a point of no return is asked for always"


def test_a_value_that_comes_with_a_level_and_is_not_in_the_plan_needs_an_approver(
    runs: FakeRuns, world: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "raise_elr", lambda: world.set_default("log.cleaner.threads", "7"))
    runs.answers["approve_level_differences"] = ["Reject"]
    state, states, record = run(runs)
    assert (state, states["compare_after_levels"]) == ("failed", "success"), states
    assert runs.asked == ["approve", "approve_level_differences"]
    body = runs.bodies["approve_level_differences"]
    assert "Dynamic setting log.cleaner.threads of all brokers was not set and is 7." in body.replace("\\", "")
    assert states["approve_level_differences"] == "failed"
    assert outcome(record) == "stopped"


def test_a_rejected_change_sends_nothing(runs: FakeRuns, world: FakeCluster) -> None:
    runs.answers["approve"] = ["Reject"]
    state, states, record = run(runs)
    assert (state, states["update"], sent(world)) == ("failed", "upstream_failed", [])
    assert outcome(record) == "refused"
    check_history(record, states)
    assert change_lock(runs.home).holder("fake") is None


def test_a_dry_run_plans_and_changes_nothing(runs: FakeRuns, world: FakeCluster) -> None:
    state, states, record = run(runs, action="downgrade_all", release_version="3.9.1", dry_run=True)
    assert state == "success", states
    assert {task for task, told in states.items() if told == "skipped"} == CHANGING
    assert (runs.asked, sent(world), outcome(record)) == ([], [], "dry_run")
    check_history(record, states)
    assert "FEATURE-DOWNGRADE-REFUSED" in {finding.code for finding in record.load_plan().findings}


@pytest.mark.parametrize(
    "conf",
    [
        {"action": "update", "upgrade": ["metadata.version:99"]},
        {"action": "update", "upgrade": ["no.such.version:1"]},
        {"action": "update", "upgrade": ["share.version:1"], "downgrade": ["share.version:0"]},
        {"action": "update"},
        {"action": "downgrade_all"},
        {"action": "upgrade_all", "downgrade": ["share.version:0"]},
    ],
)
def test_bad_input_fails_the_plan_and_asks_nobody(runs: FakeRuns, world: FakeCluster, conf: dict[str, Any]) -> None:
    state, states, record = run(runs, **conf)
    assert (state, states["plan"], runs.asked, world.updates) == ("failed", "failed", [], [])
    check_history(record, states)
    assert [begun.dag_id for begun in events_of(record.events(), Begun)] == [DAG_ID]
    assert change_lock(runs.home).holder("fake") is None


def test_a_narrower_broker_that_joined_meanwhile_fails_the_run_that_finalized(
    runs: FakeRuns, world: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_rollout.feature_updates import update as feature_update

    apply = feature_update.apply_features

    def and_a_broker_joins(run: Any) -> Any:
        outcomes = apply(run)
        world.nodes[13].running = Release(4, 2, 1)
        return outcomes

    monkeypatch.setattr(feature_update, "apply_features", and_a_broker_joins)
    state, states, record = run(runs)
    assert (state, states["update"], states["look_again"]) == ("failed", "success", "failed")
    assert states["gate_finalized"] == "upstream_failed", "which would wait for a node that is kept out"
    assert outcome(record) == "stopped"
    assert "node 13 supports 7-29" in str(record.attachment("report.json")["sentence"])


def test_a_cluster_has_one_run_at_a_time_and_only_what_ends_it_goes_on_after_a_failure(
    load_dags: Callable[[], dict[str, DAG]],
) -> None:
    dag = load_dags()[DAG_ID]
    rules = {task.task_id: str(getattr(task.trigger_rule, "value", task.trigger_rule)) for task in dag.tasks}
    assert {task_id for task_id, rule in rules.items() if rule == "all_done"} == {"report", "outcome"}
    assert dag.max_active_runs == 1
    assert set(dag.get_task("dry_run").skipped) == CHANGING
    assert {"kafka", "kafka-rollout", "features"} <= set(dag.tags)


def test_the_form_refuses_what_makes_no_sense(load_dags: Callable[[], dict[str, DAG]]) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    params = load_dags()[DAG_ID].params
    for name, value in (
        ("action", "finalize"),
        ("release_version", "latest"),
        ("upgrade", ["group.version"]),
        ("upgrade", "group.version:1"),
        ("downgrade", ["group.version:one"]),
        ("downgrade_type", "FORCE"),
    ):
        with pytest.raises(ParamValidationError):
            params.get_param(name).resolve(value)
    assert params.get_param("downgrade_type").resolve() == "SAFE"
    assert params.get_param("release_version").resolve() is None
