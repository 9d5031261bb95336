"""The node steps of a task that takes several nodes, one after the other, in the plan's order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.gates.check import GateRef
from kafka_rollout.model.plan import NodeStep, Plan, ReleaseStep, ReleaseStepPosition
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.roll.node import must_roll_back, rollback_release_steps

FIRST_NODE = "first_node"
OTHER_NODES = "other_nodes"
ALL_NODES = "nodes"  # of a rollback


class Nodes(StrEnum):
    """Which nodes of the release step: the first one has a task of its own, which an approval can follow."""

    FIRST = "first"
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
        """Return whether this task has only the first node of the whole run."""
        return self.nodes is Nodes.FIRST and self.release_step(plan) == next(iter(plan.release_steps), None) is not None

    def find(
        self, ports: ClusterPorts, plan: Plan, after: GateRef | None = None
    ) -> Iterator[tuple[ReleaseStep, NodeSpec]]:
        """Yield the node steps in their order. Whether the rollback has one is observed when its turn has come.

        `after`: begin with the node of this gate, without observing the nodes before it. It must be one of this task.
        """
        found = None if self.is_rollback else self.release_step(plan)
        release_steps = rollback_release_steps(plan) if self.is_rollback else () if found is None else (found,)
        node_steps = [(one, node_step) for one in release_steps for node_step in self._of_task(one)]
        keys = [(one.key, node_step.node_id) for one, node_step in node_steps]
        begin = keys.index((str(after.release_step), after.node_id or 0)) if after is not None else 0
        for at, (release_step, node_step) in enumerate(node_steps[begin:]):
            is_known = after is not None and at == 0
            if is_known or not self.is_rollback or must_roll_back(ports, plan, release_step, node_step):
                yield release_step, ports.cluster.node(node_step.node_id)

    def _of_task(self, release_step: ReleaseStep) -> Sequence[NodeStep]:
        match self.nodes:
            case Nodes.FIRST:
                return release_step.order[:1]
            case Nodes.OTHERS:
                return release_step.order[1:]
            case Nodes.ALL:
                return release_step.order
