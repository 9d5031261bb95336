"""The graph of an offline downgrade: its steps in a chain, a gate for each node, and the way back from the backups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, TaskGroup
from airflow.sdk.bases.operator import chain

from kafka_rollout.airflow.common.base import RUN_IF_NONE_FAILED, change_task_args, read_task_args
from kafka_rollout.airflow.common.node_task_groups import PASSED
from kafka_rollout.airflow.operators.offline import BeginOfflineOperator, OfflineStepOperator, UndoOfflineOperator
from kafka_rollout.airflow.sensors.offline_gate import OfflineGateSensor
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.steps.offline.order import OfflineStep

OFFLINE = "offline"
_DOC = {
    OfflineStep.STOP_ALL: "Everything is looked at once more; then brokers first, then controllers.",
    OfflineStep.CHOOSE_LOG: "The furthest log of a majority of voters: it holds every committed record.",
    OfflineStep.WRITE_SNAPSHOT: "The chosen log's end at the planned level, loaded by the target's own classes.",
    OfflineStep.INSTALL_SNAPSHOT: "On every node in the place of its metadata log, backups first.",
    OfflineStep.INSTALL_BINARIES: "The next start of every node is on the target release.",
    OfflineStep.START_CONTROLLERS: "They form a quorum at the planned level before any other node starts.",
    OfflineStep.START_BROKERS: "From here on there is no undo.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineGroup:
    """`last` is done when all nodes are back, or the plan does not go offline; `undone` when a person had everything
    taken back, or nobody wanted that. `deciders` are the tasks at which a person can choose it.
    """

    first: BaseOperator
    last: BaseOperator
    undone: BaseOperator
    deciders: tuple[str, ...]
    task_ids: tuple[str, ...]


def offline_group(cluster: ClusterSpec) -> OfflineGroup:
    """All steps of an offline downgrade; passed by where the plan is no offline one."""
    name: dict[str, Any] = {"cluster": cluster.name}
    doc = (
        "Only where released Kafka refuses to lower metadata.version: all nodes stopped, a snapshot at the lower level."
    )
    with TaskGroup(OFFLINE, tooltip=doc, prefix_group_id=True):
        begin = BeginOfflineOperator(
            task_id="begin", trigger_rule=RUN_IF_NONE_FAILED, doc_md=doc, **name, **read_task_args()
        )
        steps = [
            OfflineStepOperator(task_id=step.value, step=step, doc_md=_DOC[step], **name, **_long())
            for step in OfflineStep
        ]
        gates = _gates(cluster, way_back=False)
        passed = EmptyOperator(
            task_id=PASSED, trigger_rule=RUN_IF_NONE_FAILED, doc_md="All nodes are back.", **read_task_args()
        )
        chain(begin, *steps, *gates, passed)
        chain(begin, passed)
        begin.skipped = [task.task_id for task in (*steps, *gates)]
        deciders = tuple(task.task_id for task in steps)
        with TaskGroup("undo", tooltip="Only when a person decided it: everything back from the backups."):
            undo = UndoOfflineOperator(
                task_id="put_back",
                deciders=deciders,
                trigger_rule="all_done",
                doc_md="Every node's metadata log from its backup, the old release, all nodes started.",
                **name,
                **_long(),
            )
            back = _gates(cluster, way_back=True)
            undone = EmptyOperator(
                task_id="done", trigger_rule=RUN_IF_NONE_FAILED, doc_md="Nothing is left to undo.", **read_task_args()
            )
            chain(passed, undo, *back, undone)
            undo.skipped = [task.task_id for task in back]
    tasks = (begin, *steps, *gates, passed, undo, *back, undone)
    return OfflineGroup(
        first=begin, last=passed, undone=undone, deciders=deciders, task_ids=tuple(task.task_id for task in tasks)
    )


def _gates(cluster: ClusterSpec, *, way_back: bool) -> list[BaseOperator]:
    """Controllers first, as they are started."""
    return [
        OfflineGateSensor(
            task_id=f"{'gate_back' if way_back else 'gate_after'}_{node.name}",
            cluster=cluster.name,
            kafka_node=node.node_id,
            way_back=way_back,
            doc_md=f"{node.name}: running release, registered and unfenced, back in every ISR, quorum caught up, "
            "leadership back.",
            **read_task_args(),
        )
        for node in cluster.controllers_first
    ]


def _long() -> dict[str, Any]:
    """A large metadata log takes its time to be read and copied."""
    return {**change_task_args(), "execution_timeout": timedelta(hours=3)}
