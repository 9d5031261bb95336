"""The graph of a procedure: one task per step or node, one task group per section or node.

The graph is drawn from the inventory, before the plan exists. Mapped tasks would continue past a failed node, or
interleave nodes. In a chain of static groups, a failure stops the run there, and a cleared task continues there. A
cluster of more than NODE_GROUPS_UP_TO nodes has one task for all nodes of a section instead, so its number of tasks is
constant. A smaller cluster has these tasks next to the groups, for a plan with batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, TaskGroup, chain

from kafka_rollout.airflow.approvals.asking import PLAN_TASK
from kafka_rollout.airflow.common.node_task_groups import (
    ALL_NODES,
    APPROVE_CANARY,
    APPROVE_FIRST_BATCH,
    FIRST_BATCH,
    FIRST_NODE,
    NODE_STEP,
    OTHER_NODES,
    Nodes,
    NodeStepsOfTask,
    NodeTaskGroup,
    list_node_task_groups,
)
from kafka_rollout.airflow.gates.sensor import GateSensor, OfflineGateSensor
from kafka_rollout.airflow.operators.approvals import ApprovalOperator, ApproveCanaryOperator
from kafka_rollout.airflow.operators.begin import BeginReleaseStepOperator, BeginRollBackOperator
from kafka_rollout.airflow.operators.nodes import (
    WORKS_S,
    OfflineGatesOperator,
    RollNodesOperator,
)
from kafka_rollout.airflow.operators.services import (
    OutcomeOperator,
    ReportOperator,
    StartTrafficOperator,
    StopTrafficOperator,
)
from kafka_rollout.airflow.operators.spark_scan import ScanForRunOperator
from kafka_rollout.airflow.operators.step import DecidedStepOperator, operator_for
from kafka_rollout.model.plan import ReleaseStepPosition
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.steps.step import EachNode, Procedure, Reaction, RunsAfter, Section, Service, Step, matches

IN_BATCHES = "in_batches"
BROKERS_OF_A_BATCH = 3  # the first broker restarts alone
NODE_GROUPS_UP_TO = 12  # a graph with more groups of a node is not readable, and its size grows with the nodes


def draw(procedure: Procedure, cluster: ClusterSpec) -> None:
    """Add the tasks of the procedure to the DAG that is being defined."""
    procedure = procedure.for_cluster(cluster)
    drawing = _Drawing(cluster=cluster)
    for part in procedure.parts:
        drawing.add(part)
    for task_id, step in drawing.steps.items():
        if step.jump is not None:
            drawing.tasks[task_id].skipped = drawing.ids_after(task_id, past=step.jump.past)


@dataclass(slots=True, kw_only=True)
class _Drawing:
    """A graph while it is drawn.

    `before`: the tasks that the next step follows. `decided`: last tasks of the sections that run on a decision.
    `deciders`: tasks at which an approver can choose to roll back. `rolled`: tasks that the section of the rollback
    follows.
    """

    cluster: ClusterSpec
    tasks: dict[str, Any] = field(default_factory=dict)  # in the order of the procedure
    steps: dict[str, Step] = field(default_factory=dict)
    before: list[BaseOperator] = field(default_factory=list)
    decided: list[BaseOperator] = field(default_factory=list)
    deciders: list[str] = field(default_factory=list)
    rolled: list[BaseOperator] = field(default_factory=list)
    nodes_of: str = ""  # the release step whose node steps are drawn: they are one step of the procedure

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
            before = self.before
            if any(part.position is not None for part in nodes):
                self._roll_back(section, nodes)
            else:
                self._undo(section)
            self.decided += self.before
            self.before = before
        elif any(part.position is not None for part in nodes):
            self._roll(section, nodes)
        else:
            begin: list[BaseOperator] = []
            for part in section.parts:
                if isinstance(part, EachNode):
                    self._gates(part)
                    continue
                self.add(part)
                if isinstance(part, Step) and part.jump is not None:
                    begin = self.before
                elif isinstance(part, Step) and part.joins:
                    chain(begin, self.before)

    def _roll(self, section: Section, nodes: Sequence[EachNode]) -> None:
        begin = next(part for part in section.parts if isinstance(part, Step))
        (each,) = nodes
        if each.in_one_task:
            self._roll_in_one_task(section, each, begin)
            return
        groups = [] if self._is_large else self._groups(section.id, each)
        names = (FIRST_NODE, APPROVE_CANARY, FIRST_BATCH, APPROVE_FIRST_BATCH, OTHER_NODES)
        together = self._ids_together(section, *names)
        first = self._make(
            BeginReleaseStepOperator,
            begin,
            node_groups=groups,
            nodes_together=NodeStepsOfTask(position=each.position),
            tasks_together=together,
        )
        self._follow(first)
        self.nodes_of = section.id
        for group in groups:
            self._node(each, group)
        self._branch(first, together, lambda: self._roll_together(each))
        self.nodes_of = ""
        self.deciders += [task_id for group in groups for task_id in group.task_ids] + together
        self.rolled = self.before

    def _roll_in_one_task(self, section: Section, each: EachNode, begin: Step) -> None:
        together = [f"{section.id}.{ALL_NODES}"]
        whole = NodeStepsOfTask(position=each.position)
        first = self._make(
            BeginReleaseStepOperator, begin, node_groups=[], nodes_together=whole, tasks_together=together
        )
        self._follow(first)
        self.nodes_of = section.id
        self._follow(self._node_by_node(each, ALL_NODES, "every planned node", whole))
        self.nodes_of = ""
        self.deciders += together
        self.rolled = [first, *self.before]  # a plan without such nodes skips the second task
        self.before = self.rolled

    def _roll_back(self, section: Section, nodes: Sequence[EachNode]) -> None:
        begin = next(part for part in section.parts if isinstance(part, Step))
        drawn = [] if self._is_large else [(each, TaskGroup(each.group, tooltip=each.label)) for each in nodes]
        groups = [(each, outer, group) for each, outer in drawn for group in self._groups(outer.group_id or "", each)]
        together = self._ids_together(section, ALL_NODES)
        first = self._make(
            BeginRollBackOperator,
            begin,
            node_groups=[group for _, _, group in groups],
            tasks_together=together,
            deciders=list(self.deciders),
        )
        chain(self.rolled, first)
        self.before = [first]
        for each, outer, group in groups:
            self.nodes_of = f"{section.id}.{each.id}"
            with outer:
                self._node(each, group)
        self.nodes_of = f"{section.id}.{nodes[0].id}"
        whole = NodeStepsOfTask(position=None)
        self._branch(
            first, together, lambda: self._follow(self._node_by_node(nodes[0], ALL_NODES, "every node", whole))
        )
        self.nodes_of = ""

    def _ids_together(self, section: Section, *names: str) -> list[str]:
        """Return the ids of the tasks that take several nodes; none if the cluster has too few brokers for a batch."""
        if self._is_large:
            return [f"{section.id}.{name}" for name in names]
        can_have_batches = len(self.cluster.brokers_alone) >= BROKERS_OF_A_BATCH
        return [f"{section.id}.{IN_BATCHES}.{name}" for name in names] if can_have_batches else []

    def _branch(self, begin: BaseOperator, ids: Sequence[str], add: Callable[[], None]) -> None:
        """Draw the tasks that take several nodes: after `begin`, next to the groups of a small cluster."""
        if self._is_large:
            add()
        elif ids:
            ends, self.before = self.before, [begin]
            with TaskGroup(IN_BATCHES, tooltip="All nodes, if the plan has batches. Otherwise each node has a group."):
                add()
            self.before = [*ends, *self.before]

    def _roll_together(self, each: EachNode) -> None:
        """Draw a task for the first node and for the first batch, each with its approval, and one for the others.

        Each of the three follows all tasks before it: a skipped approval ends at once, before the nodes are replaced.
        """
        approvals = [step for step in each.steps if step.approval is not None]
        ends: list[BaseOperator] = []
        for nodes, task_id, doc in (
            (Nodes.FIRST, FIRST_NODE, "the first node"),
            (Nodes.FIRST_BATCH, FIRST_BATCH, "every other node up to the first batch of several brokers"),
            (Nodes.OTHERS, OTHER_NODES, "every other node"),
        ):
            of_task = NodeStepsOfTask(position=each.position, nodes=nodes)
            self.before = ends or self.before
            self._follow(self._node_by_node(each, task_id, doc, of_task))
            ends = [*ends, *self.before]
            if approvals:
                step = approvals.pop(0)
                self._follow(self._make(ApproveCanaryOperator, step, step=step, node_group=of_task))
                ends = [*ends, *self.before]

    def _node_by_node(
        self, each: EachNode, task_id: str, node: str, nodes: NodeStepsOfTask | NodeTaskGroup
    ) -> BaseOperator:
        """Make the task of one or several nodes from the steps of a node."""
        steps = [step for step in each.steps[:-1] if step.approval is None]  # the last one only joins
        acts = next(step for step in steps if step.gate is None)
        is_one = isinstance(nodes, NodeTaskGroup)
        doc = f"Takes {node}{'' if is_one else ', in the order of the plan'}:\n\n" + "\n".join(
            f"1. {step.doc.replace('{node}', 'the node')}" for step in steps
        )
        commands = [one.commands_s for one in self.cluster.nodes]
        commands_s = max(commands) if is_one else sum(commands)  # a batch can have all nodes
        limits = replace(acts.limits, timeout_s=acts.limits.timeout_s + WORKS_S + commands_s)
        step = replace(acts, id=task_id, doc=doc, limits=limits, runs_after=RunsAfter.SKIPPED)
        return self._make(RollNodesOperator, step, step=step, nodes=nodes)

    @property
    def _is_large(self) -> bool:
        return len(self.cluster.nodes) > NODE_GROUPS_UP_TO

    def _undo(self, section: Section) -> None:
        """The first step runs on the decision of an offline step. Without a decision it skips all but the last task."""
        begin = next(part for part in section.parts if isinstance(part, Step))
        deciders = [task_id for task_id, step in self.steps.items() if step.on_failure is Reaction.ASK_UNDO]
        first: Any = self._make(DecidedStepOperator, begin, step=begin, deciders=deciders)
        self._follow(first)
        for part in section.parts:
            if isinstance(part, EachNode):
                self._gates(part, is_rollback=True)
            elif part is not begin:
                self.add(part)
        ids = list(self.tasks)
        first.skipped = ids[ids.index(first.task_id) + 1 : -1]

    def _groups(self, group: str, each: EachNode) -> list[NodeTaskGroup]:
        position = each.position or ReleaseStepPosition.TARGET
        return list_node_task_groups(
            self.cluster, group, position, is_rollback=each.is_rollback, down=each.brokers_first
        )

    def _node(self, each: EachNode, group: NodeTaskGroup) -> None:
        """Chain a node's steps. `passed` also follows the step before the node, because it runs for a skipped node."""
        named = group.node_id is not None and self.cluster.node(group.node_id)
        node = f"node {named.node_id} ({named.name})" if named else "the active controller, the last controller"
        with TaskGroup(group.group_id.rsplit(".", 1)[-1], tooltip=f"All steps of {node}."):
            passed = each.steps[-1]
            ends = self.before  # the next node must not overtake a skipped node
            self._follow(self._node_by_node(each, NODE_STEP, node, group))
            canary = next((step for step in each.steps if step.id == APPROVE_CANARY), None)
            if group.has_canary and canary is not None:
                ends = [*ends, *self.before]
                self._follow(self._make(ApproveCanaryOperator, canary, step=canary, node_group=group, node=node))
            end = self._make(EmptyOperator, passed)
            chain([*ends, *self.before], end)
        self.before = [end]

    def _gates(self, each: EachNode, *, is_rollback: bool = False) -> None:
        """Add one gate per node, controllers first, as they are started; in one task for a large cluster."""
        (step,) = each.steps
        if self._is_large:
            whole = replace(step, id=f"{step.id}_{ALL_NODES}", doc=step.doc.replace("{node}", "every node, one by one"))
            task: Any = self._make(OfflineGatesOperator, whole, step=whole, is_rollback=is_rollback)
            task.step_id = task.task_id.removesuffix(f"_{ALL_NODES}")
            self._follow(task)
            return
        for node in self.cluster.controllers_first:
            more: dict[str, Any] = {"kafka_node": node.node_id, "is_rollback": is_rollback, "node": node.name}
            task = self._make(OfflineGateSensor, step, id_=f"{step.id}_{node.name}", step=step, **more)
            task.step_id = task.task_id.removesuffix(f"_{node.name}")
            self._follow(task)

    def _task(self, step: Step) -> BaseOperator:
        if step.service is Service.START_TRAFFIC:
            return self._make(StartTrafficOperator, step, step=step)
        if step.service is Service.STOP_TRAFFIC:
            return self._make(StopTrafficOperator, step)
        if step.service is Service.REPORT:
            return self._make(ReportOperator, step)
        if step.service is Service.OUTCOME:
            report, traffic = self._service(Service.REPORT), self._service(Service.STOP_TRAFFIC)
            return self._make(OutcomeOperator, step, report_task=report, traffic_task=traffic)
        if step.gate is not None:
            return self._make(GateSensor, step, step=step)
        if step.approval is not None:
            task = self._make(ApprovalOperator, step, step=step)
            if step.approval.offers_roll_back:
                self.deciders.append(task.task_id)
                self.rolled.append(task)
            return task
        if step.scan is not None:
            return self._make(ScanForRunOperator, step, step=step, has_plan=PLAN_TASK in self.tasks)
        if step.joins:
            return self._make(EmptyOperator, step)
        has_plan = PLAN_TASK in self.tasks
        return self._make(operator_for(step), step, step=step, has_plan=has_plan)

    def _service(self, service: Service) -> str | None:
        return next((task_id for task_id, step in self.steps.items() if step.service is service), None)

    def _make(self, operator: type[Any], step: Step, /, *, id_: str = "", node: str = "", **more: Any) -> BaseOperator:
        """Make the task of a step, with the limits and the rule of its definition."""
        if operator is not EmptyOperator:
            more = {"cluster": self.cluster.name, "step_id": self.nodes_of, **more}
        task: BaseOperator = operator(
            task_id=id_ or step.id,
            doc_md=step.doc.replace("{node}", node),
            trigger_rule=step.runs_after.value,
            retries=step.limits.retries,
            retry_delay=timedelta(seconds=step.limits.pause_s),
            execution_timeout=timedelta(seconds=step.limits.timeout_s),
            **more,
        )
        task.params = type(task.params)()  # the DAG has them; Airflow would check and store them again for each task
        self.tasks[task.task_id] = task
        self.steps[task.task_id] = step
        return task

    def _follow(self, task: BaseOperator) -> None:
        """Put a task after the last one. The first step that ends the run also follows the sections on decision."""
        before = self.before
        if self.steps[task.task_id].service is Service.STOP_TRAFFIC:
            before = [*before, *self.decided]
        if before:
            chain(before, task)
        self.before = [task]
