"""The time that the node steps of a run still take, by those that are done or were rehearsed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from kafka_rollout.model.plan import Lowering, Plan, ReleaseStep
from kafka_rollout.run.step_events import Rehearsed
from kafka_rollout.run.view import NodeStage, NodeView, RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds for the node steps that are left (0: none is left)."""

    left: int
    """Number of node steps."""
    batches: int
    """Number of batches of them."""
    remaining_s: float
    at_least_s: float
    """If each took as long as the fastest one so far."""
    at_most_s: float
    """If each took as long as the slowest one so far."""


def estimate_of(view: RunView, plan: Plan) -> Estimate | None:
    """Return the estimate; None if nothing is known yet, or if all nodes start together.

    During a rollback, the nodes that it has to visit are left. A batch takes as long as its slowest node. Time for
    answers does not count.
    """
    rehearsed = view.newest(Rehearsed)
    seconds = list(_times_of_batches(view, plan)) or [*(rehearsed.node_seconds.values() if rehearsed else ())]
    if plan.lowering is Lowering.OFFLINE or not seconds:
        return None
    left = [nodes for nodes in _batches_left(view, plan) if nodes]
    return Estimate(
        left=sum(map(len, left)),
        batches=len(left),
        remaining_s=len(left) * median(seconds),
        at_least_s=len(left) * min(seconds),
        at_most_s=len(left) * max(seconds),
    )


def goes_back(view: RunView, plan: Plan) -> bool:
    """Return whether the last stop or start was in a rollback of the plan."""
    return view.last_act is not None and view.last_act.release_step not in {step.key for step in plan.release_steps}


def _batches_left(view: RunView, plan: Plan) -> Iterator[Sequence[int]]:
    """Yield the nodes of each batch that are not done; during a rollback, of those that the run has touched."""
    is_back = goes_back(view, plan)
    for step in plan.release_steps:
        if is_back and step.restarts:
            continue
        key = step.reversed().key if is_back else step.key
        for ids in step.node_ids_together:
            wanted = [one for one in ids if not is_back or has_acted(view.nodes.get((step.key, one)))]
            yield [one for one in wanted if not is_done(view.nodes.get((key, one)))]


def has_acted(node: NodeView | None) -> bool:
    """Return whether the run has stopped or started the node in this release step."""
    return node is not None and node.began_at is not None


def is_done(node: NodeView | None) -> bool:
    return node is not None and node.stage is NodeStage.DONE


def _times_of_batches(view: RunView, plan: Plan) -> Iterator[float]:
    """Yield the seconds of each batch with a node that is done, also of the rollback."""
    steps: list[ReleaseStep] = [
        one for step in plan.release_steps for one in ((step,) if step.restarts else (step, step.reversed()))
    ]
    for step in steps:
        for ids in step.node_ids_together:
            found = [view.nodes.get((step.key, one)) for one in ids]
            took = [one.took_s for one in found if one is not None and one.took_s is not None]
            if took:
                yield max(took)
