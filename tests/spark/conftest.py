"""One Spark session for all tests that need one, and log directories made of bytes that real brokers wrote."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.scan import ScanRequest, ScanResult
from kafka_rollout.coordinator_logs.spark.submit import configuration, environment
from kafka_rollout_spark.job import start_spark
from kafka_rollout_spark.scan import Documents, make_result, read_logs
from kafka_rollout_spark.source import LogsToRead, logs_in_directories
from tests.fixture_logs import write_fixture_logs
from tests.paths import ROOT

FixtureLogs = Callable[..., Path]
Scan = Callable[..., ScanResult]
MASTER = "local[2]"
MERGED_ON_DRIVER, MERGED_BY_TASKS = 0, 1 << 30  # size of a log; the tasks have four buckets
WITHOUT_SPARK = -1
TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")


@pytest.fixture(scope="session", autouse=True)
def _with_class_archive(spark_archive: None) -> None:
    """Every file here starts Spark."""


@pytest.fixture(scope="session")
def spark(_with_class_archive: None) -> Iterator[SparkContext]:
    with pytest.MonkeyPatch.context() as patch:
        found = environment(Settings.from_environment())
        del found["PYTHONSAFEPATH"]  # the session lasts to the end, and later tests start Python in this folder
        found["PYTHONPATH"] += f"{os.pathsep}{ROOT / 'data_source'}"  # as if it were installed
        for name, value in found.items():
            patch.setenv(name, value)
        options = [word for key, value in configuration(MASTER).items() for word in ("--conf", f"{key}={value}")]
        patch.setenv("PYSPARK_SUBMIT_ARGS", shlex.join(["--master", MASTER, *options, "pyspark-shell"]))
        started = start_spark()
        yield started
        started.stop()


@pytest.fixture
def fixture_logs(tmp_path: Path) -> FixtureLogs:
    """`fixture_logs("4.3.1", name="node-1", times=3)`: a log directory with a release's fixtures, three times over."""

    return partial(write_fixture_logs, tmp_path)


def find(*directories: Path) -> LogsToRead:
    return logs_in_directories(cluster="copy", directories=directories, topics=TOPICS)


@pytest.fixture
def scan(spark: SparkContext) -> Scan:
    """`scan(directory, …)`, or `scan(logs=…)` of logs that were found before; other arguments are those of ScanRequest,
    or `documents`.

    The rows are merged without Spark, on the driver and by tasks, unless `log_bytes` chooses. All results are equal.
    """
    known = Documents.load([Settings.from_environment().include])
    request = ScanRequest(cluster="copy", json_file=Path(), releases=tuple(known.catalogue))

    def run(
        *directories: Path,
        logs: LogsToRead | None = None,
        log_bytes: int | None = None,
        documents: Documents = known,
        **asked_for: Any,
    ) -> ScanResult:
        asked, found = replace(request, **asked_for), logs or find(*directories)
        ways = (WITHOUT_SPARK, MERGED_ON_DRIVER, MERGED_BY_TASKS) if log_bytes is None else (log_bytes,)
        results = [read(asked, documents, replace(found, log_bytes=size)) for size in ways]
        assert all(replace(result, scanned_at=results[0].scanned_at) == results[0] for result in results)
        return results[0]

    def read(asked: ScanRequest, documents: Documents, logs: LogsToRead) -> ScanResult:
        with read_logs(
            None if logs.log_bytes == WITHOUT_SPARK else spark, logs, documents.spec(asked, logs), lambda _: None
        ) as scanned:
            return make_result(asked, documents, logs, scanned)

    return run
