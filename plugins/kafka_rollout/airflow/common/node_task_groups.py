"""The places of the DAG's graph that a node's turn takes.

The graph is drawn from the inventory before anything is observed, the plan is made after it. So every release step has
a group for each node, and one more for whichever controller turns out to be the active one and is rolled last.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_rollout.domain.model.plan import NodeStep, Plan, ReleaseStep, ReleaseStepPosition
from kafka_rollout.domain.model.topology import ClusterSpec

ACTIVE_CONTROLLER = "active_controller"

GATE_BEFORE = "gate_before"
REPLACE = "replace"
GATE_AFTER = "gate_after"
APPROVE_CANARY = "approve_canary"
PASSED = "passed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTaskGroup:
    """One group: `node_id` None is the place of the active controller. `group_id` is the group's full name."""

    group_id: str
    position: ReleaseStepPosition
    node_id: int | None
    way_back: bool = False
    has_canary: bool = False

    @property
    def task_ids(self) -> tuple[str, ...]:
        names = (GATE_BEFORE, REPLACE, GATE_AFTER, *((APPROVE_CANARY,) if self.has_canary else ()))
        return tuple(f"{self.group_id}.{name}" for name in names)

    @property
    def passed_id(self) -> str:
        """The task that keeps the order: the next place begins after it, and it ends after the place before."""
        return f"{self.group_id}.{PASSED}"

    def release_step(self, plan: Plan) -> ReleaseStep | None:
        release_step = (
            None if plan.offline else plan.release_step_at(self.position)
        )  # offline no node has a turn of its own
        return release_step.reversed() if release_step is not None and self.way_back else release_step

    def node_step(self, plan: Plan) -> NodeStep | None:
        """The turn that the plan puts here; None when it puts none."""
        release_step = self.release_step(plan)
        if release_step is None:
            return None
        if self.node_id is None:
            return next((node_step for node_step in release_step.order if node_step.active_controller), None)
        node_step = release_step.node_step(self.node_id)
        return None if node_step is None or node_step.active_controller else node_step

    def is_canary(self, plan: Plan) -> bool:
        """Whether the first node of the whole roll has its turn here."""
        return (
            bool(plan.release_steps)
            and self.release_step(plan) == plan.release_steps[0]
            and self.node_step(plan) == plan.release_steps[0].order[0]
        )

    def resolve(self, plan: Plan) -> tuple[ReleaseStep, NodeStep]:
        """Hop and turn of this place; skips the task with the reason when the plan puts nothing here."""
        release_step, node_step = self.release_step(plan), self.node_step(plan)
        if release_step is None:
            raise AirflowSkipException(f"The plan has no release step at this place ({self.position}).")
        if node_step is not None:
            return release_step, node_step
        if self.node_id is None:
            raise AirflowSkipException("No controller of this cluster was active when the plan was made.")
        if release_step.node_step(self.node_id) is None:
            raise AirflowFailException(
                f"Node {self.node_id} is in the inventory but not in the plan, which was made before it came. "
                "Start a new run: it plans anew."
            )
        raise AirflowSkipException(f"Node {self.node_id} is the active controller and is rolled last among them.")


def node_slots(
    cluster: ClusterSpec, group: str, position: ReleaseStepPosition, *, way_back: bool = False, down: bool = False
) -> list[NodeTaskGroup]:
    """The places of a release step, in their order: controllers, the active one, brokers; `down` brokers, controllers,
    the active one (the way back: the reverse)."""
    controllers = cluster.controllers
    brokers = cluster.brokers_alone
    of_controllers: list[tuple[str, int | None]] = [(node.name, node.node_id) for node in controllers]
    of_controllers.append((ACTIVE_CONTROLLER, None))
    of_brokers: list[tuple[str, int | None]] = [(node.name, node.node_id) for node in brokers]
    places = of_brokers + of_controllers if down else of_controllers + of_brokers
    if way_back:
        places.reverse()
    return [
        NodeTaskGroup(
            group_id=f"{group}.{name}",
            position=position,
            node_id=node_id,
            way_back=way_back,
            # The first place can be the active controller's own, which is passed by: then the second is the first.
            has_canary=not way_back and index < 2,
        )
        for index, (name, node_id) in enumerate(places)
    ]
