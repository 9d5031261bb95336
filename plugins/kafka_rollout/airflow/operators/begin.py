"""The first task of a release step and of a rollback: skips the node task groups that the run does not use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from airflow.sdk import Context
from airflow.sdk.exceptions import DownstreamTasksSkipped

from kafka_rollout.airflow.common.base import RolloutOperator, frozen_plan
from kafka_rollout.airflow.common.deciding import ROLL_BACK_DECISION
from kafka_rollout.airflow.common.node_task_groups import APPROVE_CANARY, NodeTaskGroup
from kafka_rollout.domain.model.plan import Plan, ReleaseStep
from kafka_rollout.domain.run.events import ApprovalOf
from kafka_rollout.steps.common.approval import require_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.roll.node import plan_rollback


class BeginReleaseStepOperator(RolloutOperator):
    """Skip the tasks of nodes that the plan does not replace here, so that no task starts only to be skipped."""

    def __init__(self, *, node_groups: Sequence[NodeTaskGroup], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.node_groups = list(node_groups)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        release_step = self.node_groups[0].release_step(plan)
        if release_step is None:
            self.log.info("The plan has no release step at this position.")
            self.skip_all()
        self.log.info("%s → %s: %s", release_step.from_release, release_step.to_release, release_step.reason)
        canary = bool(context["params"]["canary_approval"])
        unused = [task_id for group in self.node_groups for task_id in self._unused(plan, release_step, group, canary)]
        if unused:
            raise DownstreamTasksSkipped(tasks=unused)

    def skip_all(self) -> NoReturn:
        raise DownstreamTasksSkipped(
            tasks=[task_id for group in self.node_groups for task_id in (*group.task_ids, group.passed_id)]
        )

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
        node_steps = {(release_step.key, node_step.node_id) for release_step, node_step in plan_rollback(ports, plan)}
        for release_step_key, node_id in sorted(node_steps):
            self.log.info("Node %s is rolled back (%s).", node_id, release_step_key)
        unused: list[str] = []
        for group in self.node_groups:
            release_step, node_step = group.release_step(plan), group.node_step(plan)
            if release_step is None or node_step is None or (release_step.key, node_step.node_id) not in node_steps:
                unused += group.task_ids
        found = {"decision": self._decision(context), "turns": len(node_steps)}
        context["ti"].xcom_push(key="return_value", value=found)
        if unused:
            raise DownstreamTasksSkipped(tasks=unused)

    def _decision(self, context: Context) -> Any:
        found = context["ti"].xcom_pull(task_ids=self.deciders, key=ROLL_BACK_DECISION)
        return next((decision for decision in found or () if decision), None)
