"""One DAG a cluster of the inventory: changes its feature levels (KIP-584) and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, get_parsing_context
from airflow.sdk.bases.operator import chain

from kafka_rollout.adapters.catalogue import release_names
from kafka_rollout.adapters.inventory import readable_clusters
from kafka_rollout.adapters.settings import Settings
from kafka_rollout.domain.feature_requests import FeatureAction
from kafka_rollout.domain.topology import ClusterSpec
from kafka_rollout.hooks.run_listener import FEATURES_DAG_PREFIX
from kafka_rollout.operators.broken import broken_inventory_dag
from kafka_rollout.operators.features_change import (
    ALWAYS,
    SAFE,
    UNSAFE,
    WHERE_NEEDED,
    ApproveFeaturesOperator,
    FeatureOutcomeOperator,
    FeatureReportOperator,
    LookAgainOperator,
    PlanFeaturesOperator,
    UpdateFeaturesOperator,
)
from kafka_rollout.operators.planning import DryRunOperator, ObserveOperator
from kafka_rollout.operators.roll_groups import PASSED_BY, acting, quick
from kafka_rollout.sensors.gate import GateSensor
from kafka_rollout.steps.gate import GateKind

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
    dag_id = f"{FEATURES_DAG_PREFIX}{cluster.name}"
    with DAG(
        dag_id=dag_id,
        description=f"Changes the feature levels of the Kafka cluster {cluster.name}, and waits for every node.",
        doc_md=DOC.format(
            name=cluster.name,
            owner=cluster.owner,
            dag_id=dag_id,
            nodes=", ".join(f"{node.name} ({node.node_id})" for node in cluster.nodes),
            approvers=", ".join(cluster.approvers) or "everyone who may trigger it",
        ),
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=[*TAGS, cluster.name],
        params=feature_params(cluster, releases),
        default_args={"owner": cluster.owner, "retries": 1, "retry_delay": timedelta(seconds=10)},
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
            description="Whose levels are meant: for *everything down*, or for an update without single features.",
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
            section="How carefully",
        ),
        "dry_run": Param(
            False, type="boolean", title="Dry run", description="End with the plan and all findings; change nothing."
        ),
        "gate_timeout_minutes": Param(
            10,
            type="number",
            exclusiveMinimum=0,
            maximum=7 * 24 * 60,
            title="Gate's time (minutes)",
            description="How long every node may take to report the levels; then a person is asked what to do.",
            section="How carefully",
        ),
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
        "approvers": Param(
            list(cluster.approvers),
            type="array",
            items={"type": "string", "minLength": 1},
            title="Who may approve",
            description=(
                f"User names, one a line, out of the inventory's: {', '.join(cluster.approvers)}."
                if cluster.approvers
                else "User names, one a line; none: everyone who may trigger this DAG."
            ),
            section="Approvals",
        ),
        "approval_timeout_hours": Param(
            24,
            type="number",
            exclusiveMinimum=0,
            maximum=30 * 24,
            title="Time for an answer (hours)",
            description="After this the question fails. Time never approves.",
            section="Approvals",
        ),
    }


def _features(title: str, pattern: str, description: str) -> Param:
    return Param(
        [],
        type="array",
        items={"type": "string", "pattern": pattern},
        title=title,
        description=f"{description} (for *single features*).",
        section="Single features",
    )


def _build_tasks(cluster: ClusterSpec) -> None:
    name: dict[str, Any] = {"cluster": cluster.name}
    observe = ObserveOperator(task_id="observe", doc_md="What runs, and how it is.", **name, **quick())
    plan = PlanFeaturesOperator(
        task_id="plan", doc_md="Every rule of KIP-584, every node; frozen by its hash.", **name, **quick()
    )
    dry_run = DryRunOperator(task_id="dry_run", doc_md="A dry run goes on with the report.", **name, **quick())
    approve = ApproveFeaturesOperator(
        task_id="approve", doc_md="A person approves what changes and who uses it.", **name, **quick()
    )
    update = UpdateFeaturesOperator(
        task_id="update",
        doc_md="metadata.version first on the way up, last on the way down.",
        trigger_rule=PASSED_BY,
        **name,
        **acting(),
    )
    look_again = LookAgainOperator(
        task_id="look_again", doc_md="Did a node with a narrower range join meanwhile (KIP-584)?", **name, **quick()
    )
    gate_finalized = GateSensor(
        task_id="gate_finalized",
        doc_md="Every node reports the new levels.",
        kind=GateKind.FINALIZED,
        **name,
        **quick(),
    )
    verify = GateSensor(
        task_id="verify_metadata_version",
        doc_md="CurrentMetadataVersion of every node, by Prometheus and Jolokia.",
        kind=GateKind.METADATA_VERSION,
        **name,
        **quick(),
    )
    report = FeatureReportOperator(
        task_id="report", doc_md="One HTML page and one JSON file.", trigger_rule="all_done", **name, **quick()
    )
    outcome = FeatureOutcomeOperator(
        task_id="outcome",
        doc_md="Fails unless the run ended as it was asked to.",
        trigger_rule="all_done",
        report_task=report.task_id,
        **name,
        **quick(),
    )
    changing = [approve, update, gate_finalized, look_again, verify]
    chain(observe, plan, dry_run, *changing, report, outcome)
    dry_run.skipped = [task.task_id for task in changing]


def build_all(settings: Settings) -> list[DAG]:
    """A DAG for every inventory file; one that cannot be read keeps no other from its DAG."""
    wanted = get_parsing_context().dag_id
    releases = release_names(settings.include)
    clusters, problems = readable_clusters(settings.clusters)
    dags = [
        broken_inventory_dag(f"{FEATURES_DAG_PREFIX}{path.stem}_unreadable", str(problem), tags=TAGS)
        for path, problem in problems.items()
    ]
    # A task needs its own DAG only.
    return dags + [
        build_features(cluster, releases)
        for cluster in clusters.values()
        if wanted in (None, f"{FEATURES_DAG_PREFIX}{cluster.name}")
    ]


for _dag in build_all(Settings.from_environment()):
    globals()[_dag.dag_id] = _dag
