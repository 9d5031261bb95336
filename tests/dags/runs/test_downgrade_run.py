"""The downgrade DAG in one process, over a fake cluster: what is asked of whom, in which order, and what stops it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from kafka_rollout.formats.log_types import RecordKind
from kafka_rollout.metadata_log.losses import Loss
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Approval, ApprovalOf, events_of
from kafka_rollout.run.step_events import Stopping
from kafka_rollout.run.store.history import SqlRunStore
from tests.acls import read_acl
from tests.dags.conftest import FakeRuns, spec_with_homes
from tests.fakes.cluster import R341, R431, FakeCluster
from tests.records import change_lock

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow

DAG_ID = "kafka_downgrade_fake"
R401 = Release(4, 0, 1)
LEVELS = {"metadata.version": 29, "group.version": 1, "transaction.version": 2, "share.version": 1}
CORDONED = Loss(kind="cordoned log directories", subject="broker 11", sentence="Broker 11 loses /data/2.")
COMMITS = RecordKind(topic="__consumer_offsets", partition=0, key_version=1, value_version=4, count=4, first_offset=0)


@pytest.fixture
def world(runs: FakeRuns) -> FakeCluster:
    runs.world = FakeCluster(R431, spec=spec_with_homes(), finalized=LEVELS)
    return runs.world


def run(runs: FakeRuns, target: str, **conf: Any) -> tuple[str, dict[str, str | None], SqlRunStore]:
    """(state of the run, states by task, the run's record)."""
    return runs.run(DAG_ID, target_release=target, **conf)


def sent(world: FakeCluster) -> list[dict[str, int]]:
    return [targets for targets, validate_only in world.updates if not validate_only]


def outcome(record: SqlRunStore) -> str:
    return str(record.attachment("report.json")["outcome"])


def releases(world: FakeCluster) -> set[Release | None]:
    return {node.running for node in world.nodes.values()}


def test_levels_fall_metadata_version_last_then_brokers_after_a_pause_and_the_active_controller_at_the_end(
    runs: FakeRuns, world: FakeCluster
) -> None:
    state, states, record = run(runs, "4.0.1", target_level=23, pause_after="first-node")
    assert state == "success", states
    assert runs.asked == ["approve_levels", "approve_roll", "roll.gate_before[1]"]
    stops = events_of(record.events(), Stopping)
    (passed,) = [one for one in events_of(record.events(), Approval) if one.what is ApprovalOf.PAUSE]
    assert [stop.node_id for stop in stops if stop.at < passed.at] == [11]
    assert "Metadata lost: none" in runs.bodies["approve_levels"]
    assert sent(world) == [{"share.version": 0}, {"metadata.version": 23}]
    assert world.stops == [11, 12, 13, 2, 3, 1], "brokers, controllers, the active one last"
    assert releases(world) == {R401}
    report = record.attachment("report.json")
    assert report["outcome"] == "finished"
    (compared,) = report["state_comparisons"]
    assert (compared["after"], compared["digest"]) == ("downgrade", "")
    assert {gate["kind"] for gate in report["gates"]} >= {"metadata-log", "levels", "metadata-version", "snapshot"}
    assert change_lock(runs.home).holder("fake") is None


@pytest.mark.full
def test_a_real_loss_stops_safe_before_the_controller_is_asked_anything(runs: FakeRuns, world: FakeCluster) -> None:
    world.losses = [CORDONED]
    state, states, record = run(runs, "4.0.1")
    assert (state, states["report_losses"], states["approve_levels"]) == ("failed", "success", "failed")
    assert (runs.asked, world.updates, world.stops) == ([], [], []), "not even validate-only"
    report = record.attachment("report.json")
    assert report["outcome"] == "refused"
    assert "Broker 11 loses /data/2." in report["sentence"]
    state, states, record = run(runs, "4.0.1", downgrade_type="UNSAFE")
    assert state == "success", states
    assert "Broker 11 loses /data/2." in runs.bodies["approve_levels"]
    assert "UNSAFE" in runs.bodies["approve_levels"]


@pytest.mark.full
def test_each_log_that_the_older_release_cannot_replay_is_trimmed_in_its_nodes_turn(
    runs: FakeRuns, world: FakeCluster
) -> None:
    world.finalized = {"metadata.version": 8}
    world.unreadable = {(node.node_id, R341) for node in world.spec.nodes if node.node_id != 12}
    for node in world.nodes.values():
        node.checkpoints.append(_checkpoint())
    state, states, record = run(runs, "3.4.1")
    assert state == "success", states
    assert runs.asked == ["approve_roll"], "no level falls"
    assert states["approve_levels"] == "skipped"
    assert "Metadata logs to trim: 5" in runs.bodies["approve_roll"]
    assert world.trims == [11, 13, 2, 3, 1], "while each is stopped, in its turn"
    (finding,) = [f for f in record.load_plan().findings if f.code == "METADATA-LOG-TRIM"]
    assert "offset 7" in finding.sentence
    assert [trim["node_id"] for trim in record.attachment("report.json")["trims"]] == world.trims


@pytest.mark.full
def test_a_log_that_became_unreadable_after_the_approval_stops_the_run_before_the_node(
    runs: FakeRuns, world: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_rollout.roll import stop as roll

    world.finalized = {"metadata.version": 8}
    prepare = roll.refuse_unready

    def and_somebody_sets_a_feature(at: Any) -> None:
        world.unreadable = {(11, R341)}
        prepare(at)

    monkeypatch.setattr(roll, "refuse_unready", and_somebody_sets_a_feature)
    state, states, _ = run(runs, "3.4.1")
    assert (state, states["roll.replace[0]"], world.stops) == ("running", "failed", [])


@pytest.mark.full
def test_what_no_client_takes_away_needs_an_approver(
    runs: FakeRuns, world: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_rollout.preparation import state_comparison as cluster_inventory

    compare = cluster_inventory.compare_with_state

    def and_an_acl_is_gone(*arguments: Any) -> Any:
        world.acls = set()
        world.lost_in_the_roll = {"orders"}
        return compare(*arguments)

    monkeypatch.setattr(cluster_inventory, "compare_with_state", and_an_acl_is_gone)
    world.acls = {read_acl("User:bob")}
    runs.answers["approve_differences"] = ["Reject"]
    state, states, record = run(runs, "4.0.1")
    assert (state, states["inventory_after"], outcome(record)) == ("failed", "success", "stopped")
    assert "ACL allow User:bob" in str(record.attachment("report.json")["sentence"])
    assert "Topic orders" not in runs.bodies["approve_differences"], "clients delete topics"


@pytest.mark.full
def test_a_rejected_roll_leaves_the_lowered_levels_and_says_so(runs: FakeRuns, world: FakeCluster) -> None:
    runs.answers["approve_roll"] = ["Reject", "Approve"]
    state, _, record = run(runs, "4.0.1", target_level=23)
    assert (state, world.stops, world.finalized["metadata.version"]) == ("failed", [], 23)
    report = record.attachment("report.json")
    assert report["outcome"] == "stopped"
    assert "metadata.version 23 (planned 23), share.version 0 (planned 0)" in report["sentence"]
    state, states, record = run(runs, "4.0.1", target_level=23)
    assert (state, states["approve_levels"], outcome(record)) == ("success", "skipped", "finished")


def test_a_node_that_does_not_start_is_rolled_back_and_the_levels_stay(runs: FakeRuns, world: FakeCluster) -> None:
    world.cannot_start = {(12, R401)}
    runs.answers["roll.gate_after[1]"] = ["Roll back"]
    state, _, record = run(runs, "4.0.1", target_level=23)
    assert (state, releases(world), outcome(record)) == ("failed", {R431}, "rolled_back")
    assert world.finalized["metadata.version"] == 23


@pytest.mark.parametrize(
    "conf",
    [
        {"target_release": "4.0.1", "target_level": 99},
    ],
)
def test_bad_input_fails_the_plan_and_asks_nobody(runs: FakeRuns, world: FakeCluster, conf: dict[str, Any]) -> None:
    state, states, _ = runs.run(DAG_ID, **conf)
    assert (state, states["plan"], runs.asked, world.updates) == ("failed", "failed", [], [])
    assert change_lock(runs.home).holder("fake") is None


def test_only_what_ends_a_run_goes_on_after_a_failure(load_dags: Callable[[], dict[str, DAG]]) -> None:
    dag = load_dags()[DAG_ID]
    rules = {task.task_id: str(getattr(task.trigger_rule, "value", task.trigger_rule)) for task in dag.tasks}
    also = {"scan_metadata_logs", "begin_roll_back", "offline.undo.restore", "stop_traffic", "report", "outcome"}
    assert {task_id for task_id, rule in rules.items() if rule == "all_done"} == also
    assert dag.max_active_runs == 1
    order = ["observe", "plan", "scan_before_roll", "scan_metadata_logs", "report_losses", "approve_levels"]
    order += [
        "gate_groups",
        "inventory_before",
        "lower_features",
        "gate_finalized",
        "gate_snapshot",
        "gate_metadata_version",
        "check_metadata_logs",
    ]
    order += ["approve_roll", "roll.gate_after", "verify_levels", "inventory_after", "report"]
    for before, after in pairwise(order):
        assert after in {task.task_id for task in dag.get_task(before).get_flat_relatives(upstream=False)}


def test_the_form_refuses_what_makes_no_sense(load_dags: Callable[[], dict[str, DAG]]) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    params = load_dags()[DAG_ID].params
    for name, value in (
        ("target_release", "latest"),
        ("target_level", 0),
        ("target_level", "23"),
        ("downgrade_type", "FORCE"),
        ("lowering", "force"),
    ):
        with pytest.raises(ParamValidationError):
            params.get_param(name).resolve(value)
    assert params.get_param("downgrade_type").resolve() == "SAFE"
    assert params.get_param("lowering").resolve() == "online"
    assert params.get_param("target_level").resolve() is None


def _checkpoint() -> Any:
    from kafka_rollout.model.state import CheckpointFile

    return replace(
        CheckpointFile(node_id=0, path="x", end_offset=500, epoch=3, size=1, modified_at=1.0), modified_at=2.0
    )
