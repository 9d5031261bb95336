"""4.3.1 at 3.4-IV0 with a feature that was set and taken back: its record in the metadata log kills an older
controller, and the run says so, cuts it off, and goes down."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.releases.facts import Release
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.dag_in_process import ProcessRuns
from tests.integration.harness.airflow.server import QUICK_SNAPSHOTS, all_run, finalized, starts
from tests.integration.harness.cluster_contents import contents_kept
from tests.integration.harness.groups.committing import commit
from tests.integration.harness.logs.old_records import read_all, set_and_take_back, write_records

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.full, pytest.mark.timeout(1800)]

DOWNGRADE = "kafka_downgrade"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessRuns:
    return ProcessRuns.open(tmp_path, monkeypatch)


def test_the_record_that_would_kill_an_older_controller_is_named_and_cut_off_in_each_nodes_turn(
    runs: ProcessRuns, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(
        "4.3.1", name="trim", layout="combined", metadata_version="3.4-IV0", extra_config=QUICK_SNAPSHOTS
    )
    write_records(cluster.spec)
    read_all(cluster.spec, "billing", "classic")
    set_and_take_back(cluster.spec, "shipping")

    state, _, record = runs.run(cluster, DOWNGRADE, target_release="3.4.0")
    assert (state, runs.asked) == ("failed", [])
    plan = record.load_plan()
    assert [release_step.key for release_step in plan.release_steps] == ["4.3.1-to-3.4.1", "3.4.1-to-3.4.0"]
    blockers = {finding.subject: finding.sentence for finding in plan.blockers}
    assert set(blockers) == {"3.4.0, topic __consumer_offsets"}, "4.3.1 writes OffsetCommitValue 4"
    assert set(starts(cluster)["node-1"]) == {"4.3.1"}, "nothing was changed"

    state, states, record = runs.run(cluster, DOWNGRADE, target_release="3.4.1", traffic=True)
    assert state == "success", states
    (finding,) = [f for f in record.load_plan().findings if f.code == "METADATA-LOG-TRIM"]
    assert "LOGS-IGNORED-IN-PART" in {f.code for f in record.load_plan().findings}, "3.4.1 loads, ignoring some"
    assert "A FeatureLevelRecord sets group.version to 1, and controllers of 3.4.1 support no group.version" in (
        finding.sentence
    )
    assert runs.asked == ["approve_roll"], "no level had to fall"
    assert "Metadata logs to trim: 3" in runs.bodies["approve_roll"]
    all_run(cluster, "3.4.1")
    report = record.attachment("report.json")
    assert report["outcome"] == "finished"
    assert report["traffic"]["ok"], report["traffic"]["discrepancies"]
    assert {trim["node_id"] for trim in report["trims"]} == {node.node_id for node in cluster.spec.nodes}
    contents_kept(report)
    for node in cluster.spec.nodes:
        assert finalized(cluster, node) == {"metadata.version": 8}
        assert list(Path(str(node.directory)).rglob("kafka-rollout-trim-*/manifest.json")), "undo stays possible"


def test_an_intolerant_release_is_reached_while_no_newer_coordinator_has_written_to_its_logs(
    runs: ProcessRuns, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(
        "4.3.1", name="oldest", layout="combined", metadata_version="3.4-IV0", extra_config=QUICK_SNAPSHOTS
    )
    write_records(cluster.spec)
    set_and_take_back(cluster.spec)

    state, states, record = runs.run(cluster, DOWNGRADE, target_release="3.4.0")
    assert state == "success", states
    assert [release_step.key for release_step in record.load_plan().release_steps] == [
        "4.3.1-to-3.4.1",
        "3.4.1-to-3.4.0",
    ]
    all_run(cluster, "3.4.0")
    assert starts(cluster) == {node.name: {"4.3.1": 1, "3.4.1": 1, "3.4.0": 1} for node in cluster.spec.nodes}
    report = record.attachment("report.json")
    assert report["outcome"] == "finished", report["sentence"]
    contents_kept(report)
    assert {trim["node_id"] for trim in report["trims"]} == {node.node_id for node in cluster.spec.nodes}
    read_all(cluster.spec, "billing", "classic")


def test_an_intolerant_release_that_is_forced_onto_newer_coordinator_logs_fails_as_the_gate_said(
    make_cluster: MakeCluster,
) -> None:
    """The gate refuses 3.4.0 because 4.3.1 wrote OffsetCommitValue 4; this is what it keeps people from."""
    cluster = make_cluster("4.3.1", name="forced", layout="combined", size=1, metadata_version="3.4-IV0")
    (node,) = cluster.spec.nodes
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    for future in admin.create_topics([NewTopic("orders", 1, 1)]).values():
        future.result(60)
    consumer = Consumer({"bootstrap.servers": cluster.spec.bootstrap_servers, "group.id": "billing"})
    from confluent_kafka import TopicPartition

    commit(consumer, TopicPartition("orders", 0, 0))
    consumer.close()
    cluster.stop()
    cluster.runtime.install(node, Release(3, 4, 0))
    cluster.start()
    log = Path(str(node.directory)) / "logs" / "server.log"
    deadline = time.monotonic() + 300
    while "Error loading offsets from __consumer_offsets" not in (said := log.read_text(errors="replace")):
        assert time.monotonic() < deadline, "3.4.0 loaded the partition"
        time.sleep(0.5)
    assert "Unknown offset message version: 4" in said
