"""The Spark job that scans the coordinator logs, as a task: also before the plan of a run, and before its point of no
return.
"""

from __future__ import annotations

import os
import re
import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from kafka_rollout.airflow.common.any_cluster import AnyCluster
from kafka_rollout.airflow.common.base import (
    cluster_ports,
    errors_for_airflow,
    frozen_plan,
    record_step,
    request_in,
    skip_if,
)
from kafka_rollout.airflow.common.links import ScanLink
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.scan import ScanRequest, ScanResult
from kafka_rollout.model.topology import SPARK_CONNECTION, ClusterSpec
from kafka_rollout.observation.planned_coordinators import planned_group_coordinator
from kafka_rollout.procedure.step import ScanStep

if TYPE_CHECKING:
    from kafka_rollout.client.security.client_security import ClientSecurity

_MASTER = re.compile(r"local(\[.+\])?|yarn|[a-z0-9+.-]+://.+")


def master_of(connection: Any) -> str:
    """Return the Spark master of a connection, as SparkSubmitHook reads it.

    Raises UserError without one, and for the deploy mode cluster: the driver would not have the files of the worker.
    """
    extra = connection.extra_dejson
    if isinstance(extra, dict) and extra.get("deploy-mode") == "cluster":
        raise UserError(
            f"The Airflow connection {connection.conn_id} has the deploy mode cluster, and the driver of a scan writes "
            "its result to this worker.",
            remedy='Set "deploy-mode" of its extra field to client.',
        )
    kind, host, port = connection.conn_type, connection.host or "", connection.port
    master = host if not host or (kind == "spark" and ("://" in host or not port)) else f"{kind}://{host}"
    if not _MASTER.fullmatch(master):
        raise UserError(
            f"The Airflow connection {connection.conn_id} names no Spark master (host: {host or 'empty'}).",
            remedy="Set its host to spark://HOST and its port, or to local[2]. As "
            f"AIRFLOW_CONN_{str(connection.conn_id).upper()}, local[2] must be written as JSON: "
            '{"conn_type": "spark", "host": "local[2]"}.',
        )
    return f"{master}:{port}" if port else master


