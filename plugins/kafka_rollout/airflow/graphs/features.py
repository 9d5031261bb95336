"""One DAG per cluster of the inventory: changes feature levels (KIP-584). Text, form and procedure."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from kafka_rollout.airflow.common.dag_ids import FEATURES_DAG_PREFIX
from kafka_rollout.airflow.graphs.cluster_dags import approvals, cluster_dag, dags_of_clusters, dry_run, gate_timeout
from kafka_rollout.airflow.graphs.procedure import draw
from kafka_rollout.domain.features.requests import FeatureAction
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.planning.request import ApprovalPolicy, DowngradeType
from kafka_rollout.settings import Settings
from kafka_rollout.steps.procedures.features import FEATURES

TAGS = ["kafka", "kafka-rollout", "features"]

DOC = """\
### Feature levels of the Kafka cluster {name} (KIP-584)

Asks every node which levels it supports, checks what is wanted by every rule of KIP-584, asks the controller for a
second opinion, asks a person, changes the levels, and waits until every node reports them. Nothing is restarted.

| | |
|---|---|
| owner | {owner} |
| nodes | {nodes} |
| may approve | {approvers} |

**Trigger** it from here, by `POST /api/v2/dags/{dag_id}/dagRuns`, or by `airflow dags trigger`. A **dry run** ends
with the plan. What falls, is deleted, or cannot be taken back by Kafka is always asked for, with those who use it.

If a task **fails**, read its last line: it names the thing and the way out. Clearing the task goes on exactly there;
levels that are there already are not sent again.
"""

_FEATURE_AND_LEVEL = r"^[A-Za-z][A-Za-z0-9._-]*:-?[0-9]{1,5}$"
_FEATURE = r"^[A-Za-z][A-Za-z0-9._-]*$"


def build_features(cluster: ClusterSpec, releases: list[str]) -> DAG:
    """The DAG of one cluster."""
    with cluster_dag(
        cluster,
        FEATURES_DAG_PREFIX,
        description=f"Changes the feature levels of the Kafka cluster {cluster.name}, and waits for every node.",
        doc=DOC,
        tags=TAGS,
        params=feature_params(cluster, releases),
    ) as dag:
        draw(FEATURES, cluster)
    return dag


def feature_params(cluster: ClusterSpec, releases: list[str]) -> dict[str, Param]:
    """The form: what, how carefully, who."""
    return {
        "action": Param(
            FeatureAction.UPGRADE_ALL.value,
            type="string",
            enum=[action.value for action in FeatureAction],
            values_display={
                FeatureAction.UPGRADE_ALL.value: "everything up, to the latest stable level that all nodes support",
                FeatureAction.DOWNGRADE_ALL.value: "everything down, to what a release knows",
                FeatureAction.UPDATE.value: "single features, or the levels of a release",
            },
            title="What to do",
            description="kraft.version is never raised by implication: name it if it is meant.",
        ),
        "release_version": Param(
            None,
            type=["null", "string"],
            enum=[None, *releases],
            title="Release",
            description="Whose levels are meant: for 'everything down', or for an update without single features.",
        ),
        "upgrade": _features("Raise or add", _FEATURE_AND_LEVEL, "feature:level, one a line"),
        "downgrade": _features("Lower", _FEATURE_AND_LEVEL, "feature:level, one a line; a level below 1 deletes"),
        "delete": _features("Delete", _FEATURE, "Features whose finalization is taken away, one a line"),
        "downgrade_type": Param(
            DowngradeType.SAFE.value,
            type="string",
            enum=[kind.value for kind in DowngradeType],
            values_display={
                DowngradeType.SAFE.value: "SAFE: refuse if data in use would be lost",
                DowngradeType.UNSAFE.value: "UNSAFE: go on, and say what is lost",
            },
            title="Downgrade type",
            section="Gates",
        ),
        **dry_run(),
        **gate_timeout(
            10, "If a node has not reported the levels by then, the run pauses and asks an approver how to continue."
        ),
        "approval": Param(
            ApprovalPolicy.ALWAYS.value,
            type="string",
            enum=[policy.value for policy in ApprovalPolicy],
            values_display={
                ApprovalPolicy.ALWAYS.value: "for every change",
                ApprovalPolicy.WHERE_NEEDED.value: "where a feature is lowered or deleted, or cannot be undone",
            },
            title="Approval",
            section="Approvals",
        ),
        **approvals(cluster),
    }


def _features(title: str, pattern: str, description: str) -> Param:
    return Param(
        [],
        type="array",
        items={"type": "string", "pattern": pattern},
        title=title,
        description=f"{description} (for 'single features').",
        section="Single features",
    )


def features_dags(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG, one for every file of the inventory."""
    return {dag.dag_id: dag for dag in dags_of_clusters(settings, FEATURES_DAG_PREFIX, build_features, tags=TAGS)}
