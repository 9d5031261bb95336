"""One DAG per cluster of the inventory: downgrades the cluster. Text, form and procedure."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from kafka_rollout.airflow.common.dag_ids import DOWNGRADE_DAG_PREFIX
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
from kafka_rollout.domain.planning.downgrade import WhereRefused
from kafka_rollout.domain.planning.request import DowngradeType
from kafka_rollout.settings import Settings
from kafka_rollout.steps.procedures.downgrade import DOWNGRADE

TAGS = ["kafka", "kafka-rollout", "downgrade"]

DOC = """\
### Downgrade of the Kafka cluster {name}

Asks what an older release could still read, says what a lower metadata.version would lose, asks a person, lowers the
feature levels (metadata.version last), waits until every node carries them and has written a snapshot, asks again, and
rolls the binary down: brokers first, then controllers, the active one last.

| | |
|---|---|
| owner | {owner} |
| nodes | {nodes} |
| may approve | {approvers} |

**Trigger** it from here, by `POST /api/v2/dags/{dag_id}/dagRuns`, or by `airflow dags trigger`. A **dry run** ends
with the plan, the scans and the loss report. **SAFE** refuses where anything real would be lost; **UNSAFE** goes on and
says what. Where released Kafka refuses a lower metadata.version, the run **stops**, or goes on **offline**: with all
nodes stopped, after an approval that shows the outage.

If a task **fails**, read its last line: it names the thing and the way out. Clearing the task goes on exactly there.
"""


def build_downgrade(cluster: ClusterSpec, releases: list[str]) -> DAG:
    """The DAG of one cluster."""
    with cluster_dag(
        cluster,
        DOWNGRADE_DAG_PREFIX,
        description=f"Takes the Kafka cluster {cluster.name} back to an older release, each step behind its gate.",
        doc=DOC,
        tags=TAGS,
        params=downgrade_params(cluster, releases),
    ) as dag:
        draw(DOWNGRADE, cluster)
    return dag


def downgrade_params(cluster: ClusterSpec, releases: list[str]) -> dict[str, Param]:
    """The form: what, how carefully, who."""
    return {
        "target_release": Param(
            None,  # every release is wrong for somebody: it has to be chosen
            type="string",
            enum=releases or None,
            title="Target release",
            description="The older release. The way to it may lead through another one (KIP-915).",
        ),
        "target_level": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Target metadata.version",
            description="A number, such as 25 for 4.0-IV3. Empty: the highest that the target release knows, and not "
            "above the present one.",
        ),
        "downgrade_type": Param(
            DowngradeType.SAFE.value,
            type="string",
            enum=[kind.value for kind in DowngradeType],
            values_display={
                DowngradeType.SAFE.value: "SAFE: refuse where something real would be lost",
                DowngradeType.UNSAFE.value: "UNSAFE: go on, and say what is lost",
            },
            title="Downgrade type",
            description="KIP-1155's types. The loss report says what would be lost before anything is changed.",
        ),
        "where_refused": Param(
            WhereRefused.STOP.value,
            type="string",
            enum=[where.value for where in WhereRefused],
            values_display={
                WhereRefused.STOP.value: "stop, with nothing changed",
                WhereRefused.OFFLINE.value: "go on offline: all nodes are stopped, after an approval",
            },
            title="If Kafka refuses",
            description="Released Kafka lowers metadata.version only where no level in between changed metadata.",
        ),
        **dry_run(),
        **roll_care(),
        **ledger(),
        **approvals(cluster),
    }


def downgrade_dags(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG, one for every file of the inventory."""
    return {dag.dag_id: dag for dag in dags_of_clusters(settings, DOWNGRADE_DAG_PREFIX, build_downgrade, tags=TAGS)}
