"""Downgrades through Airflow: what Kafka accepts goes online, level by level and node by node."""

from __future__ import annotations

import pytest

from kafka_rollout.nodes.metrics import NodeMetricsReader
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import (
    QUICK_SNAPSHOTS,
    PrivateAirflow,
    all_run,
    each_started_once,
    every_gate_has_evidence,
    finalized,
    leadership,
    no_lock_left,
    nothing_lost,
    planned_last,
    start_order,
)
from tests.integration.harness.cluster_contents import WITH_ACLS, contents_kept, fill

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

DOWNGRADE = "kafka_downgrade"


@pytest.mark.full
def test_a_level_that_kafka_lowers_falls_under_live_traffic_and_the_binary_follows(
    airflow: PrivateAirflow, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(
        "4.3.1",
        name="down",
        layout="combined",
        metadata_version="4.2-IV1",
        extra_config={**QUICK_SNAPSHOTS, **WITH_ACLS},
    )
    fill(cluster)
    airflow.add(cluster, DOWNGRADE)
    before = leadership(cluster)
    run = airflow.trigger(cluster, "4.0.1", dag=DOWNGRADE, target_level=23)

    question = run.wait_for_question("approve_levels")
    assert "Metadata lost: none" in question["body"]
    assert "metadata.version 29 → 23" in question["body"]
    active = planned_last(run.store.load_plan(), cluster, before)
    run.answer("approve_levels", "Approve", "nothing is lost")
    question = run.wait_for_question("approve_roll")
    for node in cluster.spec.nodes:
        metrics = NodeMetricsReader().read(node)
        assert metrics.current_metadata_version_prometheus == 23, "on every node, before the binary goes down"
        assert metrics.current_metadata_version_jolokia == 23
    all_run(cluster, "4.3.1")
    assert "4.3.1 → 4.0.1" in question["body"]
    run.answer("approve_roll", "Approve", "the levels are there")
    run.wait_success()

    all_run(cluster, "4.0.1")
    each_started_once(cluster, "4.3.1", "4.0.1")
    assert start_order(cluster, "4.0.1")[-1] == active, "the active controller comes last"
    for node in cluster.spec.nodes:
        levels = finalized(cluster, node)
        assert levels["metadata.version"] == 23, node.name
        assert {"share.version", "streams.version"}.isdisjoint(levels), "4.0.1 does not know them"
    report = run.report()
    assert report["outcome"] == "finished"
    every_gate_has_evidence(report)
    nothing_lost(report["traffic"])
    assert report["losses"]["losses"] == []
    assert min(contents_kept(report)["before"].values()) >= 1, "there was something of everything to be compared"
    assert report["snapshot"]["proved"]
    assert report["snapshot"]["features"]["metadata.version"] == 23
    assert {one["readiness"] for one in report["metadata_logs"][-1]["nodes"]} == {"ready"}
    assert report["trims"] == []
    no_lock_left(airflow, cluster)
