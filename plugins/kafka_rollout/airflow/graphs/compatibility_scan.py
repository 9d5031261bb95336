"""One DAG per cluster of the inventory: scans its coordinator logs on schedule, and alerts if a verdict gets worse."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, Param

from kafka_rollout.airflow.common.dag_ids import SCAN_DAG_PREFIX, TAG
from kafka_rollout.airflow.graphs.cluster_dags import Inventories, dags_of_clusters
from kafka_rollout.airflow.notifications import ScanAlertNotifier
from kafka_rollout.airflow.operators.compatibility_scan import (
    DEPTHS,
    AlertOperator,
    CompatibilityScanOperator,
    scan_failed_alert,
)
from kafka_rollout.base.outside_text import escape_markdown
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.model.topology import DAILY, NEVER, ClusterSpec

TAGS = ["kafka", TAG, "compatibility-scan"]

DOC = """\
### Releases that can load the coordinator logs of the Kafka cluster {name} (KIP-915)

A Spark job reads every record of `__consumer_offsets`, `__transaction_state` and `__share_group_state`. The result for
each evaluated release is *loads*, *loads, ignoring records*, *fails at offset o*, or *not loaded*. The scan only
reads.

| | |
|---|---|
| Owner | {owner} |
| Schedule | {schedule} (UTC; `scan_schedule` of the inventory) |
| Asset | `kafka-rollout/{name}/coordinator-log-scan` |

The DAG sends an **alert** if a verdict is worse than in the previous scan, or if the first scan of these releases has a
failing verdict. The DAG also sends an alert when a scan
fails, because the compatibility is then unknown. The page *Kafka rollout* shows the newest scan and its age. The button
**Scan** of the task opens the report. docs/notifications.md describes the channels of the alerts.
"""


_DEPTH_LABELS = (
    "all fields of all records",
    "all fields, and which records are current (slower)",
    "only record types and versions (fastest; does not find broken records)",
)


def build_scan(cluster: ClusterSpec, releases: list[str]) -> DAG:
    """Return the DAG of one cluster, with the schedule of its inventory."""
    with DAG(
        dag_id=f"{SCAN_DAG_PREFIX}{cluster.name}",
        description=f"Checks which releases can load the coordinator logs of the Kafka cluster {cluster.name}.",
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
                description=(
                    "Releases to evaluate. Empty: the running release, the releases on its paths, and scan_releases of "
                    "the inventory."
                ),
            ),
            "depth": Param(
                DEPTHS[0],
                type="string",
                enum=list(DEPTHS),
                values_display=dict(zip(DEPTHS, _DEPTH_LABELS, strict=True)),
                title="Depth",
                description="Parts of each record that the scan reads.",
            ),
        },
        default_args={"owner": cluster.owner},
    ) as dag:
        scan = CompatibilityScanOperator(
            task_id="scan_coordinator_logs",
            doc_md="Reads the logs with a Spark job, stores the result in the scan history and updates the asset.",
            cluster=cluster.name,
            retries=3,
            retry_delay=timedelta(minutes=1),
            execution_timeout=timedelta(hours=2),
        )
        alert = AlertOperator(
            task_id="alert",
            doc_md="Sends an alert if a verdict got worse, or if the scan failed.",
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
    """Return the schedule. A new cluster is first scanned at its next scheduled time, not immediately."""
    return None if text == NEVER else CronTriggerTimetable(text, timezone="UTC", run_immediately=timedelta(0))


def alert_of_broken(name: str, why: str) -> dict[str, Any]:
    """Return schedule and notifier of a cluster with a broken inventory: it alerts once a day."""
    return {"schedule": schedule_of(DAILY), "on_failure": ScanAlertNotifier(scan_failed_alert(name, why))}


def compatibility_scan_dags(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG, one for every file of the inventory."""
    return dags_of_clusters(Inventories.read(settings), SCAN_DAG_PREFIX, build_scan, tags=TAGS, alert=alert_of_broken)
