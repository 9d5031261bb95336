"""The scheduled scan through a real Airflow, Spark and a real broker; and the tail that is read without Spark."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.groups.reading.live import LiveCoordinatorLogs
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import PrivateAirflow, Run
from tests.records import alerts_of, scan_history
from tests.releases import NEWEST
from tools.coordinator_traffic import CONSUMER_OFFSETS, TRANSACTION_STATE, make_traffic, plant, versioned

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

RUNNING = Release(4, 3, 1)
SCAN = "scan_coordinator_logs"
CHECK = "check_release"
FEW_PARTITIONS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "2"}

UNKNOWN_TYPE = (versioned(99, b"key"), versioned(0))
CUT_OFF_COMMIT = (versioned(1, b"\x00\x01g\x00\x01t\x00\x00\x00\x00"), versioned(3, b"\x00\x00"))
CUT_OFF_KEY = (versioned(2, b"\x00\x09g"), versioned(3))
TOMBSTONE = (versioned(0, b"\x00\x01t"), None)


def test_a_scan_is_kept_shown_and_told_and_a_record_that_makes_it_worse_alerts(
    airflow: PrivateAirflow, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster("4.3.1", name="scanned", layout="combined", size=1, extra_config=FEW_PARTITIONS)
    servers = cluster.spec.bootstrap_servers
    make_traffic(servers, consumer_protocol=True)
    dag_id = airflow.add(cluster, "kafka_compatibility_scan")

    def scanned() -> tuple[Run, ScanResult]:
        client = airflow.client()
        run = Run(airflow=airflow, cluster=cluster, dag_id=dag_id, run_id=client.trigger(dag_id, {}), client=client)
        run.wait_success(timeout_s=600)
        task = f"/dags/{dag_id}/dagRuns/{run.run_id}/taskInstances/{SCAN}"
        kept = client.get(f"{task}/xcomEntries/return_value", deserialize=True)["value"]["scan"]
        return run, scan_history(airflow.home, "scanned").get(kept).load()

    run, before = scanned()
    assert run.states() == {SCAN: "success", CHECK: "success", "alert": "success"}
    alert = alerts_of(airflow.home, "scanned")[-1]
    assert alert.kind == "check-worse", "the topics of a single broker have one replica"
    assert any("RF-ONE" in sentence for sentence in alert.sentences)
    checked = page_of(airflow, dag_id, run.run_id, page="check")
    assert checked.status_code == 200
    assert f"upgrade 4.3.1 → {NEWEST}" in checked.text
    standing = {str(release): str(verdict) for release, verdict in before.standing.items()}
    assert standing.keys() == {"4.2.2", "4.3.1", NEWEST}, "the running release and those on its paths"
    assert standing["4.3.1"] == "loads"
    assert "fails" not in standing.values()
    (event,) = asset_events(airflow, "kafka-rollout/scanned/coordinator-log-scan")
    assert event["extra"]["verdicts"] == standing
    assert event["extra"]["records"] == before.records
    assert page_of(airflow, dag_id, run.run_id).status_code == 200
    task = f"/dags/{dag_id}/dagRuns/{run.run_id}/taskInstances/{SCAN}"
    assert "/scan?run_id=" in airflow.client().get(f"{task}/links")["extra_links"]["Scan"]
    assert page_of(airflow, dag_id, run.run_id, signed_in=False).status_code == 401

    plant(servers, CONSUMER_OFFSETS, 0, [UNKNOWN_TYPE, CUT_OFF_COMMIT, CUT_OFF_KEY], "lz4")
    plant(servers, TRANSACTION_STATE, 1, [TOMBSTONE], "gzip")
    settings = Settings.from_environment()
    logs = LiveCoordinatorLogs(cluster=cluster.spec, catalogue=load_catalogue(settings.include), settings=settings)
    carried_on = logs.scan_new_records(before, planned=None)

    run, after = scanned()
    assert run.states() == {SCAN: "success", CHECK: "success", "alert": "success"}
    alert = alerts_of(airflow.home, "scanned")[-1]
    assert "4.3.1" in alert.headline
    run.wait_for_log("alert", alert.headline)
    assert ["does not parse" in v.first_failure.reason for v in after.failing(RUNNING) if v.first_failure] == [True]
    assert verdicts(carried_on) == verdicts(after), "the tail is decoded as Spark's workers decode it"
    assert carried_on.logs == after.logs
    assert classes(carried_on) == classes(after)


def asset_events(airflow: PrivateAirflow, name: str) -> list[dict[str, Any]]:
    events = airflow.client().get("/assets/events", order_by="-timestamp")["asset_events"]
    return [event for event in events if event["name"] == name]


def page_of(
    airflow: PrivateAirflow, dag_id: str, run_id: str, *, page: str = "scan", signed_in: bool = True
) -> httpx.Response:
    query = {"run_id": run_id, "task_id": SCAN}
    address = f"{airflow.server.url}/kafka-rollout/dags/{dag_id}/{page}"
    if not signed_in:
        return httpx.get(address, params=query, trust_env=False)
    return airflow.client().http().get(address, params=query)


def verdicts(scan: ScanResult) -> set[tuple[Any, ...]]:
    return {(v.release, v.topic, v.partition, v.verdict, v.ignored, v.first_failure) for v in scan.verdicts}


def classes(scan: ScanResult) -> dict[tuple[Any, ...], int]:
    return {(c.topic, c.partition, c.key_version, c.value_version, c.first_offset): c.count for c in scan.classes}
