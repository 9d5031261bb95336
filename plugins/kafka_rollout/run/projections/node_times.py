"""How long the node steps of a run have taken, and how long the others can take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from kafka_rollout.model.plan import Plan
from kafka_rollout.planning.batches import NODE_S
from kafka_rollout.run.events import Event, newest
from kafka_rollout.run.projections.gates import node_step_seconds
from kafka_rollout.run.step_events import Rehearsed, Started, Stopping


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOfNodeSteps:
    """Seconds since the run's first stop, and the estimate for the node steps that are left (0: none is left).

    `at_least_s` and `at_most_s`: if each took as long as the fastest or the slowest one so far. `left`: their number.
    """

    elapsed_s: float
    remaining_s: float
    at_least_s: float = 0.0
    at_most_s: float = 0.0
    left: int = 0


def expected_node_step_s(events: Sequence[Event], soak_s: float) -> float:
    """Return the expected seconds of the next node step: as the earlier ones took, or else the rehearsed ones."""
    if done := node_step_seconds(events):
        return median(done.values())
    rehearsed = newest(events, Rehearsed)
    return (median(rehearsed.node_seconds.values()) if rehearsed and rehearsed.node_seconds else NODE_S) + soak_s


def time_of_node_steps(events: Sequence[Event], plan: Plan, now: float) -> TimeOfNodeSteps | None:
    """Return the times; None before the first stop. During a rollback, the nodes that it has to visit are left.

    `now`: epoch seconds.
    """
    acts = [event for event in events if isinstance(event, Stopping | Started)]
    done = node_step_seconds(events)
    if not acts or not done:
        return None
    planned = {f"{step.key} node {one.node_id}" for step in plan.release_steps for one in step.order}
    back = {
        f"{step.reversed().key} node {act.node_id}"
        for step in plan.release_steps
        for act in acts
        if act.release_step == step.key
    }
    goes_back = acts[-1].release_step not in {step.key for step in plan.release_steps}
    left = len((back if goes_back else planned) - done.keys())
    times = done.values()
    return TimeOfNodeSteps(
        elapsed_s=now - acts[0].at,
        remaining_s=left * median(times),
        at_least_s=left * min(times),
        at_most_s=left * max(times),
        left=left,
    )
