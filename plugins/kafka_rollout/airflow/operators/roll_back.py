"""The begin of a rollback: only after a decision, and only for the nodes that left their previous release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import DownstreamTasksSkipped

from kafka_rollout.airflow.common.base import RolloutOperator, frozen_plan
from kafka_rollout.airflow.common.deciding import ROLL_BACK_DECISION
from kafka_rollout.airflow.common.node_task_groups import NodeTaskGroup

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_rollout.steps.common.cluster_ports import ClusterPorts


class BeginRollBackOperator(RolloutOperator):
    """Begin the rollback. `deciders`: the tasks at which an approver can decide to roll back.

    Clearing a task removes its decision. So a run that was cleared and then succeeds does not roll back because of an
    earlier decision.
    """

    def __init__(self, *, slots: Sequence[NodeTaskGroup], deciders: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.slots = list(slots)
        self.deciders = list(deciders)

    def execute(self, context: Context) -> Any:
        if self._decision(context) is None:
            self.log.info("No decision to roll back.")
            raise DownstreamTasksSkipped(
                tasks=[task_id for slot in self.slots for task_id in (*slot.task_ids, slot.passed_id)]
            )
        return super().execute(context)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        from kafka_rollout.domain.run.events import ApprovalOf
        from kafka_rollout.steps.common.approval import require_approval
        from kafka_rollout.steps.roll.node import roll_back_turns

        plan = frozen_plan(ports, context)
        require_approval(ports, plan, ApprovalOf.ROLL_BACK)  # the decision that led here is an XCom: no proof
        node_steps = {(release_step.key, node_step.node_id) for release_step, node_step in roll_back_turns(ports, plan)}
        for release_step_key, node_id in sorted(node_steps):
            self.log.info("Node %s is rolled back (%s).", node_id, release_step_key)
        unused: list[str] = []
        for slot in self.slots:
            release_step, node_step = slot.release_step(plan), slot.node_step(plan)
            if release_step is None or node_step is None or (release_step.key, node_step.node_id) not in node_steps:
                unused += slot.task_ids
        context["ti"].xcom_push(
            key="return_value", value={"decision": self._decision(context), "turns": len(node_steps)}
        )
        if unused:
            raise DownstreamTasksSkipped(tasks=unused)

    def _decision(self, context: Context) -> Any:
        found = context["ti"].xcom_pull(task_ids=self.deciders, key=ROLL_BACK_DECISION)
        return next((decision for decision in found or () if decision), None)
