"""How long the node steps of a run have taken, and how long the others can take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from kafka_rollout.gates.check import GateKind, GateRef
from kafka_rollout.model.plan import Plan
from kafka_rollout.planning.batches import NODE_S
from kafka_rollout.run.events import Event, newest
from kafka_rollout.run.projections.gates import node_step_seconds
from kafka_rollout.run.step_events import (
    GateFailed,
    GatePassed,
    PreparingStop,
    Rehearsed,
    Started,
    Stopping,
    StopPrepared,
)


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
    """Return the expected seconds of the next node step: as the earlier ones took, or else the rehearsed ones.

    A node step counts from its last stop. One that waited for a person does not: its gate failed, or its node was
    started again.
    """
    if done := undisturbed_seconds(events):
        return median(done)
    rehearsed = newest(events, Rehearsed)
    return (median(rehearsed.node_seconds.values()) if rehearsed and rehearsed.node_seconds else NODE_S) + soak_s


def expected_commands_s(events: Sequence[Event], limit_s: float) -> float:
    """Return the expected seconds of a node's commands before its stop: as those with this limit last took in the run.

    Before the first ones, `limit_s`: a node must not be drained in a window that can close before its stop.
    """
    limits: dict[int, float] = {}
    took: dict[float, float] = {}
    for event in events:
        match event:
            case PreparingStop():
                limits[event.node_id] = event.at_most_s
            case StopPrepared():
                took[limits.get(event.node_id, 0.0)] = event.seconds
    return took.get(limit_s, limit_s)


def undisturbed_seconds(events: Sequence[Event]) -> list[float]:
    stopped: dict[GateRef, float] = {}
    started: set[GateRef] = set()
    found: dict[GateRef, float] = {}
    for event in events:
        match event:
            case Stopping() | Started():
                ref = GateRef(kind=GateKind.AFTER_START, release_step=event.release_step, node_id=event.node_id)
                if isinstance(event, Stopping):
                    stopped[ref] = event.at
                    started.discard(ref)
                    found.pop(ref, None)
                elif ref in started:
                    stopped.pop(ref, None)
                else:
                    started.add(ref)
            case GateFailed():
                stopped.pop(event.ref, None)
            case GatePassed() if event.ref in stopped:
                found[event.ref] = event.at - stopped[event.ref]
    return list(found.values())


def time_of_node_steps(events: Sequence[Event], plan: Plan, now: float) -> TimeOfNodeSteps | None:
    """Return the times; None before the first stop. During a rollback, the nodes that it has to visit are left.

    A batch takes as long as its slowest node. `now`: epoch seconds.
    """
    acts = [event for event in events if isinstance(event, Stopping | Started)]
    done = node_step_seconds(events)
    if not acts or not done:
        return None
    acted = {(act.release_step, act.node_id) for act in acts}
    goes_back = acts[-1].release_step not in {step.key for step in plan.release_steps}
    batches = [
        [f"{(step.reversed() if goes_back else step).key} node {node_id}" for node_id in node_ids]
        for step in plan.release_steps
        for ids in step.node_ids_together
        if (node_ids := [one for one in ids if not goes_back or (step.key, one) in acted])
    ]
    took = [max(seconds) for batch in _batches(plan) if (seconds := [done[one] for one in batch if one in done])]
    took = took or [*done.values()]
    left = [batch for batch in batches if not done.keys() >= set(batch)]
    return TimeOfNodeSteps(
        elapsed_s=now - acts[0].at,
        remaining_s=len(left) * median(took),
        at_least_s=len(left) * min(took),
        at_most_s=len(left) * max(took),
        left=sum(one not in done for batch in left for one in batch),
    )


def _batches(plan: Plan) -> list[list[str]]:
    """Return the node steps of each batch, also of the rollback; a node step alone without batches."""
    return [
        [f"{one.key} node {node_id}" for node_id in node_ids]
        for step in plan.release_steps
        for one in (step, step.reversed())
        for node_ids in one.node_ids_together
    ]
