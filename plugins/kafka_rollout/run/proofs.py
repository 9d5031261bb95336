"""What the history of a run proves about its end. Each outcome, and all that follows from it, needs this proof.

The release that a node runs does not prove that the node serves: its gate after the start does. A gate or a comparison
counts if it is newer than the last change of what it is about. Each function returns what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kafka_rollout.base.wording import few, nodes
from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.model.plan import BatchStep, Lowering, Plan
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.run import events as events_of_run
from kafka_rollout.run.batch_progress import describe_batch
from kafka_rollout.run.events import Event, StepBegan, StepEnded, StepOutcome, newest
from kafka_rollout.run.projections.nodes import unfinished_starts
from kafka_rollout.run.projections.open_batches import RollOf, batches_of, first_open_batch
from kafka_rollout.run.step_events import (
    ContentsCompared,
    FeatureRace,
    GateChecked,
    GatePassed,
    LiveLowered,
    OfflineStopping,
    Started,
    Stopping,
    TrafficCompared,
    TrafficNotFound,
)
from kafka_rollout.run.traffic import OF_TRAFFIC
from kafka_rollout.run.view import CHANGES

NODE_ACTS = (Stopping, Started, OfflineStopping, LiveLowered)
_ANY_CHANGE = (*CHANGES, Started)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What the history does not prove."""

    sentence: str
    """A clause: `the gate after the start has not passed for batch 2 of 6 (node 3)`."""
    remedy: str


def events_since_change(events: Sequence[Event], kinds: tuple[type[Event], ...] = _ANY_CHANGE) -> Sequence[Event]:
    """Return the events after the last one of these kinds, by default after the last change of nodes or levels."""
    last = max((number for number, event in enumerate(events) if isinstance(event, kinds)), default=-1)
    return events[last + 1 :]


def find_open_gate(events: Sequence[Event], plan: Plan) -> Gap | None:
    """Return the first batch of the plan with a node whose gate after the start has not passed since its last start."""
    batches, seen = _batches(events, plan, RollOf.PLAN, RollOf.OFFLINE)
    index = first_open_batch(seen, batches)
    if index == len(batches):
        return None
    return Gap(
        sentence=f"the gate after the start has not passed for {describe_batch(batches, index)}",
        remedy="Clear roll.gate_after of this batch with all downstream tasks, or repeat the command of the run.",
    )


def find_unreturned(events: Sequence[Event], plan: Plan) -> str:
    """Return, as a clause, which nodes that the run touched have no passed gate on the plan's source since their last
    start; empty if all have.
    """
    back = {step.reversed().key for step in plan.release_steps if step.from_release == plan.source}
    batches, seen = _batches(events, plan, RollOf.ROLLBACK, RollOf.OFFLINE_UNDO)
    left = {node_id for batch in batches[first_open_batch(seen, batches) :] for node_id in batch.node_ids}
    for event in events:
        match event:
            case Stopping() | Started():
                left.add(event.node_id)
            case GatePassed(ref=GateRef(kind=GateKind.AFTER_START, release_step=str(key), node_id=int(node_id))):
                left -= {node_id} if key in back else set()
    return f"the gate after the start on {plan.source} has not passed for {nodes(left)}" if left else ""


def find_unfinished_starts(events: Sequence[Event], cluster: ClusterSpec) -> Gap | None:
    """Return the nodes whose commands after their last start have not ended without an error, if they have any now."""
    due = unfinished_starts(events)
    left = [node.node_id for node in cluster.nodes if node.node_id in due and node.commands_after_start]
    if not left:
        return None
    return Gap(
        sentence=f"the commands after the start of {nodes(left)} have not ended without an error",
        remedy="Fix after_start in the inventory, or what it needs. Then repeat the command of the run, or clear the "
        "task that started these nodes with all downstream tasks: it runs the commands again.",
    )


def find_uncompared(events: Sequence[Event], kinds: tuple[type[Event], ...] = _ANY_CHANGE) -> Gap | None:
    """Return that the cluster was not compared with its state before the run since the last event of these kinds."""
    since = events_since_change(events, kinds)
    if len(since) == len(events) or any(isinstance(event, ContentsCompared) for event in since):
        return None
    what = "start" if kinds == NODE_ACTS else "change"
    return Gap(
        sentence=f"the cluster was not compared with its state before the run since the last {what}",
        remedy="Clear compare_after_roll with all downstream tasks, or repeat the command of the run.",
    )


