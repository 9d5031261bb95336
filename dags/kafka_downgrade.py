"""One DAG a cluster of the inventory: takes it back to an older release and its levels, gate by gate."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseOperator, Param, TaskGroup
from airflow.sdk.bases.operator import chain

from kafka_rollout.airflow.common.base import RUN_IF_NONE_FAILED, change_task_args, read_task_args
from kafka_rollout.airflow.common.dag_ids import DOWNGRADE_DAG_PREFIX
from kafka_rollout.airflow.graphs.cluster_dags import (
    approvals,
    cluster_dag,
    dags_of_clusters,
    dry_run,
    ledger,
    roll_care,
)
from kafka_rollout.airflow.graphs.offline_groups import offline_group
from kafka_rollout.airflow.graphs.roll_groups import ROLL, VIA, roll_back_group, roll_group
from kafka_rollout.airflow.operators.downgrade import (
    SAFE,
    UNSAFE,
    ApproveLevelsOperator,
    ApproveRollDownOperator,
    InventoryAfterOperator,
    InventoryBeforeOperator,
    PassLevelsOperator,
    PlanDowngradeOperator,
    ReportLossesOperator,
    ScanMetadataLogsOperator,
)
from kafka_rollout.airflow.operators.ending import (
    OutcomeOperator,
    ReportOperator,
    StartLedgerOperator,
    StopLedgerOperator,
)
from kafka_rollout.airflow.operators.features import FinalizeOperator, ProveSnapshotOperator
from kafka_rollout.airflow.operators.planning import DryRunOperator, ObserveOperator
from kafka_rollout.airflow.operators.scan import ScanBeforeRollOperator
from kafka_rollout.airflow.operators.spark_scan import scanning
from kafka_rollout.airflow.sensors.gate import GateSensor
from kafka_rollout.domain.gates.ref import GateKind
from kafka_rollout.domain.model.plan import ReleaseStepPosition
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.planning.downgrade import WhereRefused
from kafka_rollout.settings import Settings
from kafka_rollout.steps.planning.coordinator_logs import SCAN_BEFORE_ROLL

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
        _build_tasks(cluster)
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
            SAFE,
            type="string",
            enum=[SAFE, UNSAFE],
            values_display={
                SAFE: "SAFE: refuse where something real would be lost",
                UNSAFE: "UNSAFE: go on, and say what is lost",
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


def _build_tasks(cluster: ClusterSpec) -> None:
    name: dict[str, Any] = {"cluster": cluster.name}
    observe = ObserveOperator(task_id="observe", doc_md="What runs, and how it is.", **name, **read_task_args())
    plan = PlanDowngradeOperator(
        task_id="plan",
        doc_md="The levels and the way to the target, frozen. Every later task checks its hash.",
        **name,
        **read_task_args(),
    )
    scan = ScanBeforeRollOperator(
        task_id="scan_before_roll",
        doc_md="A Spark job reads the coordinator logs: the older releases will have to load them.",
        file=SCAN_BEFORE_ROLL,
        observe_task=observe.task_id,
        **name,
        **scanning(),
    )
    scan_metadata = ScanMetadataLogsOperator(
        task_id="scan_metadata_logs",
        doc_md="Every node's metadata log and snapshot, replayed by the older releases' own classes.",
        trigger_rule="all_done",  # a scan that could not be done is one finding among others
        **name,
        **_reading(),
    )
    losses = ReportLossesOperator(
        task_id="report_losses",
        doc_md="What the lower metadata.version loses, before the controller is asked anything.",
        **name,
        **_reading(),
    )
    end_dry_run = DryRunOperator(
        task_id="dry_run", doc_md="A dry run goes on with the report.", **name, **read_task_args()
    )
    approve_levels = ApproveLevelsOperator(
        task_id="approve_levels", doc_md="A person approves the levels, with what is lost.", **name, **read_task_args()
    )
    groups = GateSensor(
        task_id="gate_groups",
        doc_md="Groups that lose their type are converted, their tombstones written, and the older releases can load "
        "what is left.",
        kind=GateKind.GROUPS,
        trigger_rule=RUN_IF_NONE_FAILED,
        **name,
        **read_task_args(),
    )
    before = InventoryBeforeOperator(
        task_id="inventory_before",
        doc_md="Topics, offsets, groups, ACLs, configurations, users, quotas.",
        trigger_rule=RUN_IF_NONE_FAILED,
        **name,
        **read_task_args(),
    )
    start_ledger = StartLedgerOperator(
        task_id="start_ledger", doc_md="Live traffic, if the run asks for it.", **name, **change_task_args()
    )
    # A group for the eye only: it folds the boxes of the graph into one and leaves the tasks their short names.
    with TaskGroup("lowering", prefix_group_id=False, tooltip="From the approved levels to logs that can be read."):
        lowering = _lowering(cluster)
    approve_roll = ApproveRollDownOperator(
        task_id="approve_roll",
        doc_md="A person approves the roll, each trim included.",
        trigger_rule=RUN_IF_NONE_FAILED,
        **name,
        **read_task_args(),
    )
    via = roll_group(
        cluster, VIA, ReleaseStepPosition.VIA, "First to a release that ignores newer records (KIP-915).", down=True
    )
    roll = roll_group(
        cluster, ROLL, ReleaseStepPosition.TARGET, "Every node to the target release: brokers, controllers.", down=True
    )
    offline = offline_group(cluster)
    with TaskGroup("proving", prefix_group_id=False, tooltip="Levels, and everything that was there before."):
        proving = _proving(cluster)
    roll_back = roll_back_group(cluster, [*via.deciders, *roll.deciders], down=True)
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
    chain(observe, plan, scan, scan_metadata, losses, end_dry_run, approve_levels, groups, before, start_ledger)
    chain(start_ledger, lowering[0])
    chain(lowering[-1], approve_roll, via.first)
    chain(via.last, roll.first)
    chain(roll.last, offline.first)
    chain(offline.last, proving[0])
    chain(roll.last, roll_back.first)
    chain([proving[-1], offline.undone, roll_back.last], stop_ledger, report, outcome)
    end_dry_run.skipped = [
        *(task.task_id for task in (approve_levels, groups, before, start_ledger, *lowering, approve_roll)),
        *via.task_ids,
        *roll.task_ids,
        *offline.task_ids,
        *(task.task_id for task in proving),
        *roll_back.task_ids,
        stop_ledger.task_id,
    ]


def _lowering(cluster: ClusterSpec) -> list[BaseOperator]:
    """From the approved levels to metadata logs that the older release can read."""
    name: dict[str, Any] = {"cluster": cluster.name}
    lower = FinalizeOperator(
        task_id="lower_features",
        doc_md="metadata.version last.",
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
    pass_levels = PassLevelsOperator(
        task_id="pass_levels", doc_md="Passes by what the plan has no use for.", skipped=[], **name, **read_task_args()
    )
    gate_snapshot = GateSensor(
        task_id="gate_snapshot",
        doc_md="Every node has a snapshot at the new level, behind every record that the older release cannot read.",
        kind=GateKind.SNAPSHOT,
        **name,
        **read_task_args(),
    )
    prove_snapshot = ProveSnapshotOperator(
        task_id="prove_snapshot", doc_md="One is loaded with the target's own classes.", **name, **read_task_args()
    )
    current = GateSensor(
        task_id="gate_metadata_version",
        doc_md="CurrentMetadataVersion of every node, by Prometheus and Jolokia.",
        kind=GateKind.METADATA_VERSION,
        **name,
        **read_task_args(),
    )
    check_logs = GateSensor(
        task_id="check_metadata_logs",
        doc_md="Can the older release read every node's log now, after a trim where it takes one?",
        kind=GateKind.METADATA_LOG,
        **name,
        **_reading(),
    )
    online = [gate_snapshot, prove_snapshot, current, check_logs]
    pass_levels.skipped = [task.task_id for task in online]
    tasks: list[BaseOperator] = [lower, gate_finalized, pass_levels, *online]
    chain(*tasks)
    return tasks


def _proving(cluster: ClusterSpec) -> list[BaseOperator]:
    """All levels on every node, and everything that was there before."""
    name: dict[str, Any] = {"cluster": cluster.name}
    levels = GateSensor(
        task_id="verify_levels",
        doc_md="Every node, on the older release, reports the planned levels.",
        kind=GateKind.LEVELS,
        trigger_rule=RUN_IF_NONE_FAILED,
        **name,
        **read_task_args(),
    )
    metadata_version = GateSensor(
        task_id="verify_metadata_version",
        doc_md="CurrentMetadataVersion of every node, by Prometheus and Jolokia.",
        kind=GateKind.FINAL_METADATA_VERSION,
        **name,
        **read_task_args(),
    )
    after = InventoryAfterOperator(
        task_id="inventory_after", doc_md="Is everything there that was there before?", **name, **read_task_args()
    )
    tasks: list[BaseOperator] = [levels, metadata_version, after]
    chain(*tasks)
    return tasks


def _reading() -> dict[str, Any]:
    """Each node's metadata log takes seconds, and a large cluster has many."""
    return {**read_task_args(), "execution_timeout": timedelta(hours=1)}


for _dag in dags_of_clusters(Settings.from_environment(), DOWNGRADE_DAG_PREFIX, build_downgrade, tags=TAGS):
    globals()[_dag.dag_id] = _dag
