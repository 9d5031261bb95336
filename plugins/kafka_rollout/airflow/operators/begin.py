"""The begin of a release step or rollback: which tasks of it run, and in which order nodes can be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from airflow.sdk import Context
from airflow.sdk.exceptions import DownstreamTasksSkipped

from kafka_rollout.airflow.approvals.asking import ROLL_BACK_DECISION
from kafka_rollout.airflow.common.base import RolloutOperator, frozen_plan, request_in
from kafka_rollout.airflow.common.node_task_groups import (
    APPROVE_CANARY,
    APPROVE_FIRST_BATCH,
    FIRST_BATCH,
    NodeStepsOfTask,
    NodeTaskGroup,
)
from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.planning.request import Request
from kafka_rollout.run.events import ApprovalOf
from kafka_rollout.steps.common.approval import require_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import is_rollback_step
from kafka_rollout.steps.roll.loop import begin_rollback
from kafka_rollout.steps.roll.node import find_down_first, needs_replacement


def refuse_wrong_order(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec) -> None:
    """Check the node order again, in case the DAG was changed or cleared in parts."""
    if is_rollback_step(plan, release_step) and node.node_id in find_down_first(ports, plan):
        return
    for earlier in release_step.order:
        if earlier.node_id == node.node_id:
            return
        if needs_replacement(ports, plan, release_step, ports.cluster.node(earlier.node_id)):
            raise RefusedError(
                f"Node {node.node_id} cannot be replaced yet: node {earlier.node_id} comes first in release step "
                f"{release_step.from_release} → {release_step.to_release} and does not run "
                f"{release_step.to_release}.",
                remedy=f"Clear the tasks of node {earlier.node_id} and all downstream tasks.",
            )


def require_canary_approvals(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, node: NodeSpec, request: Request
) -> None:
    """Check the approvals that the run requests before this node: their tasks can be marked as successful by hand."""
    first = plan.release_steps[0]
    if release_step == plan.registration_step and not plan.changes_release:
        return  # the nodes run the release already
    if release_step == first:
        at = next(at for at, ids in enumerate(first.node_ids_together) if node.node_id in ids)
    else:
        at = len(first.order)
    needed = [ApprovalOf.CANARY] if request.canary and at > 0 else []
    if request.first_batch and first.first_batch is not None and at > first.first_batch:
        needed.append(ApprovalOf.FIRST_BATCH)
    if needed and needs_replacement(ports, plan, release_step, node):
        for what in needed:
            require_approval(ports, plan, what)


class BeginReleaseStepOperator(RolloutOperator):
    """Skip the tasks that the plan does not use here, so that no task starts only to be skipped.

    A large cluster has no `node_groups`: `tasks_together` take all nodes. A smaller cluster has both: its groups take
    one node at a time, and `tasks_together` take the batches of a plan that has some. `nodes_together`: their nodes.
    """

    def __init__(
        self,
        *,
        node_groups: Sequence[NodeTaskGroup],
        tasks_together: Sequence[str] = (),
        nodes_together: NodeStepsOfTask | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.node_groups = list(node_groups)
        self.tasks_together = list(tasks_together)
        self.nodes_together = nodes_together

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        release_step = None if self.nodes_together is None else self.nodes_together.release_step(plan)
        if release_step is None:
            self.log.info("The plan has no release step at this position.")
            self.skip_all()
        self.log.info("%s → %s: %s", release_step.from_release, release_step.to_release, release_step.reason)
        if self.is_together(plan):
            unused = [*self.tasks_of_groups, *self._unused_together(plan, release_step, request_in(context))]
        else:
            canary = request_in(context).canary
            of_groups = (self._unused(plan, release_step, group, canary) for group in self.node_groups)
            unused = [*self.tasks_together, *(task_id for found in of_groups for task_id in found)]
        if unused:
            raise DownstreamTasksSkipped(tasks=unused)

    def _unused_together(self, plan: Plan, release_step: ReleaseStep, request: Request) -> Sequence[str]:
        is_first = release_step == plan.release_steps[0]
        has_batch = release_step.first_batch is not None
        used = {
            APPROVE_CANARY: is_first and request.canary,
            FIRST_BATCH: has_batch,
            APPROVE_FIRST_BATCH: is_first and has_batch and request.first_batch,
        }
        return [task_id for task_id in self.tasks_together if not used.get(task_id.rsplit(".", 1)[-1], True)]

    def is_together(self, plan: Plan) -> bool:
        """Return whether the tasks of several nodes take the nodes, and not the groups."""
        return not self.node_groups or (plan.has_batches and bool(self.tasks_together))

    @property
    def tasks_of_groups(self) -> list[str]:
        return [task_id for group in self.node_groups for task_id in (*group.task_ids, group.passed_id)]

    def skip_all(self) -> NoReturn:
        raise DownstreamTasksSkipped(tasks=[*self.tasks_of_groups, *self.tasks_together])

    def _unused(self, plan: Plan, release_step: ReleaseStep, group: NodeTaskGroup, canary: bool) -> Sequence[str]:
        if group.node_step(plan) is None:
            if group.node_id is not None and release_step.node_step(group.node_id):
                self.log.info("Node %s is the active controller: it is replaced as the last controller.", group.node_id)
            return group.task_ids
        has_unused_canary = group.has_canary and not (group.is_canary(plan) and canary)
        return (f"{group.group_id}.{APPROVE_CANARY}",) if has_unused_canary else ()


class BeginRollBackOperator(BeginReleaseStepOperator):
    """Begin the rollback of the nodes that left their previous release.

    `deciders`: the tasks at which an approver can decide to roll back. Clearing a task removes its decision. So a run
    that was cleared and then succeeds does not roll back because of an earlier decision.
    """

    def __init__(self, *, deciders: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deciders = list(deciders)

    def execute(self, context: Context) -> Any:
        if self._decision(context) is None:
            self.log.info("No approver decided to roll back.")
            self.skip_all()
        return super().execute(context)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        require_approval(ports, plan, ApprovalOf.ROLL_BACK)  # the decision is an XCom, which is not a proof
        node_steps = {key for batch in begin_rollback(ports, plan).batches for key in batch.key}
        for release_step_key, node_id in sorted(node_steps):
            self.log.info("Node %s is rolled back (%s).", node_id, release_step_key)
        unused = self.tasks_of_groups if self.is_together(plan) else list(self.tasks_together)
        for group in () if self.is_together(plan) else self.node_groups:
            release_step, node_step = group.release_step(plan), group.node_step(plan)
            if release_step is None or node_step is None or (release_step.key, node_step.node_id) not in node_steps:
                unused += group.task_ids
        found = {"decision": self._decision(context), "node_steps": len(node_steps)}
        context["ti"].xcom_push(key="return_value", value=found)
        if unused:
            raise DownstreamTasksSkipped(tasks=unused)

    def _decision(self, context: Context) -> Any:
        found = context["ti"].xcom_pull(task_ids=self.deciders, key=ROLL_BACK_DECISION)
        return next((decision for decision in found or () if decision), None)
