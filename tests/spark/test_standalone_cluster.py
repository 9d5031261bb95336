"""Spark's master is a setting: the same job on a standalone cluster of two workers, each a process of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.scan import ScanRequest
from kafka_rollout.coordinator_logs.spark.submit import submit
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
