"""One DAG per cluster of the inventory: upgrades the cluster. Text, form and procedure."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from kafka_rollout.airflow.common.dag_ids import DAG_PREFIX
from kafka_rollout.airflow.graphs.cluster_dags import (
    approvals,
    cluster_dag,
    dags_of_clusters,
    dry_run,
    ledger,
    roll_care,
)
from kafka_rollout.airflow.graphs.procedure import draw
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.planning.request import FinalizePolicy
from kafka_rollout.settings import Settings
from kafka_rollout.steps.procedures.upgrade import UPGRADE

TAGS = ["kafka", "kafka-rollout", "upgrade"]

DOC = """\
### Upgrade of the Kafka cluster {name}

Observes the cluster, plans the way to the target release, asks a person, and rolls one node at a time. Every step
waits for its gate, and a gate that fails asks a person again: wait on, retry or roll back. Finalizing the features is
the point of no return and has an approval of its own.

| | |
|---|---|
| owner | {owner} |
| nodes | {nodes} |
| may approve | {approvers} |

**Trigger** it from here, by `POST /api/v2/dags/{dag_id}/dagRuns`, or by `airflow dags trigger`. A **dry run** ends
with the plan and its findings. With the finalize policy *later* the run ends when the binary is rolled; the same DAG,
run again after the soak, finds nothing to roll and goes on with the features.

If a task **fails**, read its last line: it names the thing and the way out. Clearing the task goes on exactly there.
"""


def build_upgrade(cluster: ClusterSpec, releases: list[str]) -> DAG:
    """The DAG of one cluster."""
    with cluster_dag(
        cluster,
        DAG_PREFIX,
        description=f"Upgrades the Kafka cluster {cluster.name}, one node at a time, each step behind its gate.",
        doc=DOC,
        tags=TAGS,
        params=upgrade_params(cluster, releases),
    ) as dag:
        draw(UPGRADE, cluster)
    return dag


def upgrade_params(cluster: ClusterSpec, releases: list[str]) -> dict[str, Param]:
    """The form: what, how carefully, who."""
    return {
        "target_release": Param(
            releases[-1] if releases else "",
            type="string",
            enum=releases or None,
            title="Target release",
            description="A release of the catalogue. The way to it may lead through another one (KIP-915).",
        ),
        "finalize": Param(
            FinalizePolicy.LATER.form_value,
            type="string",
            enum=[FinalizePolicy.LATER.form_value, FinalizePolicy.AFTER_APPROVAL.form_value],
            values_display={
                FinalizePolicy.LATER.form_value: "later, by another run after the soak",
                FinalizePolicy.AFTER_APPROVAL.form_value: "in this run, after an approval",
            },
            title="Finalize features",
            description="Finalizing is the point of no return.",
        ),
        **dry_run(),
        **roll_care(),
        "snapshot_interval_seconds": Param(
            None,
            type=["null", "integer"],
            minimum=5,
            maximum=3600,
            title="Snapshot interval (seconds)",
            description="Lower the nodes' metadata.log.max.snapshot.interval.ms with the last release step, so that a "
            "snapshot "
            "follows finalizing soon; a later roll sets it back. Empty: wait as long as the nodes' own interval says.",
            section="Gates",
        ),
        **ledger(),
        **approvals(cluster),
    }


def upgrade_dags(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG, one for every file of the inventory."""
    return {dag.dag_id: dag for dag in dags_of_clusters(settings, DAG_PREFIX, build_upgrade, tags=TAGS)}
