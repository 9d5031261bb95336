"""The first task of a release step: skips the node task groups that the plan does not use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import DownstreamTasksSkipped

from kafka_rollout.airflow.common.base import RolloutOperator, frozen_plan
from kafka_rollout.airflow.common.node_task_groups import APPROVE_CANARY, NodeTaskGroup

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_rollout.domain.model.plan import Plan
    from kafka_rollout.steps.common.cluster_ports import ClusterPorts


class BeginReleaseStepOperator(RolloutOperator):
    """Passes by the places of the graph that the plan does not use, so that no task starts only to say so."""

    def __init__(self, *, slots: Sequence[NodeTaskGroup], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.slots = list(slots)

    def act(self, context: Context, ports: ClusterPorts) -> Any:
        plan = frozen_plan(ports, context)
        release_step = self.slots[0].release_step(plan)
        if release_step is None:
            self.log.info("The plan has no release step at this place.")
        else:
            self.log.info("%s → %s: %s", release_step.from_release, release_step.to_release, release_step.reason)
        unused = [task_id for slot in self.slots for task_id in self._unused(context, plan, slot)]
        if release_step is None:
            unused += [slot.passed_id for slot in self.slots]
        if unused:
            raise DownstreamTasksSkipped(tasks=unused)

    def _unused(self, context: Context, plan: Plan, slot: NodeTaskGroup) -> list[str]:
        node_step = slot.node_step(plan)
        if node_step is None:
            if (
                slot.node_id is not None
                and (release_step := slot.release_step(plan)) is not None
                and release_step.node_step(slot.node_id)
            ):
                self.log.info("Node %s is rolled last among the controllers, for it is the active one.", slot.node_id)
            return list(slot.task_ids)
        if slot.has_canary and not (slot.is_canary(plan) and context["params"]["canary_approval"]):
            return [f"{slot.group_id}.{APPROVE_CANARY}"]
        return []
