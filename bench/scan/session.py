"""The Spark session of the scan job, used for many scans. Each scan is checked: all records counted, no damage."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.scan import ScanRequest, ScanResult
from kafka_rollout.coordinator_logs.spark.submit import configuration, environment
from kafka_rollout_spark.job import start_spark
from kafka_rollout_spark.kernel.programs import DecodingSpec
from kafka_rollout_spark.scan import Documents, make_result, read_logs
from kafka_rollout_spark.source import LogsToRead, live_logs, logs_in_directories

MASTER = "local[2]"


class WarmSession:
    """A Spark session that already runs. `start_s`: time of its start in seconds."""

    def __init__(self, settings: Settings, scratch: Path) -> None:
        folders = settings.catalogue_folders
        self._documents = Documents.load(folders)
        conf = {**configuration(MASTER, scratch), "spark.ui.showConsoleProgress": "false"}
        confs = [f"--conf {shlex.quote(f'{key}={value}')}" for key, value in conf.items()]
        os.environ.update(environment(settings))
        os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(["--master", MASTER, *confs, "pyspark-shell"])
        began = time.monotonic()
        self._spark = start_spark()
        self.start_s = time.monotonic() - began

    def request(self, *, classes_only: bool = False, live: bool = False) -> ScanRequest:
        releases = tuple(self._documents.catalogue)
        return ScanRequest(cluster="bench", json_file=Path(), releases=releases, classes_only=classes_only, live=live)

    def spec(self, request: ScanRequest, logs: LogsToRead) -> DecodingSpec:
        return self._documents.spec(request, logs)

    def find(self, folders: Sequence[Path]) -> LogsToRead:
        topics = self._documents.catalogue.coordinator_topics
        return logs_in_directories(cluster="bench", directories=folders, topics=topics)

    def files_s(self, folders: Sequence[Path], request: ScanRequest, records: int) -> tuple[float, ScanResult]:
        """Scan log directories, from the search for segments to verdicts and inventory. Return seconds and result."""
        began = time.monotonic()
        return self._finish(began, self.find(folders), request, records)

    def broker_s(self, servers: str, request: ScanRequest) -> tuple[float, ScanResult]:
        """Scan a running cluster. Return seconds and result."""
        began = time.monotonic()
        known = self._documents.catalogue.coordinator_topics
        logs = live_logs(cluster="bench", bootstrap_servers=servers, security=None, topics=[], known=known)
        return self._finish(began, logs, request, sum(log.end - log.start for log in logs.logs))

    def _finish(self, began: float, logs: LogsToRead, request: ScanRequest, records: int) -> tuple[float, ScanResult]:
        with read_logs(self._spark, logs, self.spec(request, logs), lambda _: None) as scanned:
            result = make_result(request, self._documents, logs, scanned)
        took = time.monotonic() - began
        if result.records != records or result.damage:
            raise FatalError(
                f"The scan counted {result.records} of {records} records and found {len(result.damage)} damaged parts.",
                remedy="Find the cause: the figures are not valid.",
            )
        return took, result

    def close(self) -> None:
        self._spark.stop()
