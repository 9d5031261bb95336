"""The batches of a task that takes several nodes, one batch after the other, in the plan's order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.gates.check import GateRef
from kafka_rollout.model.plan import Plan, ReleaseStep, ReleaseStepPosition
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.roll.node import must_roll_back, rollback_release_steps

FIRST_NODE = "first_node"
FIRST_BATCH = "first_batch"
APPROVE_FIRST_BATCH = "approve_first_batch"
OTHER_NODES = "other_nodes"
ALL_NODES = "nodes"  # of a rollback


class Nodes(StrEnum):
    """Which nodes of the release step. The first one, and the nodes up to the first batch of several, have tasks of
    their own, which an approval can follow.
    """

    FIRST = "first"
    FIRST_BATCH = "first batch"
    OTHERS = "others"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStepsOfTask:
    """Node steps of one task. `position` None: of the rollback, over all release steps."""

    position: ReleaseStepPosition | None
    nodes: Nodes = Nodes.ALL

    @property
    def is_rollback(self) -> bool:
        return self.position is None

    def release_step(self, plan: Plan) -> ReleaseStep | None:
        """Return the release step; None if the plan has none here, and for a rollback."""
        if self.position is None or plan.offline:  # offline, no node has its own node step
            return None
        return plan.release_step_at(self.position)

    def is_canary(self, plan: Plan) -> bool:
        """Return whether an approval can follow this task: it has the first node or first batch of the whole run."""
        release_step = self.release_step(plan)
        if release_step is None or release_step != plan.release_steps[0]:
            return False
        return self.nodes is Nodes.FIRST or (self.nodes is Nodes.FIRST_BATCH and release_step.first_batch is not None)

    def find(
        self, ports: ClusterPorts, plan: Plan, after: GateRef | None = None
    ) -> Iterator[tuple[ReleaseStep, tuple[NodeSpec, ...]]]:
        """Yield the nodes of each batch in their order; a plan without batches has one node in each.

        Which nodes of a batch the rollback has is observed when its turn has come. `after`: begin with the batch of
        the node of this gate, without observing the batches before it. It must be one of this task.
        """
        found = None if self.is_rollback else self.release_step(plan)
        release_steps = rollback_release_steps(plan) if self.is_rollback else () if found is None else (found,)
        batches = [(one, node_ids) for one in release_steps for node_ids in self._of_task(one)]
        if after is not None:
            known = (after.release_step, after.node_id)
            begin = next(
                at for at, (one, ids) in enumerate(batches) if known in [(one.key, node_id) for node_id in ids]
            )
            batches = batches[begin:]
        for release_step, node_ids in batches:
            left = tuple(
                node
                for node in map(ports.cluster.node, node_ids)
                if not self.is_rollback
                or (after is not None and (after.release_step, after.node_id) == (release_step.key, node.node_id))
                or must_roll_back(ports, plan, release_step, node)
            )
            if left:
                yield release_step, left

    def _of_task(self, release_step: ReleaseStep) -> tuple[tuple[int, ...], ...]:
        together = release_step.node_ids_together
        first_batch_ends = 1 if release_step.first_batch is None else release_step.first_batch + 1
        match self.nodes:
            case Nodes.FIRST:
                return together[:1]
            case Nodes.FIRST_BATCH:
                return together[1:first_batch_ends]
            case Nodes.OTHERS:
                return together[first_batch_ends:]
            case Nodes.ALL:
                return together
