"""One DAG per cluster: scans its coordinator logs and checks it on schedule, and alerts if something gets worse."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, Param

from kafka_rollout.airflow.common.links import SCAN_DAG_PREFIX, TAG
from kafka_rollout.airflow.graphs.cluster_dags import dags_of_clusters, read_inventories
from kafka_rollout.airflow.operators.compatibility_scan import (
    DEPTHS,
    AlertOperator,
    CompatibilityScanOperator,
    ReleaseCheckOperator,
    scan_failed_alert,
)
from kafka_rollout.airflow.operators.notifications import ScanAlertNotifier
from kafka_rollout.airflow.operators.spark_scan import of_scans
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
| Target of the check | {check} (`check_release` of the inventory) |
| Asset | `kafka-rollout/{name}/coordinator-log-scan` |

After the scan, the task `check_release` makes the checks of `kafka-rollout check` for the target release. So blockers,
deprecated settings and known defects are visible long before an upgrade. Both tasks only read.

The DAG sends an **alert** if a verdict or a result of the check is worse than before, or if the first scan has a
failing verdict, or the first check of a release a blocker. It also sends one when the scan or the check fails, because
the compatibility is then unknown. The page *Kafka rollout* shows the newest scan and check and their age. The buttons
**Scan** and **Check** of the tasks open the reports. docs/notifications.md describes the channels of the alerts.
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
        doc_md=DOC.format(
            name=cluster.name,
            owner=escape_markdown(cluster.owner),
            schedule=cluster.scan_times,
            check=cluster.check_release,
        ),
        schedule=schedule_of(cluster.scan_times),
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
            "check_release": Param(
                None,
                type=["null", "string"],
                enum=[None, *reversed(releases)],
                title="Target release of the check",
                description="Empty: check_release of the inventory, by default the newest release of the catalogue.",
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
        default_args={"owner": cluster.owner, **cluster.tasks},
    ) as dag:
        scan = CompatibilityScanOperator(
            task_id="scan_coordinator_logs",
            doc_md="Reads the logs with a Spark job, stores the result in the scan history and updates the asset.",
            cluster=cluster.name,
            retries=3,
            retry_delay=timedelta(minutes=1),
            execution_timeout=timedelta(hours=2),
            **of_scans(cluster),
        )
        check = ReleaseCheckOperator(
            task_id="check_release",
            doc_md="Checks whether the cluster can move to the target release, as `kafka-rollout check` does.",
            cluster=cluster.name,
            scan_task=scan.task_id,
            trigger_rule="all_done",
            retries=2,
            retry_delay=timedelta(minutes=1),
            execution_timeout=timedelta(minutes=30),
        )
        alert = AlertOperator(
            task_id="alert",
            doc_md="Sends an alert if the scan or the check failed or found something worse than before.",
            cluster=cluster.name,
            scan_task=scan.task_id,
            check_task=check.task_id,
            trigger_rule="all_done",
            retries=5,
            retry_delay=timedelta(minutes=1),
            execution_timeout=timedelta(minutes=5),
        )
        scan >> check >> alert
    return dag


def schedule_of(text: str) -> CronTriggerTimetable | None:
    """Return the schedule. A new cluster is first scanned at its next scheduled time, not immediately."""
    return None if text == NEVER else CronTriggerTimetable(text, timezone="UTC", run_immediately=timedelta(0))


def alert_of_broken(name: str, why: str) -> dict[str, Any]:
    """Return schedule and notifier of a cluster with a broken inventory: it alerts once a day."""
    return {"schedule": schedule_of(DAILY), "on_failure": ScanAlertNotifier(name, scan_failed_alert(why))}


def compatibility_scan_dags(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG, one for every file of the inventory."""
    return dags_of_clusters(read_inventories(settings), SCAN_DAG_PREFIX, build_scan, tags=TAGS, alert=alert_of_broken)
