"""The main job through Airflow: three brokers and three controllers from 3.9.1 to 4.3.1, finalized in the same run."""

from __future__ import annotations

import pytest

from kafka_rollout.adapters.node_metrics import NodeMetricsReader
from kafka_rollout.domain.model.errors import UserError
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow_harness import (
    OTHER,
    QUICK_SNAPSHOTS,
    House,
    all_run,
    each_started_once,
    every_gate_has_evidence,
    finalized,
    leadership,
    no_lock_left,
    nothing_lost,
    planned_last,
)
from tests.integration.harness.airflow_harness import start_order as order_of_starts

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

METADATA_VERSION_4_3 = 30


def test_three_brokers_and_controllers_reach_the_target_with_every_level_finalized(
    house: House, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster("3.9.1", name="upgrade", extra_config=QUICK_SNAPSHOTS)
    house.add(cluster)
    before = leadership(cluster)
    run = house.trigger(cluster, "4.3.1", finalize="after_approval")

    question = run.wait_for_question("approve_plan")
    assert "3.9.1 → 4.3.1" in question["body"]
    with pytest.raises(UserError, match="403"):
        run.answer("approve_plan", "Approve", "I should not be asked", by=OTHER)
    assert "approve_plan" in run.client.questions(run.dag_id, run.run_id), "the wrong person's answer counted"
    active = planned_last(run.store.load_plan(), cluster, before)
    run.answer("approve_plan", "Approve", "a quiet evening")
    run.approve("approve_finalize")
    run.wait_success()

    all_run(cluster, "4.3.1")
    each_started_once(cluster, "3.9.1", "4.3.1")
    controllers = {node.node_id for node in cluster.spec.controllers}
    order = order_of_starts(cluster, "4.3.1")
    assert set(order[:3]) == controllers, "controllers come first"
    assert order[2] == active, "the active controller comes last of them"

    plan = run.store.load_plan()
    planned = {change.feature: change.target for change in plan.feature_changes}
    assert planned["metadata.version"] == METADATA_VERSION_4_3
    assert planned["group.version"] == 1
    assert planned["transaction.version"] == 2
    for node in cluster.spec.nodes:
        levels = finalized(cluster, node)
        assert {feature: levels.get(feature) for feature in planned} == planned, node.name
        metrics = NodeMetricsReader().read(node)
        assert metrics.current_metadata_version_prometheus == METADATA_VERSION_4_3
        assert metrics.current_metadata_version_jolokia == METADATA_VERSION_4_3

    report = run.report()
    assert report["outcome"] == "finished"
    every_gate_has_evidence(report)
    gates = {(gate["kind"], gate["node_id"]) for gate in report["gates"] if gate["state"] == "held"}
    wanted = {(kind, node.node_id) for kind in ("before-stop", "after-start") for node in cluster.spec.nodes}
    assert gates == wanted | {("groups", None), ("finalized", None), ("snapshot", None), ("metadata-version", None)}
    assert {(approval["what"], approval["by"]) for approval in report["approvals"]} == {
        ("roll", "anna"),
        ("finalize", "anna"),
    }
    nothing_lost(report["ledger"])
    watched = {each["group"].rsplit("-", 1)[-1]: each for each in report["groups"]["groups"] if each["partitions"]}
    assert watched["classic"]["partitions"] == 12
    assert report["groups"]["looks"] > 10
    assert report["snapshot"]["proved"]
    assert report["snapshot"]["features"]["metadata.version"] == METADATA_VERSION_4_3
    assert report["scan"] is not None
    assert run.store.page("report.html")

    copies = list((house.home / "private").rglob("*.checkpoint"))
    assert copies
    for path in copies:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not list((house.home / "runs").rglob("*.checkpoint")), "the documents hold a snapshot"
    no_lock_left(house, cluster)