class ScanSubmitOperator(SparkSubmitOperator):
    """Run spark-submit of application/scan_coordinator_logs.py.

    `spark_conn_id`: Connection of the Spark master. `conf` wins over the job's own configuration
    (`with_settings_of_user`); the other arguments are those of SparkSubmitOperator.

    Credentials are passed as a file of mode 0600, which is removed after the attempt. If the task is killed,
    the next process of its host removes it. A failed scan fails the task with the error of the job.
    """

    def __init__(
        self, *, spark_conn_id: str = SPARK_CONNECTION, conf: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(
            conn_id=spark_conn_id, name="kafka-rollout-scan", application="scan_coordinator_logs.py", **kwargs
        )
        self.spark_conn_id = spark_conn_id
        self.conf_of_user = dict(conf or {})

    def execute(self, context: Context) -> Any:
        with (
            errors_for_airflow(),
            tempfile.TemporaryDirectory(prefix="kafka-rollout-spark-", ignore_cleanup_errors=True) as scratch,
        ):
            return self.keep(context, self.scan(context, Path(scratch)), Path(scratch))

    @abstractmethod
    def keep(self, context: Context, result: ScanResult, scratch: Path) -> Any:
        """Store the result; the return value is the task's XCom."""

    @abstractmethod
    def source(self, settings: Settings) -> tuple[str, str, ClientSecurity]:
        """Return the name of the cluster, its bootstrap servers and its credentials."""

    def wanted(self, context: Context, request: ScanRequest, scratch: Path) -> ScanRequest:
        """Return what to scan; default: everything, with contents, for every release."""
        return request

    def scan(self, context: Context, scratch: Path) -> ScanResult:
        from kafka_rollout.client.security.carried_security import credentials_file
        from kafka_rollout.coordinator_logs.spark.submit import prepare_job, read_without_spark, with_settings_of_user

        settings = Settings.from_environment()
        cluster, bootstrap_servers, security = self.source(settings)
        with credentials_file(settings.home, security) as security_file:
            request = ScanRequest(
                cluster=cluster,
                bootstrap_servers=bootstrap_servers,
                json_file=scratch / "scan.json",
                security_file=security_file,
                spark_from_bytes=settings.spark_from_bytes,
            )
            request = self.wanted(context, request, scratch)
            small = prepare_job(request, settings, settings.spark_master, scratch)
            if (result := read_without_spark(small, self.log.info)) is not None:
                return result
            job = prepare_job(request, settings, self._master(), scratch)
            self.application = str(job.application)
            self.application_args = list(job.arguments)
            self.env_vars = dict(job.environment)
            self.conf = with_settings_of_user(job.configuration, self.conf_of_user)
            os.environ["PATH"] = f"{job.submit.parent}{os.pathsep}{os.environ['PATH']}"
            try:
                super().execute(context)
            except AirflowException as error:
                raise AirflowException(job.problem() or str(error)) from error
        return job.result()

    def _master(self) -> str:
        """Return the Spark master. Raises UserError without a Connection that names one."""
        try:
            return master_of(BaseHook.get_connection(self.spark_conn_id))
        except AirflowNotFoundException:
            raise UserError(
                f"There is no Airflow Connection {self.spark_conn_id}, and these logs need Spark.",
                remedy=f'Add it: airflow connections add {self.spark_conn_id} --conn-json \'{{"conn_type": "spark", '
                '"host": "local[2]"}\'.',
            ) from None


class SparkScanOperator(ScanSubmitOperator):
    """A scan of a cluster of the inventory."""

    def __init__(self, *, cluster: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster

    def source(self, settings: Settings) -> tuple[str, str, ClientSecurity]:
        return AnyCluster(cluster=self.cluster).source(settings)


def of_scans(cluster: ClusterSpec) -> dict[str, Any]:
    """Return the arguments of the scans of a cluster, as its inventory has them."""
    own_pool = {} if cluster.scan_pool is None else {"pool": cluster.scan_pool}
    return {"spark_conn_id": cluster.spark_connection_id, "conf": cluster.spark_conf, **own_pool}


def page_of(name: str) -> str:
    """Return the name of the page of a scan result."""
    return str(PurePosixPath(name).with_suffix(".html"))


class ScanForRunOperator(SparkScanOperator):
    """Scan, and store result and page in the run as `file` (and .html)."""

    operator_extra_links = (ScanLink(),)

    def __init__(self, *, step: ScanStep, has_plan: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.file = step.scan
        self.has_plan = has_plan
        self.new_group_coordinator: bool | None = None

    def wanted(self, context: Context, request: ScanRequest, scratch: Path) -> ScanRequest:
        return replace(request, new_group_coordinator=self.new_group_coordinator)

    def execute(self, context: Context) -> Any:
        with (
            cluster_ports(self.cluster, context) as ports,
            record_step(ports.run, self.task_id, context, begins=True),
        ):
            plan = frozen_plan(ports, context) if self.has_plan else None
            request = request_in(context)
            skip_if(self.step.skip(plan, request, ports.run.events()))
            self.new_group_coordinator = planned_group_coordinator(ports, request.releases_ahead(plan))
            ports.run.detach(self.file)  # the result of an earlier attempt must not be used
            return super().execute(context)

    def keep(self, context: Context, result: ScanResult, scratch: Path) -> dict[str, Any]:
        from kafka_rollout.coordinator_logs.page.report import render_scan

        with cluster_ports(self.cluster, context) as ports:
            ports.run.attach_page(page_of(self.file), render_scan(result, ports.catalogue))
            ports.run.attach(self.file, result)
            where = ports.run.location(self.file)
        self.log.info("%s records in %s partitions: %s", result.records, len(result.logs), where)
        return {"records": result.records, "partitions": len(result.logs), "file": where}
