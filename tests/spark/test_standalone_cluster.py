"""Spark's master is a setting: the same job on a standalone cluster of two workers, each a process of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.scan import ScanRequest
from kafka_rollout.coordinator_logs.spark.submit import submit
from kafka_rollout_spark.progress import START_LIMIT
from tests.integration.harness.spark_standalone import standalone_cluster
from tests.spark.conftest import FixtureLogs, Scan, find

pytestmark = [pytest.mark.spark, pytest.mark.full]

WORKERS = 2


def test_two_workers_find_what_one_machine_finds(scan: Scan, fixture_logs: FixtureLogs, tmp_path: Path) -> None:
    logs = fixture_logs("4.3.1", times=4_000, segment_batches=2_000)
    assert not find(logs).is_small, "Spark merges the rows, not the driver"
    request = ScanRequest(cluster="copy", json_file=tmp_path / "scan.json", log_dirs=(logs,), live=True)
    spread = [("spark.executor.memory", "500m"), ("spark.executor.cores", "1")]
    with standalone_cluster(tmp_path, {"SPARK_WORKER_DIR": str(tmp_path / "work")}, workers=WORKERS) as cluster:
        code, result = submit(request, Settings.from_environment(), master=cluster.address, extra_configuration=spread)
    here = replace(scan(logs, live=True), scanned_at=result.scanned_at)
    assert (code, to_json(result)) == (0, json.loads(json.dumps(to_json(here))))
    assert result.records > 0
    assert len(list((tmp_path / "work").glob("app-*/*/stderr"))) == WORKERS


def test_a_cluster_without_room_or_environment_is_said_in_one_sentence_and_in_time(
    fixture_logs: FixtureLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ScanRequest(cluster="copy", json_file=tmp_path / "scan.json", log_dirs=(fixture_logs("3.9.1"),))
    said: list[str] = []

    def refused(*conf: tuple[str, str]) -> str:
        with pytest.raises(RolloutError) as raised:
            submit(
                request,
                Settings.from_environment(),
                master=cluster.address,
                extra_configuration=conf,
                on_progress=said.append,
            )
        return str(raised.value)

    (tmp_path / "spark").mkdir()
    with standalone_cluster(tmp_path / "spark", {}) as cluster:
        found = refused(("spark.executor.memory", "4g"), (START_LIMIT, "40"))
        assert found.startswith("No executor has taken a task for 4")
        assert "a free worker for spark.executor.memory 4g" in found
        assert any("no executor has taken a task for 3" in line for line in said), said
        # The job itself is started by another function.
        monkeypatch.setattr("kafka_rollout.coordinator_logs.spark.submit.interpreter", lambda: "/nowhere/bin/python")
        found = refused(("spark.executor.memory", "500m"))
        assert found.startswith("An executor has no /nowhere/bin/python. Install the environment")
