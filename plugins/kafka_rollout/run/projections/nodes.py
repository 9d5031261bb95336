"""Gates and node steps of a run: stops and starts of each node, with their times."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from statistics import median

from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.gates.node import is_back_in_isrs
from kafka_rollout.planning.batches import NODE_S
from kafka_rollout.run.events import Approval, Event, events_of, has, newest
from kafka_rollout.run.step_events import (
    GateChecked,
    GateFailed,
    GatePassed,
    LiveFailed,
    LiveLowered,
    OfflineStopping,
    OfflineUndone,
    PreparingStop,
    Rehearsed,
    Started,
    StartFinished,
    StartingWithCommands,
    Stopping,
    StopPrepared,
)
from kafka_rollout.run.traffic import CoveredVerdict, NodeStepTimes, TrafficVerdict, with_coverage


def gate_is_passed(events: Sequence[Event], ref: GateRef) -> bool:
    """Return whether the run has passed the gate since it last stopped or started the gate's node."""
    return times_passed([event for event in events if not isinstance(event, Approval)], ref) > 0


def times_passed(events: Sequence[Event], ref: GateRef) -> int:
    """Return how often the run has passed the gate since it last stopped or started the gate's node, or since an
    approver decided.
    """
    passed = 0
    for event in events:
        match event:
            case Approval():
                passed = 0
            case Stopping() | Started() if event.node_id == ref.node_id:
                passed = 0
            case GatePassed() if event.ref == ref:
                passed += 1
    return passed


def has_stopped_nodes(events: Sequence[Event]) -> bool:
    """Return whether the run has requested the stop of a node."""
    return has(events, Stopping)


def has_stopped_in_step(events: Sequence[Event], release_step: str, *, since: float = 0.0) -> bool:
    """Return whether the run has requested the stop of a node in this release step. `since`: epoch seconds."""
    return any(event.release_step == release_step and event.at >= since for event in events_of(events, Stopping))


def is_in_node_step(events: Sequence[Event], release_step: str, node_ids: Iterable[int]) -> bool:
    """Return whether one of these nodes was last stopped or started in this release step, and its gate after the start
    has not passed since.
    """
    return any(
        last_act_on_node(events, release_step, node_id) is not None
        and not gate_is_passed(events, GateRef(kind=GateKind.AFTER_START, release_step=release_step, node_id=node_id))
        for node_id in node_ids
    )


def has_acted_on_node(events: Sequence[Event], release_step: str, node_id: int) -> bool:
    """Return whether the run has stopped or started the node in this release step."""
    return any(
        isinstance(event, Stopping | Started) and (event.release_step, event.node_id) == (release_step, node_id)
        for event in events
    )


def stop_is_unfinished(events: Sequence[Event], release_step: str, node_id: int) -> bool:
    """Return whether the run requested the stop and has not started the node since."""
    return isinstance(last_act_on_node(events, release_step, node_id), Stopping)


def find_unfinished_nodes(events: Sequence[Event]) -> frozenset[int] | None:
    """Return the nodes that the run has stopped or started, and whose gate after the start has not passed since.

    None: every node can be one, because a downgrade that stops several nodes has not ended.
    """
    found: set[int] = set()
    all_stopped = False
    for event in events:
        match event:
            case OfflineStopping():
                all_stopped = True
            case LiveLowered() | LiveFailed() | OfflineUndone():
                all_stopped = False
            case Started():
                all_stopped = False
                found.add(event.node_id)
            case Stopping():
                found.add(event.node_id)
            case GatePassed() if event.ref.kind is GateKind.AFTER_START and event.ref.node_id is not None:
                found.discard(event.ref.node_id)
    return None if all_stopped else frozenset(found)


