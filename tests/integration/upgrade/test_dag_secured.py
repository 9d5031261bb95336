"""Runs through Airflow on a secured cluster: the rights of the docs are enough, and no secret is left anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import (
    QUICK_SNAPSHOTS,
    PrivateAirflow,
    all_run,
    each_started_once,
    every_gate_has_evidence,
    no_lock_left,
    nothing_lost,
)
from tests.integration.harness.security.secret_search import files_with, middle_of, watched_processes
from tests.integration.harness.security.secured import CHANGER, SecuredCluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(3000)]

OLD, NEW = "4.1.2", "4.2.1"  # Kafka itself lowers metadata.version from 29 to 27


def test_an_upgrade_and_a_downgrade_need_only_the_listed_rights_and_leave_no_secret(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured = SecuredCluster.create(
        make_cluster, OLD, tmp_path / "files", name="secured", layout="combined", extra_config=QUICK_SNAPSHOTS
    )
    secured.use_coordinators()
    cluster = secured.cluster
    (tmp_path / "airflow").mkdir()
    (tmp_path / "airflow" / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "airflow" / "tmp"))
    planted = {*secured.passwords.values(), middle_of((secured.files / "rollout.key").read_text())}
    environment = {"AIRFLOW__CORE__FERNET_KEY": Fernet.generate_key().decode()}
    with (
        watched_processes(planted) as seen,
        PrivateAirflow.open(tmp_path / "airflow" / "airflow", environment) as airflow,
    ):
        for body in secured.connections(CHANGER).values():
            airflow.client().call("POST", "/api/v2/connections", json=body)
        airflow.add(cluster)
        up = airflow.trigger(cluster, NEW, finalize="after_approval")
        up.approve("approve_plan")
        up.approve("approve_finalize")
        up.wait_success()
        all_run(cluster, NEW)
        each_started_once(cluster, OLD, NEW)
        report = up.report()
        assert report["outcome"] == "finished"
        assert report["features"]["after"]["metadata.version"] == 29
        every_gate_has_evidence(report)
        nothing_lost(report["traffic"])
        assert report["scan"] is not None

        airflow.add(cluster, "kafka_downgrade")
        down = airflow.trigger(cluster, OLD, dag="kafka_downgrade")
        down.approve("approve_levels")
        down.approve("approve_roll")
        down.wait_success()
        all_run(cluster, OLD)
        report = down.report()
        assert report["outcome"] == "finished"
        assert report["features"]["after"]["metadata.version"] == 27
        nothing_lost(report["traffic"])
        no_lock_left(airflow, cluster)

        left = files_with(planted, tmp_path / "airflow", kinds=(".db", ".log"))
    assert not left
    assert not seen
    assert (airflow.home / "runs").exists(), "the search found no file of a run"
