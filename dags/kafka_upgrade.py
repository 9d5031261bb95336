"""One DAG a cluster of the inventory: takes it from the release it runs to a newer one, gate by gate."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, BaseOperator, Param, TaskGroup
from airflow.sdk.bases.operator import chain

from kafka_rollout.airflow.common.base import RUN_IF_NONE_FAILED, change_task_args, read_task_args
from kafka_rollout.airflow.common.dag_ids import DAG_PREFIX
from kafka_rollout.airflow.graphs.cluster_dags import (
    approvals,
    cluster_dag,
    dags_of_clusters,
    dry_run,
    ledger,
    roll_care,
)
from kafka_rollout.airflow.graphs.roll_groups import ROLL, VIA, roll_back_group, roll_group
from kafka_rollout.airflow.operators.approvals import ApproveFinalizeOperator, ApprovePlanOperator
from kafka_rollout.airflow.operators.ending import (
    FinalizeNowOperator,
    OutcomeOperator,
    ReportOperator,
    StartLedgerOperator,
    StopLedgerOperator,
)
from kafka_rollout.airflow.operators.features import CheckFeaturesOperator, FinalizeOperator, ProveSnapshotOperator
from kafka_rollout.airflow.operators.planning import (
    FINALIZE_AFTER_APPROVAL,
    FINALIZE_LATER,
    DryRunOperator,
    ObserveOperator,
    PlanUpgradeOperator,
)
from kafka_rollout.airflow.operators.scan import ScanBeforeRollOperator, ScanForRunOperator, ScanVerdictOperator
from kafka_rollout.airflow.operators.spark_scan import scanning
from kafka_rollout.airflow.sensors.gate import GateSensor
from kafka_rollout.domain.gates.ref import GateKind
from kafka_rollout.domain.model.plan import ReleaseStepPosition
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.settings import Settings
from kafka_rollout.steps.planning.coordinator_logs import SCAN_BEFORE_ROLL
from kafka_rollout.steps.report.run import SCAN_VERDICT

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
        _build_tasks(cluster)
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
            FINALIZE_LATER,
            type="string",
            enum=[FINALIZE_LATER, FINALIZE_AFTER_APPROVAL],
            values_display={
                FINALIZE_LATER: "later, by another run after the soak",
                FINALIZE_AFTER_APPROVAL: "in this run, after an approval",
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


def _build_tasks(cluster: ClusterSpec) -> None:
    name: dict[str, Any] = {"cluster": cluster.name}
    observe = ObserveOperator(task_id="observe", doc_md="What runs, and how it is.", **name, **read_task_args())
    scan = ScanBeforeRollOperator(
        task_id="scan_before_roll",
        doc_md="A Spark job reads the coordinator logs: the releases of the roll will have to load them.",
        file=SCAN_BEFORE_ROLL,
        observe_task=observe.task_id,
        **name,
        **scanning(),
    )
    plan = PlanUpgradeOperator(
        task_id="plan",
        doc_md="The way to the target, frozen. Every later task checks its hash.",
        trigger_rule="all_done",  # a scan that could not be done is one finding among others
        **name,
        **read_task_args(),
    )
    end_dry_run = DryRunOperator(
        task_id="dry_run", doc_md="A dry run goes on with the report.", **name, **read_task_args()
    )
    approve_plan = ApprovePlanOperator(
        task_id="approve_plan",
        doc_md="A person approves plan and findings. Blockers refuse.",
        **name,
        **read_task_args(),
    )
    gate_groups = GateSensor(
        task_id="gate_groups",
        doc_md="Groups of a preview that the next release would not serve are gone.",
        kind=GateKind.GROUPS,
        trigger_rule=RUN_IF_NONE_FAILED,
        **name,
        **read_task_args(),
    )
    start_ledger = StartLedgerOperator(
        task_id="start_ledger",
        doc_md="Live traffic, if the run asks for it.",
        trigger_rule=RUN_IF_NONE_FAILED,
        **name,
        **change_task_args(),
    )
    via = roll_group(
        cluster, VIA, ReleaseStepPosition.VIA, "First to a release that tolerates newer records (KIP-915)."
    )
    roll = roll_group(cluster, ROLL, ReleaseStepPosition.TARGET, "Every node to the target release, one at a time.")
    # A group for the eye only: it folds ten boxes of the graph into one and leaves the tasks their short names.
    with TaskGroup("finalizing", prefix_group_id=False, tooltip="From the rolled binary to proven levels."):
        approve_finalize, first, last, finalizing_ids = _finalizing(cluster)
    roll_back = roll_back_group(cluster, [*via.deciders, *roll.deciders, approve_finalize.task_id])
    stop_ledger = StopLedgerOperator(
        task_id="stop_ledger",
        doc_md="Acknowledged against consumed.",
        trigger_rule="all_done",
        **name,
        **change_task_args(),
    )
    report = ReportOperator(
        task_id="report", doc_md="One HTML page and one JSON file.", trigger_rule="all_done", **name, **read_task_args()
    )
    outcome = OutcomeOperator(
        task_id="outcome",
        doc_md="Fails unless the run ended as it was asked to.",
        trigger_rule="all_done",
        report_task=report.task_id,
        ledger_task=stop_ledger.task_id,
        **name,
        **read_task_args(),
    )
    chain(observe, scan, plan, end_dry_run, approve_plan, gate_groups, start_ledger, via.first)
    chain(via.last, roll.first)
    chain(roll.last, first)
    chain([roll.last, approve_finalize], roll_back.first)
    chain([last, roll_back.last], stop_ledger, report, outcome)
    end_dry_run.skipped = [
        approve_plan.task_id,
        gate_groups.task_id,
        start_ledger.task_id,
        *via.task_ids,
        *roll.task_ids,
        *finalizing_ids,
        *roll_back.task_ids,
        stop_ledger.task_id,
    ]


def _finalizing(
    cluster: ClusterSpec,
) -> tuple[BaseOperator, BaseOperator, BaseOperator, list[str]]:
    """From the rolled binary to proven levels: the approval, the first task, the last, all their ids."""
    name: dict[str, Any] = {"cluster": cluster.name}
    check_features = CheckFeaturesOperator(
        task_id="check_features",
        doc_md="Does every node support the levels to be finalized (KIP-584)?",
        trigger_rule=RUN_IF_NONE_FAILED,
        **name,
        **read_task_args(),
    )
    scan = ScanForRunOperator(
        task_id="scan_coordinator_logs",
        doc_md="A Spark job reads what lies in the coordinator logs now.",
        file=SCAN_VERDICT,
        **name,
        **scanning(),
    )
    scan_verdict = ScanVerdictOperator(
        task_id="scan_verdict", doc_md="Could the previous release still load them?", **name, **read_task_args()
    )
    finalize_now = FinalizeNowOperator(
        task_id="finalize_now",
        doc_md="The policy 'later' ends a run that rolled here.",
        skipped=[],
        **name,
        **read_task_args(),
    )
    approve_finalize = ApproveFinalizeOperator(
        task_id="approve_finalize",
        doc_md="The point of no return.",
        scan_task=scan_verdict.task_id,
        **name,
        **read_task_args(),
    )
    finalize = FinalizeOperator(
        task_id="finalize",
        doc_md="metadata.version first.",
        trigger_rule=RUN_IF_NONE_FAILED,
        **name,
        **change_task_args(),
    )
    gate_finalized = GateSensor(
        task_id="gate_finalized",
        doc_md="Every node reports the new levels.",
        kind=GateKind.FINALIZED,
        **name,
        **read_task_args(),
    )
    gate_snapshot = GateSensor(
        task_id="gate_snapshot",
        doc_md="Every node has a snapshot with the new metadata.version.",
        kind=GateKind.SNAPSHOT,
        **name,
        **read_task_args(),
    )
    prove_snapshot = ProveSnapshotOperator(
        task_id="prove_snapshot", doc_md="One is loaded with the target's own classes.", **name, **read_task_args()
    )
    verify = GateSensor(
        task_id="verify_metadata_version",
        doc_md="CurrentMetadataVersion of every node, by Prometheus and Jolokia.",
        kind=GateKind.METADATA_VERSION,
        **name,
        **read_task_args(),
    )
    after_decision = [approve_finalize, finalize, gate_finalized, gate_snapshot, prove_snapshot, verify]
    tasks: list[BaseOperator] = [check_features, scan, scan_verdict, finalize_now, *after_decision]
    chain(*tasks)
    finalize_now.skipped = [task.task_id for task in after_decision]
    return approve_finalize, check_features, verify, [task.task_id for task in tasks]


for _dag in dags_of_clusters(Settings.from_environment(), DAG_PREFIX, build_upgrade, tags=TAGS):
    globals()[_dag.dag_id] = _dag
