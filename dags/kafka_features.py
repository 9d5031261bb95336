"""One DAG a cluster of the inventory: changes its feature levels (KIP-584) and nothing else."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param
from airflow.sdk.bases.operator import chain

from kafka_rollout.airflow.common.base import RUN_IF_NONE_FAILED, change_task_args, read_task_args
from kafka_rollout.airflow.common.dag_ids import FEATURES_DAG_PREFIX
from kafka_rollout.airflow.graphs.cluster_dags import approvals, cluster_dag, dags_of_clusters, dry_run, gate_timeout
from kafka_rollout.airflow.operators.ending import OutcomeOperator, ReportOperator
from kafka_rollout.airflow.operators.features_change import (
    ALWAYS,
    SAFE,
    UNSAFE,
    WHERE_NEEDED,
    ApproveFeaturesOperator,
    LookAgainOperator,
    PlanFeaturesOperator,
    UpdateFeaturesOperator,
)
from kafka_rollout.airflow.operators.planning import DryRunOperator, ObserveOperator
from kafka_rollout.airflow.sensors.gate import GateSensor
from kafka_rollout.domain.features.requests import FeatureAction
from kafka_rollout.domain.gates.ref import GateKind
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.settings import Settings

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
        _build_tasks(cluster)
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
            SAFE,
            type="string",
            enum=[SAFE, UNSAFE],
            values_display={
                SAFE: "SAFE: refuse where something in use would be lost",
                UNSAFE: "UNSAFE: go on, and say what is lost",
            },
            title="How levels fall",
            section="Gates",
        ),
        **dry_run(),
        **gate_timeout(10, "How long every node may take to report the levels; then a person is asked what to do."),
        "approval": Param(
            ALWAYS,
            type="string",
            enum=[ALWAYS, WHERE_NEEDED],
            values_display={
                ALWAYS: "for every change",
                WHERE_NEEDED: "where something falls, is deleted, or cannot be taken back",
            },
            title="Ask a person",
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


def _build_tasks(cluster: ClusterSpec) -> None:
    name: dict[str, Any] = {"cluster": cluster.name}
    observe = ObserveOperator(task_id="observe", doc_md="What runs, and how it is.", **name, **read_task_args())
    plan = PlanFeaturesOperator(
        task_id="plan", doc_md="Every rule of KIP-584, every node; frozen by its hash.", **name, **read_task_args()
    )
    end_dry_run = DryRunOperator(
        task_id="dry_run", doc_md="A dry run goes on with the report.", **name, **read_task_args()
    )
    approve = ApproveFeaturesOperator(
        task_id="approve", doc_md="A person approves what changes and who uses it.", **name, **read_task_args()
    )
    gate_groups = GateSensor(
        task_id="gate_groups",
        doc_md="Groups that lose their type are converted, and their tombstones written.",
        kind=GateKind.GROUPS,
        trigger_rule=RUN_IF_NONE_FAILED,
        **name,
        **read_task_args(),
    )
    update = UpdateFeaturesOperator(
        task_id="update",
        doc_md="metadata.version first on the way up, last on the way down.",
        trigger_rule=RUN_IF_NONE_FAILED,
        **name,
        **change_task_args(),
    )
    look_again = LookAgainOperator(
        task_id="look_again",
        doc_md="Did a node with a narrower range join meanwhile (KIP-584)?",
        **name,
        **read_task_args(),
    )
    gate_finalized = GateSensor(
        task_id="gate_finalized",
        doc_md="Every node reports the new levels.",
        kind=GateKind.FINALIZED,
        **name,
        **read_task_args(),
    )
    verify = GateSensor(
        task_id="verify_metadata_version",
        doc_md="CurrentMetadataVersion of every node, by Prometheus and Jolokia.",
        kind=GateKind.METADATA_VERSION,
        **name,
        **read_task_args(),
    )
    report = ReportOperator(
        task_id="report", doc_md="One HTML page and one JSON file.", trigger_rule="all_done", **name, **read_task_args()
    )
    outcome = OutcomeOperator(
        task_id="outcome",
        doc_md="Fails unless the run ended as it was asked to.",
        trigger_rule="all_done",
        report_task=report.task_id,
        **name,
        **read_task_args(),
    )
    # A node that the levels keep out is named before a gate waits for it.
    changing = [approve, gate_groups, update, look_again, gate_finalized, verify]
    chain(observe, plan, end_dry_run, *changing, report, outcome)
    end_dry_run.skipped = [task.task_id for task in changing]


for _dag in dags_of_clusters(Settings.from_environment(), FEATURES_DAG_PREFIX, build_features, tags=TAGS):
    globals()[_dag.dag_id] = _dag