def behind_s(events: Sequence[Event], node_id: int, now: float) -> float:
    """Return the longest time in seconds, since its gate passed, in which nothing shows that the broker had read what
    others have; 0 if the run has not acted on it since. `now`: epoch seconds, if it has read it now.

    It begins with the first stop after the broker served: a node that hangs after a start does not read either. It ends
    where a check has seen the broker in the ISRs, because until then the log cleaner of a leader can remove what it has
    not read. After a stop of all nodes it begins with the first start, because no log cleaner ran before.
    """
    since = together = None
    is_behind = none_runs = False
    longest = 0.0
    for event in events:
        match event:
            case OfflineStopping():
                none_runs = True
            case GatePassed() if _is_after_start(event.ref, node_id):
                longest, since, is_behind = 0.0, event.at, False
            case GateChecked() if _is_after_start(event.ref, node_id):
                if not is_back_in_isrs(event.check):
                    is_behind = True
                    continue
                longest = max(longest, event.at - since) if is_behind and since is not None else longest
                since, is_behind = event.at, False
            case Stopping() if event.node_id == node_id:
                since, is_behind = event.at if not is_behind or since is None else since, True
            case Started():
                together, none_runs = event.at if none_runs else together, False
                if event.node_id == node_id:
                    since, is_behind = together if since is None else since, True
    return max(longest, now - since) if is_behind and since is not None else longest


def _is_after_start(ref: GateRef, node_id: int) -> bool:
    return ref.kind is GateKind.AFTER_START and ref.node_id == node_id


def last_act_at(events: Sequence[Event]) -> float:
    """Return the time at which the run last stopped or started a node (epoch seconds); 0 before the first stop."""
    return next((event.at for event in reversed(events) if isinstance(event, Stopping | Started)), 0.0)


def last_act_on_node(events: Sequence[Event], release_step: str, node_id: int) -> Stopping | Started | None:
    """Return the last stop request or start of the node; None if it was in another release step."""
    acts = (event for event in reversed(events) if isinstance(event, Stopping | Started) and event.node_id == node_id)
    last = next(acts, None)
    return last if last is not None and last.release_step == release_step else None


def unfinished_starts(events: Sequence[Event]) -> frozenset[int]:
    """Return the nodes whose commands after their last start have not ended without an error."""
    found: set[int] = set()
    for event in events:
        match event:
            case StartingWithCommands():
                found.add(event.node_id)
            case StartFinished():
                found.discard(event.node_id)
    return frozenset(found)


def stop_is_prepared(events: Sequence[Event], release_step: str, node_id: int) -> bool:
    """Return whether the run began the commands before the stop, and has not requested the stop since."""
    acts = [e for e in events if isinstance(e, PreparingStop | Stopping | Started) and e.node_id == node_id]
    return bool(acts) and isinstance(acts[-1], PreparingStop) and acts[-1].release_step == release_step


def find_last_node_event(events: Sequence[Event]) -> Stopping | Started | None:
    """Return the last stop request or start of any node."""
    return next((event for event in reversed(events) if isinstance(event, Stopping | Started)), None)


def started_release_steps(events: Sequence[Event]) -> frozenset[str]:
    """Release steps in which the run started a node."""
    return frozenset(event.release_step for event in events_of(events, Started))


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


def node_step_times(events: Sequence[Event]) -> tuple[NodeStepTimes, ...]:
    """Return when each node was asked to stop and was started again, also in a rollback, in the order of the stops."""
    found: dict[tuple[str, int], list[NodeStepTimes]] = {}
    for event in events:
        if not isinstance(event, (Stopping, Started)):
            continue
        steps = found.setdefault((event.release_step, event.node_id), [])
        if isinstance(event, Stopping):
            if not steps or steps[-1].started_at is not None:  # a repeated request is the same stop
                name = f"{event.release_step} node {event.node_id}"
                steps.append(NodeStepTimes(name=name, node_id=event.node_id, stopped_at=event.at, started_at=None))
        elif steps:
            steps[-1] = replace(steps[-1], started_at=event.at)
    return tuple(sorted((one for steps in found.values() for one in steps), key=lambda one: one.stopped_at))


def cover_node_steps(
    verdict: TrafficVerdict, events: Sequence[Event], brokers: Collection[int], *, planned: bool
) -> CoveredVerdict:
    """Return the result of the test traffic with the node steps of the run so far that it does not cover. `brokers`,
    `planned`: as in with_coverage."""
    return with_coverage(verdict, node_step_times(events), brokers, planned=planned)
