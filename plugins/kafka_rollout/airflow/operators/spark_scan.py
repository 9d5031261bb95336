"""The Spark job that scans the coordinator logs of a cluster, as a task."""

from __future__ import annotations

import json
import os
import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowException

from kafka_rollout.airflow.common.base import errors_for_airflow
from kafka_rollout.airflow.hooks.kafka_cluster import KafkaClusterHook
from kafka_rollout.composition.clusters import get_cluster
from kafka_rollout.composition.credentials import credentials_file
from kafka_rollout.composition.scans import problem_in, spark_job
from kafka_rollout.domain.coordinator_logs.scan import ScanResult
from kafka_rollout.domain.coordinator_logs.scan_request import ScanRequest
from kafka_rollout.json_forms import from_json
from kafka_rollout.settings import Settings

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook


SPARK_CONNECTION = "spark_default"


class SparkScanOperator(SparkSubmitOperator):
    """Run spark-submit of application/scan_coordinator_logs.py.

    Credentials are passed as a file of mode 0600, which is removed after the attempt. If the task is killed,
    the next process of its host removes it. A failed scan fails the task with the error of the job.
    """

    def __init__(self, *, cluster: str, **kwargs: Any) -> None:
        super().__init__(
            conn_id=SPARK_CONNECTION, name="kafka-rollout-scan", application="scan_coordinator_logs.py", **kwargs
        )
        self.cluster = cluster
        self._problem = ""

    def execute(self, context: Context) -> Any:
        with (
            errors_for_airflow(),
            tempfile.TemporaryDirectory(prefix="kafka-rollout-spark-", ignore_cleanup_errors=True) as scratch,
        ):
            return self.keep(context, self.scan(context, Path(scratch)), Path(scratch))

    @abstractmethod
    def keep(self, context: Context, result: ScanResult, scratch: Path) -> Any:
        """Store the result; the return value is the task's XCom."""

    def wanted(self, context: Context, request: ScanRequest, scratch: Path) -> ScanRequest:
        """Return what to scan; default: everything, with contents, for every release."""
        return request

    def scan(self, context: Context, scratch: Path) -> ScanResult:
        settings = Settings.from_environment()
        cluster = get_cluster(self.cluster, settings)
        result = scratch / "scan.json"
        with credentials_file(KafkaClusterHook(cluster.name).security(), settings) as security_file:
            request = ScanRequest(
                cluster=cluster.name,
                bootstrap_servers=cluster.bootstrap_servers,
                json_file=result,
                security_file=security_file,
            )
            master = BaseHook.get_connection(SPARK_CONNECTION).host or ""
            job = spark_job(settings, master, scratch)
            self.application = str(job.application)
            self.application_args = self.wanted(context, request, scratch).arguments()
            self.env_vars = dict(job.environment)
            self.conf = dict(job.configuration)
            os.environ["PATH"] = f"{job.submit.parent}{os.pathsep}{os.environ['PATH']}"
            self._submit(context)
        return from_json(ScanResult, json.loads(result.read_text(encoding="utf-8")))

    def _submit(self, context: Context) -> None:
        try:
            super().execute(context)
        except AirflowException as error:
            raise AirflowException(self._problem or str(error)) from error

    def _get_hook(self) -> SparkSubmitHook:
        """Spark's own hook, which reads the output lines of the job; some of them contain the error."""
        hook = super()._get_hook()
        read = hook._process_spark_submit_log
        hook._process_spark_submit_log = lambda itr: read(self._noted(itr))  # type: ignore[method-assign]
        return hook

    def _noted(self, lines: Iterable[Any]) -> Iterator[Any]:
        for line in lines:
            self._problem = problem_in(str(line)) or self._problem
            yield line
