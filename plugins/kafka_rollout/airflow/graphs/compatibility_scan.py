"""One DAG a cluster of the inventory: scans its coordinator logs on schedule and tells when a verdict gets worse."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, Param

from kafka_rollout.airflow.common.dag_ids import SCAN_DAG_PREFIX
from kafka_rollout.airflow.graphs.cluster_dags import dags_of_clusters
from kafka_rollout.airflow.notifiers.scan_alert import ScanAlertNotifier
from kafka_rollout.airflow.operators.compatibility_scan import (
    DEPTHS,
    AlertOperator,
    CompatibilityScanOperator,
    not_scanned,
)
from kafka_rollout.airflow.operators.spark_scan import scanning
from kafka_rollout.domain.model.outside_text import escape_markdown
from kafka_rollout.domain.model.topology import DAILY, NEVER, ClusterSpec
from kafka_rollout.settings import Settings

TAGS = ["kafka", "kafka-rollout", "compatibility-scan"]

DOC = """\
### Which releases could load the coordinator logs of the Kafka cluster {name} (KIP-915)

Reads `__consumer_offsets`, `__transaction_state` and `__share_group_state` with a Spark job, record by record, and says
of every release of the catalogue: *loads*, *loads, ignoring records*, *fails at offset o*, or *not loaded*. Nothing is
written to the cluster, and nothing of it is changed.

| | |
|---|---|
| owner | {owner} |
| schedule | {schedule} (UTC; `scan_schedule` of the inventory) |
| asset | `kafka-rollout/{name}/coordinator-log-scan` |

A scan whose verdict is worse than the one before **alerts**, and so does a scan that could not be done: not knowing is
no good news. The page *Kafka rollout* shows the newest scan and its age; the button **Scan** on the task opens its
report. The channel of the alerts is set by the Airflow Variable `kafka_rollout_alert` (docs/operations.md).
"""


def build_scan(cluster: ClusterSpec, releases: list[str]) -> DAG:
    """The DAG of one cluster: its failure is its own, and so is its schedule."""
    with DAG(
        dag_id=f"{SCAN_DAG_PREFIX}{cluster.name}",
        description=f"Which releases could load the coordinator logs of the Kafka cluster {cluster.name}.",
        doc_md=DOC.format(name=cluster.name, owner=escape_markdown(cluster.owner), schedule=cluster.scan_schedule),
        schedule=schedule_of(cluster.scan_schedule),
        catchup=False,
        max_active_runs=1,
        tags=[*TAGS, cluster.name],
        params={
            "releases": Param(
                [],
                type="array",
                items={"type": "string", "enum": releases},
                examples=releases,
                title="Releases",
                description="Which releases to judge; none: every release of the catalogue.",
            ),
            "depth": Param(
                DEPTHS[0],
                type="string",
                enum=list(DEPTHS),
                values_display={
                    "deep": "every field of every record",
                    "live": "also which records are the newest of their key (slower)",
                    "classes": "only types and versions (fastest; sees no broken record)",
                },
                title="Depth",
                description="How far records are looked into.",
            ),
        },
        default_args={"owner": cluster.owner},
    ) as dag:
        scan = CompatibilityScanOperator(
            task_id="scan_coordinator_logs",
            doc_md="A Spark job reads the logs, stores the result in the cluster's history and updates the asset.",
            cluster=cluster.name,
            **{**scanning(), "retries": 3, "retry_delay": timedelta(minutes=1)},
        )
        alert = AlertOperator(
            task_id="alert",
            doc_md="Tells of verdicts that got worse, and of a scan that could not be done.",
            cluster=cluster.name,
            scan_task=scan.task_id,
            trigger_rule="all_done",
            retries=5,
            retry_delay=timedelta(minutes=1),
            execution_timeout=timedelta(minutes=5),
        )
        scan >> alert
    return dag


def schedule_of(text: str) -> CronTriggerTimetable | None:
    """timedelta(0): what is new in the inventory is scanned at its next time, and not at once for the last one."""
    return None if text == NEVER else CronTriggerTimetable(text, timezone="UTC", run_immediately=timedelta(0))


def alert_of_broken(name: str, why: str) -> dict[str, Any]:
    """A cluster whose inventory cannot be read is not scanned: that alerts once a day."""
    return {"schedule": schedule_of(DAILY), "on_failure": ScanAlertNotifier(not_scanned(name, why))}


def compatibility_scan_dags(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG, one for every file of the inventory."""
    dags = dags_of_clusters(settings, SCAN_DAG_PREFIX, build_scan, tags=TAGS, alert=alert_of_broken)
    return {dag.dag_id: dag for dag in dags}
