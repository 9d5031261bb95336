"""Spark's master is a setting: the same job on a standalone cluster of two workers, each a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.adapters.coordinator_logs.spark_submit import environment, spark_submit, submit
from kafka_rollout.domain.coordinator_logs.scan import ScanRequest
from kafka_rollout.json_forms import to_json
from kafka_rollout.settings import Settings
from tests.spark.conftest import FixtureLogs, Scan, find
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.full]

WORKERS = 2
_REGISTERED = re.compile(r"Registering worker (\S+) ")  # more than once, if it had to ask again
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
SMALL = {"SPARK_DAEMON_MEMORY": "200m", "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers, on loopback and ports that were free; ended by their process ids."""
    settings = Settings.from_environment()
    variables = {**os.environ, **environment(settings), **SMALL, "SPARK_LOCAL_IP": "127.0.0.1"}
    variables["SPARK_WORKER_DIR"] = str(tmp_path / "work")
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> Path:
            log = tmp_path / f"{name}.log"
            command = [str(spark_submit().with_name("spark-class")), f"org.apache.spark.deploy.{arguments[0]}"]
            with log.open("wb") as out:
                process = subprocess.Popen(
                    [*command, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments[1:]],
                    env=variables,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return log

        log = start("master", "master.Master")
        wait_until(lambda: bool(_STARTED.search(log.read_text())), 180)
        address = _STARTED.findall(log.read_text())[0]
        for number in range(WORKERS):
            start(f"worker-{number}", "worker.Worker", "--cores", "1", "--memory", "600m", address)
        wait_until(lambda: len(set(_REGISTERED.findall(log.read_text()))) == WORKERS, 180)
        yield address


def test_two_workers_find_what_one_machine_finds(
    master: str, scan: Scan, fixture_logs: FixtureLogs, tmp_path: Path
) -> None:
    logs = fixture_logs("4.3.1", times=4_000, segment_batches=2_000)
    assert not find(logs).is_small, "Spark merges the rows, not the driver"
    request = ScanRequest(cluster="copy", json_file=tmp_path / "scan.json", log_dirs=(logs,), live=True)
    spread = [("spark.executor.memory", "500m"), ("spark.executor.cores", "1")]
    code, result = submit(request, Settings.from_environment(), master=master, extra_configuration=spread)
    here = replace(scan(logs, live=True), scanned_at=result.scanned_at)
    assert (code, to_json(result)) == (0, json.loads(json.dumps(to_json(here))))
    assert result.records > 0
    assert len(list((tmp_path / "work").glob("app-*/*/stderr"))) == WORKERS
