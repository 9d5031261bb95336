"""The scan of coordinator logs as an operator, for everybody's DAGs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.airflow.common.any_cluster import AnyCluster
from kafka_rollout.airflow.operators.spark_scan import ScanSubmitOperator
from kafka_rollout.base.system.files import read_regular
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ScanRequest, ScanResult
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Release

if TYPE_CHECKING:
    from kafka_rollout.client.security.client_security import ClientSecurity

PUBLIC = ("KafkaCoordinatorLogScanOperator",)


class KafkaCoordinatorLogScanOperator(ScanSubmitOperator):
    """Find out with Spark which releases can load the coordinator logs of a cluster (KIP-915).

    `kafka_cluster_conn_id` or `cluster`: as above. `spark_conn_id`: Connection of the Spark master, in client mode.
    `releases`: those to evaluate, by default all of the catalogue. `must_load`: the task fails unless it is proved that
    each of these releases loads the logs. `output_path`: a folder, or a URL with a Connection such as
    `s3://conn@bucket/scans`, that gets the tables as Parquet, `scan.json` and `scan.html`. `conf`, `py_files`,
    `archives`, `executor_memory` and the other arguments are those of SparkSubmitOperator; `conf` wins over what the
    job sets itself, except what protects credentials.

    XCom: `verdicts` (release → `loads`, `fails`, …), `records`, `partitions` and `output`, the URL of the folder.
    """

    template_fields: Sequence[str] = (
        *ScanSubmitOperator.template_fields,
        "kafka_cluster_conn_id",
        "cluster",
        "releases",
        "must_load",
        "output_path",
        "conf_of_user",
    )

    def __init__(
        self,
        *,
        kafka_cluster_conn_id: str | None = None,
        cluster: str | None = None,
        releases: Sequence[str] = (),
        must_load: Sequence[str] = (),
        output_path: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kafka_cluster_conn_id = kafka_cluster_conn_id
        self.cluster = cluster
        self.releases = list(releases)
        self.must_load = list(must_load)
        self.output_path = output_path
        self.place()  # a wrong combination is an error of the DAG file

    def place(self) -> AnyCluster:
        """Return the cluster. Raises UserError as AnyCluster."""
        return AnyCluster.of(self.kafka_cluster_conn_id, self.cluster)

    def source(self, settings: Settings) -> tuple[str, str, ClientSecurity]:
        return self.place().source(settings)

    def wanted(self, context: Context, request: ScanRequest, scratch: Path) -> ScanRequest:
        catalogue = get_catalogue()
        named = [catalogue.get(Release.parse(one)).release for one in (*self.releases, *self.must_load)]
        chosen = tuple(dict.fromkeys(named)) if self.releases else ()
        return replace(request, releases=chosen, parquet=scratch / "parquet" if self.output_path else None)

    def keep(self, context: Context, result: ScanResult, scratch: Path) -> dict[str, Any]:
        output = None if self.output_path is None else self._write(self.output_path, result, scratch)
        for release, verdict in result.standing.items():
            self.log.info("%s: %s", release, verdict)
        needed = [Release.parse(one) for one in self.must_load]
        lacking = [
            f"{release} ({verdict})"
            for release in needed
            if (verdict := result.standing.get(release, LoadVerdict.UNKNOWN)).blocks or verdict is LoadVerdict.UNKNOWN
        ]
        if lacking:
            raise AirflowFailException(f"It is not proved that {', '.join(lacking)} can load the coordinator logs.")
        return {
            "verdicts": {str(release): str(verdict) for release, verdict in result.standing.items()},
            "records": result.records,
            "partitions": len(result.logs),
            "output": output,
        }

    def _write(self, output_path: str, result: ScanResult, scratch: Path) -> str:
        """Copy the files into the folder; return its URL."""
        from airflow.sdk import ObjectStoragePath

        from kafka_rollout.coordinator_logs.page.report import render_scan

        folder = ObjectStoragePath(output_path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scan.json").write_bytes(read_regular(scratch / "scan.json"))
        (folder / "scan.html").write_bytes(render_scan(result, get_catalogue()).encode())
        for table in sorted((scratch / "parquet").rglob("*.parquet")):
            target = folder / table.relative_to(scratch / "parquet").as_posix()
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(read_regular(table))
        return str(folder)
