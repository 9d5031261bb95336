"""Scans of coordinator logs by the Spark job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.composition.clusters import get_catalogue
from kafka_rollout.coordinator_logs.scan import ScanRequest, ScanResult
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.planning.release_path import relevant_releases
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.reported import identify_release

if TYPE_CHECKING:
    from kafka_rollout.kafka.client.security.client_security import ClientSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJob:
    """Arguments of spark-submit for the job: its script, environment variables and Spark configuration."""

    submit: Path
    application: Path
    environment: Mapping[str, str]
    configuration: Mapping[str, str]


def spark_job(settings: Settings, master: str, scratch: Path) -> SparkJob:
    """Return the arguments for a caller that runs spark-submit itself. `scratch`: folder for files of the driver."""
    from kafka_rollout.coordinator_logs.spark import submit as spark_submit

    return SparkJob(
        submit=spark_submit.spark_submit(),
        application=spark_submit.APPLICATION,
        environment=spark_submit.environment(settings),
        configuration=spark_submit.configuration(master, scratch),
    )


def problem_in(line: str) -> str:
    """Return the error in a line of the job's output; empty if there is none."""
    from kafka_rollout.coordinator_logs.spark import submit as spark_submit

    return spark_submit.problem_in(line)


def submit_scan(
    request: ScanRequest, settings: Settings, *, master: str | None, on_progress: Callable[[str], None]
) -> tuple[int, ScanResult]:
    """Run the job and return (exit code 0 or 3, result). Raises the error that the job reports."""
    from kafka_rollout.coordinator_logs.spark.submit import submit

    return submit(request, settings, master=master, on_progress=on_progress)


def releases_to_scan(cluster: ClusterSpec, settings: Settings) -> tuple[Release, ...]:
    """Return the releases that a scheduled scan evaluates; all of the catalogue if no node reports its release."""
    from kafka_rollout.nodes.metrics import NodeMetricsReader

    catalogue = get_catalogue(settings)
    reader = NodeMetricsReader(
        identify=lambda version: identify_release(version, catalogue, cluster.apache_releases).release,
        names=cluster.metrics,
    )

    def read(node: NodeSpec) -> Release | None:
        try:
            return reader.read(node).release
        except TransientError:
            return None

    with ThreadPoolExecutor(max_workers=8) as pool:
        running = {release for release in pool.map(read, cluster.nodes) if release is not None}
    return relevant_releases(catalogue, running, map(Release.parse, cluster.scan_releases))


def scan_cluster(
    cluster: ClusterSpec,
    settings: Settings,
    *,
    security: ClientSecurity | None,
    json_file: Path,
    on_progress: Callable[[str], None],
) -> ScanResult:
    """Scan all coordinator logs of a running cluster. The result is also written to `json_file`."""
    from kafka_rollout.coordinator_logs.spark.submit import scan_command

    _, result = scan_command(cluster, settings, security=security, json_file=json_file, on_progress=on_progress)
    return result


def check_log_dirs(log_dirs: Sequence[Path], topics: Sequence[str]) -> None:
    """Raise UserError for a directory that contains no partition of the topics, or cannot be read."""
    from kafka_rollout.coordinator_logs.reading.directories import partition_folders

    partition_folders(log_dirs, topics)


def stop_on_sigterm() -> AbstractContextManager[None]:
    """Let SIGTERM raise in this process, so that the Spark job is stopped and files are removed."""
    from kafka_rollout.base.system.signals import interrupt_on_sigterm

    return interrupt_on_sigterm()
