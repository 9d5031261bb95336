"""One DAG for all clusters: every minute, it sends the notifications that are due."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, Param

from kafka_rollout.airflow.common.links import NOTIFICATIONS_DAG, TAG
from kafka_rollout.airflow.operators.notifications import NotifyOperator

DOC = """\
### Notifications about the Kafka clusters

Every minute, this DAG reads the histories of runs and scans of all clusters, also of runs of the command line. It sends
each notification once on each channel of the Airflow Variable `kafka_rollout_notifications` (docs/notifications.md). It
never changes a cluster, and a channel that fails stops no run.

**Test the channels**: trigger this DAG with *Test*. It sends one test notification on each channel, and the task's log
and XCom have the result of each.
"""


def notification_dags() -> dict[str, DAG]:
    """DAG id → DAG: the sender of notifications."""
    with DAG(
        dag_id=NOTIFICATIONS_DAG,
        description="Sends notifications about runs and scans of the Kafka clusters.",
        doc_md=DOC,
        schedule=CronTriggerTimetable("* * * * *", timezone="UTC", run_immediately=timedelta(0)),
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=True,  # without a channel, each run would only take time from the others
        tags=["kafka", TAG, "notifications"],
        params={
            "test": Param(
                False,
                type="boolean",
                title="Test",
                description="Send one test notification on each channel, and nothing else.",
            )
        },
        default_args={"owner": "kafka-platform"},
    ) as dag:
        NotifyOperator(
            task_id="send",
            doc_md="Reads the histories and sends what is due. The task fails if a channel failed.",
            retries=1,  # after a killed worker; a channel that failed is not repeated here
            retry_delay=timedelta(seconds=10),
            execution_timeout=timedelta(minutes=4),
        )
    return {dag.dag_id: dag}
