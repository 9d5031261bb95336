"""The graph of a procedure: one task a step, one task group a section or a node.

The graph is drawn from the inventory before anything is observed, and the plan is made after it. Mapped tasks would
continue past a failed node, or interleave nodes. In a chain of static groups a failure stops the run exactly there, and
a cleared task continues there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, TaskGroup
from airflow.sdk.bases.operator import chain

from kafka_rollout.airflow.common.base import PLAN_TASK
from kafka_rollout.airflow.common.node_task_groups import NodeTaskGroup, node_slots
from kafka_rollout.airflow.operators.approvals import ApprovalOperator, ApproveCanaryOperator
from kafka_rollout.airflow.operators.begin_release_step import BeginReleaseStepOperator
from kafka_rollout.airflow.operators.ending import (
    OutcomeOperator,
    ReportOperator,
    StartLedgerOperator,
    StopLedgerOperator,
)
from kafka_rollout.airflow.operators.replace_node import ReplaceNodeOperator
from kafka_rollout.airflow.operators.roll_back import BeginRollBackOperator
from kafka_rollout.airflow.operators.scan import ScanForRunOperator
from kafka_rollout.airflow.operators.step import DecidedStepOperator, operator_for
from kafka_rollout.airflow.sensors.gate import GateSensor
from kafka_rollout.airflow.sensors.offline_gate import OfflineGateSensor
from kafka_rollout.domain.model.plan import ReleaseStepPosition
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.steps.step import EachNode, Procedure, Reaction, Section, Service, Step, matches


def draw(procedure: Procedure, cluster: ClusterSpec) -> None:
    """Add the tasks of the procedure to the DAG that is being defined."""
    drawing = _Drawing(cluster=cluster)
    for part in procedure.parts:
        drawing.add(part)
    for task_id, step in drawing.steps.items():
        if step.jump is not None:
            drawing.tasks[task_id].skipped = drawing.ids_after(task_id, past=step.jump.past)


@dataclass(slots=True, kw_only=True)
class _Drawing:
    """`last`: the task that the next step follows. `decided`: last tasks of the sections that run on a decision.
    `deciders`: tasks at which an approver can choose to roll back; `rolled`: the last ones of them."""

    cluster: ClusterSpec
    tasks: dict[str, Any] = field(default_factory=dict)  # in the order of the procedure
    steps: dict[str, Step] = field(default_factory=dict)
    last: BaseOperator | None = None
    decided: list[BaseOperator] = field(default_factory=list)
    deciders: list[str] = field(default_factory=list)
    rolled: list[BaseOperator] = field(default_factory=list)

    def add(self, part: Step | Section) -> None:
        if isinstance(part, Step):
            self._follow(self._task(part))
        else:
            with TaskGroup(part.id, tooltip=part.doc, prefix_group_id=part.prefixes):
                self._section(part)

    def ids_after(self, task_id: str, *, past: str) -> list[str]:
        """Tasks after one, up to and including the last that `past` matches."""
        ids = list(self.tasks)
        end = max(index for index, found in enumerate(ids) if matches(past, found))
        return ids[ids.index(task_id) + 1 : end + 1]

    def _section(self, section: Section) -> None:
        nodes = [part for part in section.parts if isinstance(part, EachNode)]
        if section.on_decision:
            before = self.last
            if any(part.position is not None for part in nodes):
                self._roll_back(section, nodes)
            else:
                self._undo(section)
            if self.last is not None:
                self.decided.append(self.last)
            self.last = before
        elif any(part.position is not None for part in nodes):
            self._roll(section, nodes)
        else:
            begin: BaseOperator | None = None
            for part in section.parts:
                if isinstance(part, EachNode):
                    self._gates(part)
                    continue
                self.add(part)
                if isinstance(part, Step) and part.jump is not None:
                    begin = self.last
                elif isinstance(part, Step) and part.joins and begin is not None and self.last is not None:
                    chain(begin, self.last)

    def _roll(self, section: Section, nodes: Sequence[EachNode]) -> None:
        begin = next(part for part in section.parts if isinstance(part, Step))
        slots = [slot for each in nodes for slot in self._slots(section.id, each)]
        self._follow(self._made(BeginReleaseStepOperator, begin, slots=slots))
        for each in nodes:
            for slot in self._slots(section.id, each):
                self._node(each, slot)
        self.deciders += [task_id for slot in slots for task_id in slot.task_ids]
        self.rolled = [] if self.last is None else [self.last]

    def _roll_back(self, section: Section, nodes: Sequence[EachNode]) -> None:
        begin = next(part for part in section.parts if isinstance(part, Step))
        groups = {each.group: TaskGroup(each.group, tooltip=each.label) for each in nodes}
        slots = {each.group: self._slots(groups[each.group].group_id or "", each) for each in nodes}
        first = self._made(
            BeginRollBackOperator,
            begin,
            slots=[slot for found in slots.values() for slot in found],
            deciders=list(self.deciders),
        )
        chain(self.rolled, first)
        self.last = first
        for each in nodes:
            with groups[each.group]:
                for slot in slots[each.group]:
                    self._node(each, slot)

    def _undo(self, section: Section) -> None:
        """The first step runs on the decision of an offline step; undecided, it skips all but the last."""
        begin = next(part for part in section.parts if isinstance(part, Step))
        deciders = [task_id for task_id, step in self.steps.items() if step.on_failure is Reaction.ASK_UNDO]
        first: Any = self._made(DecidedStepOperator, begin, step=begin, deciders=deciders)
        self._follow(first)
        for part in section.parts:
            if isinstance(part, EachNode):
                self._gates(part, way_back=True)
            elif part is not begin:
                self.add(part)
        ids = list(self.tasks)
        first.skipped = ids[ids.index(first.task_id) + 1 : -1]

    def _slots(self, group: str, each: EachNode) -> list[NodeTaskGroup]:
        position = each.position or ReleaseStepPosition.TARGET
        return node_slots(self.cluster, group, position, way_back=each.is_rollback, down=each.brokers_first)

    def _node(self, each: EachNode, slot: NodeTaskGroup) -> None:
        """A node's steps in a chain. `passed` follows the step before the node too: it runs where the node is
        skipped."""
        node = (
            "the active controller, the last of the controllers"
            if slot.node_id is None
            else f"node {slot.node_id} ({self.cluster.node(slot.node_id).name})"
        )
        with TaskGroup(slot.group_id.rsplit(".", 1)[-1], tooltip=f"Rolls {node}."):
            *steps, passed = each.steps
            ends = [] if self.last is None else [self.last]  # a skipped node must not let the next one overtake
            for step in steps:
                if step.approval is None:
                    self._follow(self._node_task(step, slot, node))
                elif slot.has_canary and self.last is not None:
                    ends.append(self.last)
                    self._follow(self._made(ApproveCanaryOperator, step, step=step, slot=slot, node=node))
            end = self._made(EmptyOperator, passed)
            chain([*ends, *([] if self.last is None else [self.last])], end)
        self.last = end

    def _node_task(self, step: Step, slot: NodeTaskGroup, node: str) -> BaseOperator:
        if step.gate is not None:
            return self._made(GateSensor, step, step=step, slot=slot, node=node)
        return self._made(ReplaceNodeOperator, step, slot=slot, node=node)

    def _gates(self, each: EachNode, *, way_back: bool = False) -> None:
        """One gate a node, controllers first, as they are started."""
        for node in self.cluster.controllers_first:
            for step in each.steps:
                self._follow(
                    self._made(
                        OfflineGateSensor,
                        step,
                        id_=f"{step.id}_{node.name}",
                        step=step,
                        kafka_node=node.node_id,
                        way_back=way_back,
                        node=node.name,
                    )
                )

    def _task(self, step: Step) -> BaseOperator:
        if step.service is Service.START_TRAFFIC:
            return self._made(StartLedgerOperator, step, step=step)
        if step.service is Service.STOP_TRAFFIC:
            return self._made(StopLedgerOperator, step)
        if step.service is Service.REPORT:
            return self._made(ReportOperator, step)
        if step.service is Service.OUTCOME:
            report, traffic = self._service(Service.REPORT), self._service(Service.STOP_TRAFFIC)
            return self._made(OutcomeOperator, step, report_task=report, ledger_task=traffic)
        if step.gate is not None:
            return self._made(GateSensor, step, step=step)
        if step.approval is not None:
            task = self._made(ApprovalOperator, step, step=step)
            if step.approval.offers_roll_back:
                self.deciders.append(task.task_id)
                self.rolled.append(task)
            return task
        if step.scan is not None:
            return self._made(ScanForRunOperator, step, step=step, has_plan=PLAN_TASK in self.tasks)
        if step.joins:
            return self._made(EmptyOperator, step)
        has_plan = PLAN_TASK in self.tasks
        return self._made(operator_for(step), step, step=step, has_plan=has_plan)

    def _service(self, service: Service) -> str | None:
        return next((task_id for task_id, step in self.steps.items() if step.service is service), None)

    def _made(self, operator: type[Any], step: Step, /, *, id_: str = "", node: str = "", **more: Any) -> BaseOperator:
        """The task of a step, with the limits and the rule of its definition."""
        if operator is not EmptyOperator:
            more["cluster"] = self.cluster.name
        task: BaseOperator = operator(
            task_id=id_ or step.id,
            doc_md=step.doc.replace("{node}", node),
            trigger_rule=step.runs_after.value,
            retries=step.limits.retries,
            retry_delay=timedelta(seconds=step.limits.pause_s),
            execution_timeout=timedelta(seconds=step.limits.timeout_s),
            **more,
        )
        self.tasks[task.task_id] = task
        self.steps[task.task_id] = step
        return task

    def _follow(self, task: BaseOperator) -> None:
        """Put a task after the last one; the first step that ends the run also follows what runs on a decision."""
        before = [] if self.last is None else [self.last]
        if self.steps[task.task_id].service is Service.STOP_TRAFFIC:
            before += self.decided
        if before:
            chain(before, task)
        self.last = task