def find_unproved_roll(events: Sequence[Event], plan: Plan) -> Gap | None:
    """Return why the plan's roll is not proved: a gate after a start, or the comparison after the last start."""
    if not plan.release_steps:
        return None
    return find_open_gate(events, plan) or find_uncompared(events, NODE_ACTS)


def missing_gates(events: Sequence[Event], kinds: Sequence[GateKind]) -> tuple[GateKind, ...]:
    """Return the kinds of which no gate has passed since the last change of nodes or levels."""
    passed = {event.ref.kind for event in events_since_change(events) if isinstance(event, GatePassed)}
    return tuple(kind for kind in kinds if kind not in passed)


def find_race(events: Sequence[Event]) -> FeatureRace | None:
    """Return the newest check for nodes with a narrower range since the last change; None without one."""
    return newest(events_since_change(events), FeatureRace)


def find_refused_nodes(events: Sequence[Event]) -> str:
    """Return, as a clause, why the running nodes did not allow to raise levels, by the newest check of them; empty if
    they did.
    """
    checks = [
        event.check
        for event in events_since_change(events)
        if isinstance(event, GateChecked) and event.ref.kind is GateKind.NODES
    ]
    return checks[-1].waits_for if checks else ""


def find_failed_traffic(events: Sequence[Event], accepted: Collection[str] = ()) -> Gap | None:
    """Return that the newest check of the test traffic did not pass; None if it did, or before the first one.

    `accepted`: sentences of it that an approver accepted.
    """
    compared = newest(events, TrafficCompared)
    why = [one for one in (compared.verdict.unproved if compared else ()) if one not in accepted]
    return _traffic_gap(few([one.removeprefix(OF_TRAFFIC).removesuffix(".") for one in why])) if why else None


def find_traffic_gap(events: Sequence[Event]) -> Gap | None:
    """Return why the check of the test traffic did not pass; None if it did, or if the run started no traffic."""
    if is_traffic_unchecked(events):
        return _traffic_gap("its records were not compared since the last change")
    return find_failed_traffic(events)


def is_traffic_unchecked(events: Sequence[Event]) -> bool:
    """Return whether the run has started test traffic that was not compared since, or since the last change."""
    compared = [number for number, event in enumerate(events) if isinstance(event, TrafficCompared)]
    since = events[compared[-1] :] if compared else ()
    return has_open_traffic(events) or any(isinstance(event, _ANY_CHANGE) for event in since)


def has_open_traffic(events: Sequence[Event]) -> bool:
    """Return whether test traffic was started and not compared since, also by a call that was killed.

    Such a call can have started it, and not have recorded that.
    """
    was_not_started = False
    for event in reversed(events):
        match event:
            case TrafficCompared() | TrafficNotFound():
                return False
            case StepEnded(step=events_of_run.START_TRAFFIC, outcome=StepOutcome.DONE):
                return True
            case StepEnded(step=events_of_run.START_TRAFFIC):
                was_not_started = True
            case StepBegan(step=events_of_run.START_TRAFFIC):
                if not was_not_started:
                    return True
                was_not_started = False
    return False


def _traffic_gap(why: str) -> Gap:
    return Gap(
        sentence=f"the check of the test traffic did not pass: {why}",
        remedy="Read the journals of the test traffic. To go on, ask for the approval to finalize again, whose text "
        "lists this: clear approve_finalize with all downstream tasks, and answer on the page *Kafka rollout*, or "
        "repeat the command of the run with --as NAME. Otherwise roll back.",
    )


def _batches(
    events: Sequence[Event], plan: Plan, online: RollOf, offline: RollOf
) -> tuple[tuple[BatchStep, ...], Sequence[Event]]:
    """Return the batches, and the events that count for them: with all nodes down, no earlier gate does."""
    if plan.lowering is Lowering.OFFLINE:
        return batches_of(offline, events, plan), events_since_change(events, (OfflineStopping,))
    return batches_of(online, events, plan), events
