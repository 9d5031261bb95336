"""The graph of a roll: a chain of static groups, one a node.

Mapped tasks would roll on past a failed node, or interleave. In a chain a failure stops the roll exactly there, and
clearing goes on exactly there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, TaskGroup
from airflow.sdk.bases.operator import chain

from kafka_rollout.airflow.common.base import RUN_IF_NONE_FAILED, change_task_args, read_task_args
from kafka_rollout.airflow.common.node_task_groups import (
    APPROVE_CANARY,
    GATE_AFTER,
    GATE_BEFORE,
    PASSED,
    REPLACE,
    NodeTaskGroup,
    node_slots,
)
from kafka_rollout.airflow.operators.approvals import ApproveCanaryOperator
from kafka_rollout.airflow.operators.planning import BeginHopOperator
from kafka_rollout.airflow.operators.replace_node import ReplaceNodeOperator
from kafka_rollout.airflow.operators.roll_back import BeginRollBackOperator
from kafka_rollout.airflow.sensors.gate import GateSensor
from kafka_rollout.domain.gates.ref import GateKind
from kafka_rollout.domain.model.plan import ReleaseStepPosition
from kafka_rollout.domain.model.topology import ClusterSpec

VIA = "via_tolerant_release"
ROLL = "roll"
ROLL_BACK = "roll_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollGroup:
    """First and last task of a roll, and the tasks at which a person can choose to roll back."""

    first: BaseOperator
    last: BaseOperator
    deciders: tuple[str, ...]
    task_ids: tuple[str, ...]


def roll_group(
    cluster: ClusterSpec, group: str, position: ReleaseStepPosition, doc: str, *, down: bool = False
) -> RollGroup:
    """All nodes of one release step, one after the other; `down` in the order of a downgrade."""
    slots = node_slots(cluster, group, position, down=down)
    with TaskGroup(group, tooltip=doc, prefix_group_id=True):
        begin = BeginHopOperator(
            task_id="begin",
            cluster=cluster.name,
            slots=slots,
            trigger_rule=RUN_IF_NONE_FAILED,
            doc_md=doc,
            **read_task_args(),
        )
        last = _chain(cluster, begin, slots)
    tasks = tuple(task_id for slot in slots for task_id in slot.task_ids)
    return RollGroup(first=begin, last=last, deciders=tasks, task_ids=_all_ids(begin, slots))


def roll_back_group(cluster: ClusterSpec, deciders: Sequence[str], *, down: bool = False) -> RollGroup:
    """The way back over both release steps: the same gates, the nodes in reverse (`down`: of a downgrade)."""
    doc = "Only when a person decided it: every node that left the old release goes back to it, with the same gates."
    with TaskGroup(ROLL_BACK, tooltip=doc, prefix_group_id=True):
        groups = {
            ReleaseStepPosition.TARGET: TaskGroup(f"from_{ROLL}", tooltip="The way back from the target."),
            ReleaseStepPosition.VIA: TaskGroup(f"from_{VIA}", tooltip="The way back from the tolerant release."),
        }
        slots_of = {
            position: node_slots(cluster, group.group_id or "", position, way_back=True, down=down)
            for position, group in groups.items()
        }
        slots = [slot for found in slots_of.values() for slot in found]
        begin = BeginRollBackOperator(
            task_id="begin",
            cluster=cluster.name,
            slots=slots,
            deciders=deciders,
            trigger_rule="all_done",
            doc_md=doc,
            **read_task_args(),
        )
        last: BaseOperator = begin
        for position, group in groups.items():
            with group:
                last = _chain(cluster, last, slots_of[position])
    return RollGroup(first=begin, last=last, deciders=(), task_ids=_all_ids(begin, slots))


def _all_ids(begin: BaseOperator, slots: Sequence[NodeTaskGroup]) -> tuple[str, ...]:
    return (begin.task_id, *(task_id for slot in slots for task_id in (*slot.task_ids, slot.passed_id)))


def _chain(cluster: ClusterSpec, before: BaseOperator, slots: Sequence[NodeTaskGroup]) -> BaseOperator:
    for slot in slots:
        before = _node_group(cluster, before, slot)
    return before


def _node_group(cluster: ClusterSpec, before: BaseOperator, slot: NodeTaskGroup) -> BaseOperator:
    """Gate, replace, gate: and after the first node the canary's approval, if the run asks for it."""
    name = slot.group_id.rsplit(".", 1)[-1]
    who = (
        "the active controller, rolled last among the controllers"
        if slot.node_id is None
        else f"node {slot.node_id} ({cluster.node(slot.node_id).name})"
    )
    with TaskGroup(name, tooltip=f"Rolls {who}."):
        gate_before = GateSensor(
            task_id=GATE_BEFORE,
            cluster=cluster.name,
            kind=GateKind.BEFORE_STOP,
            slot=slot,
            trigger_rule=RUN_IF_NONE_FAILED,
            doc_md=f"Would stopping {who} leave a partition under its min ISR or without a leader, and is the quorum "
            "safe without it?",
            **read_task_args(),
        )
        replace = ReplaceNodeOperator(
            task_id=REPLACE,
            cluster=cluster.name,
            slot=slot,
            doc_md=f"Findings are looked at again, then {who} is stopped cleanly, replaced and started.",
            **change_task_args(),
        )
        gate_after = GateSensor(
            task_id=GATE_AFTER,
            cluster=cluster.name,
            kind=GateKind.AFTER_START,
            slot=slot,
            doc_md=f"{who.capitalize()}: running release, registered and unfenced, back in every ISR, quorum caught "
            "up, leadership back, several looks in a row; then it soaks.",
            **read_task_args(),
        )
        # A place that the plan does not use is skipped as soon as the release step begins. What follows it must still
        # wait for the places before it, or two nodes are rolled at once: `passed` is never skipped by itself.
        passed = EmptyOperator(
            task_id=PASSED,
            trigger_rule=RUN_IF_NONE_FAILED,
            doc_md="The next node's turn begins here.",
            **read_task_args(),
        )
        chain(before, gate_before, replace, gate_after, passed)
        chain(before, passed)
        if slot.has_canary:
            canary = ApproveCanaryOperator(
                task_id=APPROVE_CANARY,
                cluster=cluster.name,
                slot=slot,
                doc_md="Asked after the first node of the roll, if the run asks for it.",
                **read_task_args(),
            )
            chain(gate_after, canary, passed)
        return passed
