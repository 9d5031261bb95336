"""Which node steps a task takes: those of one node, in a task group of its own, or the batches of several nodes.

The DAG is drawn from the inventory before the plan exists. So every release step has a group for each node, and one
more for the controller that is active when the plan is made and is replaced last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_rollout.gates.gate import GateRef
from kafka_rollout.model.plan import Lowering, NodeStep, Plan, ReleaseStep, ReleaseStepPosition
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import offline_release_step, rollback_release_steps
from kafka_rollout.steps.roll.node import find_down_first, must_roll_back

ACTIVE_CONTROLLER = "active_controller"

NODE_STEP = "node_step"
APPROVE_CANARY = "approve_canary"
PASSED = "passed"

FIRST_NODE = "first_node"
FIRST_BATCH = "first_batch"
APPROVE_FIRST_BATCH = "approve_first_batch"
OTHER_NODES = "other_nodes"
ALL_NODES = "nodes"  # of a rollback


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTaskGroup:
    """One task group. `node_id` None: the group of the active controller. `group_id`: the full name of the group."""

    group_id: str
    position: ReleaseStepPosition
    node_id: int | None
    is_rollback: bool = False
    has_canary: bool = False

    @property
    def task_ids(self) -> tuple[str, ...]:
        names = (NODE_STEP, *((APPROVE_CANARY,) if self.has_canary else ()))
        return tuple(f"{self.group_id}.{name}" for name in names)

    @property
    def passed_id(self) -> str:
        """The task that keeps the order: the next group begins after it, and it ends after the previous group."""
        return f"{self.group_id}.{PASSED}"

    def release_step(self, plan: Plan) -> ReleaseStep | None:
        release_step = (
            None if plan.lowering is Lowering.OFFLINE else plan.release_step_at(self.position)
        )  # offline, no node has its own node step
        return release_step.reversed() if release_step is not None and self.is_rollback else release_step

    def node_step(self, plan: Plan) -> NodeStep | None:
        """Return the node step of the plan in this group; None if there is none."""
        release_step = self.release_step(plan)
        if release_step is None:
            return None
        if self.node_id is None:
            return next((node_step for node_step in release_step.order if node_step.active_controller), None)
        node_step = release_step.node_step(self.node_id)
        return None if node_step is None or node_step.active_controller else node_step

    def is_canary(self, plan: Plan) -> bool:
        """Return whether the first node of the whole run is replaced in this group."""
        return (
            bool(plan.release_steps)
            and self.release_step(plan) == plan.release_steps[0]
            and self.node_step(plan) == plan.release_steps[0].order[0]
        )

    def find(
        self, ports: ClusterPorts, plan: Plan, after: GateRef | None = None
    ) -> Iterator[tuple[ReleaseStep, tuple[NodeSpec, ...]]]:
        """Yield the node of this group; nothing if a rollback does not have it. `after`: a gate of it has passed.

        A rollback yields the nodes before it that must be rolled back first, whose own groups find nothing left.
        """
        release_step, node = self.resolve(plan, ports.cluster)
        first = find_down_first(ports, plan) if self.is_rollback else frozenset()
        if after is not None and after.node_id not in (None, node.node_id):
            first |= {after.node_id}
        for other in (ports.cluster.node(node_id) for node_id in sorted(first - {node.node_id})):
            if after is not None or must_roll_back(ports, plan, release_step, other):
                yield release_step, (other,)
                after = None
        if not self.is_rollback or after is not None or must_roll_back(ports, plan, release_step, node):
            yield release_step, (node,)

    def resolve(self, plan: Plan, cluster: ClusterSpec) -> tuple[ReleaseStep, NodeSpec]:
        """Return release step and node of this group; skip the task with a reason if the plan has none here."""
        release_step, node_step = self.release_step(plan), self.node_step(plan)
        if release_step is None:
            raise AirflowSkipException(f"The plan has no release step at this position ({self.position}).")
        if node_step is not None:
            return release_step, cluster.node(node_step.node_id)
        if self.node_id is None:
            raise AirflowSkipException("No controller of this cluster was active when the plan was made.")
        if release_step.node_step(self.node_id) is None:
            raise AirflowFailException(
                f"Node {self.node_id} is in the inventory but not in the plan. Start a new run: it plans with "
                "the current inventory."
            )
        raise AirflowSkipException(
            f"Node {self.node_id} is the active controller and is replaced as the last controller."
        )


def list_node_task_groups(
    cluster: ClusterSpec, group: str, position: ReleaseStepPosition, *, is_rollback: bool = False, down: bool = False
) -> list[NodeTaskGroup]:
    """Return the groups of a release step in their order: controllers, the active one, brokers.

    `down`: brokers, controllers, the active one. A rollback uses the reverse order.
    """
    controllers = cluster.controllers
    brokers = cluster.brokers_alone
    of_controllers: list[tuple[str, int | None]] = [(node.name, node.node_id) for node in controllers]
    of_controllers.append((ACTIVE_CONTROLLER, None))
    of_brokers: list[tuple[str, int | None]] = [(node.name, node.node_id) for node in brokers]
    places = of_brokers + of_controllers if down else of_controllers + of_brokers
    if is_rollback:
        places.reverse()
    return [
        NodeTaskGroup(
            group_id=f"{group}.{name}",
            position=position,
            node_id=node_id,
            is_rollback=is_rollback,
            # The first group can be the active controller's own, which is skipped. Then the second group is the
            # first.
            has_canary=not is_rollback and index < 2,
        )
        for index, (name, node_id) in enumerate(places)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedNodes:
    """All nodes, which an offline downgrade or its undo (`is_rollback`) has started, controllers first."""

    is_rollback: bool

    def find(
        self, ports: ClusterPorts, plan: Plan, after: GateRef | None = None
    ) -> Iterator[tuple[ReleaseStep, tuple[NodeSpec, ...]]]:
        """Yield each node, from the node of the gate `after`, if it is given."""
        planned = offline_release_step(plan)
        release_step = planned.reversed() if self.is_rollback else planned
        nodes = ports.cluster.controllers_first
        begin = 0 if after is None else [node.node_id for node in nodes].index(after.node_id or 0)
        for node in nodes[begin:]:
            yield release_step, (node,)


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
        if self.position is None or plan.lowering is Lowering.OFFLINE:  # offline, no node has its own node step
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
        if self.is_rollback and plan.registration_step is not None:
            first = find_down_first(ports, plan)
            gate = (None, None) if after is None else (after.release_step, after.node_id)
            # The batch of the gate first, then those that are down. The others are observed in their turn.
            batches.sort(key=lambda one: (gate not in [(one[0].key, i) for i in one[1]], first.isdisjoint(one[1])))
        elif after is not None:
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
