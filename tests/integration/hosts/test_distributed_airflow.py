"""Airflow and Spark on three hosts (tests/integration/harness/airflow/hosts.py); one is lost during a roll over SSH."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.run.background import BackgroundKey, BackgroundKind
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Started, Stopping
from kafka_rollout.run.store.artifacts import Artifacts
from kafka_rollout.run.store.background import SqlBackground
from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.history import SqlRunStore
from kafka_rollout.run.store.opening import database_of
from tests.integration.harness.airflow import hosts as airflow_hosts
from tests.integration.harness.airflow.hosts import airflow_settings, control_services, use_celery, worker_host
from tests.integration.harness.airflow.server import PATIENCE_S, PrivateAirflow, Run, nothing_lost, wait_for
from tests.testbeds import MakeBed
from tools.demo.folder import PROJECT_ROOT
from tools.demo.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(airflow_hosts.missing()), reason=airflow_hosts.missing()),
]

CLUSTER, SCAN = "testbed", "kafka_compatibility_scan"


def test_a_roll_ends_complete_although_a_worker_host_is_lost_during_the_second_node(
    make_bed: MakeBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = make_bed("4.2.1", others=("4.3.1",), size=3)
    cluster = cast(LocalCluster, bed)  # the harness uses its `spec` only
    shared = tmp_path / "shared"
    shared.mkdir()
    with control_services(tmp_path) as postgres:
        settings = airflow_settings(postgres, shared)
        for name in ("KAFKA_ROLLOUT_DATABASE", "KAFKA_ROLLOUT_ARTIFACTS"):
            monkeypatch.setenv(name, settings[name])
        with PrivateAirflow.open(tmp_path / "airflow", settings) as airflow:
            use_celery(airflow)
            folders = (PROJECT_ROOT, Settings.from_environment().cache, shared, airflow.clusters, bed.folder / "ssh")
            with (
                worker_host(bed, airflow, 1, folders, tmp_path / "airflow-1.log") as first,
                worker_host(bed, airflow, 2, folders, tmp_path / "airflow-2.log") as second,
            ):
                # The first one has the test traffic, and begins the step of the second node.
                second.take_tasks(False)
                airflow.add(cluster)
                run = airflow.trigger(cluster, "4.3.1", finalize="later")
                run.approve("approve_plan")
                database = Database(settings["KAFKA_ROLLOUT_DATABASE"])
                store = SqlRunStore(database, Artifacts(str(shared)), airflow.home, CLUSTER, run.run_id)
                wait_for(
                    lambda: len({event.node_id for event in events_of(store.events(), Stopping)}) == 2,
                    timeout_s=PATIENCE_S,
                    said="the stop of the second node",
                )
                first.lose()
                assert _hosts(run) == {"airflow-1"}
                assert all("Asked to launch executor" in host.log.read_text() for host in (first, second))
                second.take_tasks(True)
                run.wait_success()
                assert _hosts(run) == {"airflow-1", "airflow-2"}

                scan_id = airflow.add(cluster, SCAN)
                scan = Run(
                    airflow=airflow,
                    cluster=cluster,
                    dag_id=scan_id,
                    run_id=airflow.client().trigger(scan_id, {}),
                    client=airflow.client(),
                )
                scan.wait_success()
                assert _hosts(scan) == {"airflow-2"}

        assert Counter(event.node_id for event in events_of(store.events(), Started)) == {1: 1, 2: 1, 3: 1}
        for host in bed.hosts:
            assert host.run("readlink", "/opt/kafka").strip() == "/opt/kafka_2.13-4.3.1"
            journal = host.run("journalctl", "--unit=kafka.service", "--output=cat", "--no-pager")
            # With the release before, and with the new one.
            assert (journal.count("Started kafka.service"), journal.count("Stopped kafka.service")) == (2, 1)
        report = store.attachment("report.json")
        assert report is not None
        assert report["outcome"] == "rolled_not_finalized"
        assert report["scan"] is not None
        nothing_lost(report["traffic"])
        traffic = SqlBackground(database_of()).read(
            BackgroundKey(cluster=CLUSTER, run_id=run.run_id, kind=BackgroundKind.TRAFFIC)
        )
        assert traffic is not None
        assert (traffic.host, traffic.settings["period"]) == ("airflow-2", 1), "it continues with the same journals"
        assert not store.find_damage()


def _hosts(run: Run) -> set[str]:
    """The hosts of the tasks that have begun."""
    tasks = run.client.tasks(run.dag_id, run.run_id).values()
    return {str(task["hostname"]) for task in tasks if task["hostname"]}
