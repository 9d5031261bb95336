"""Node steps of a run: stops and starts of each node, with their times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kafka_rollout.gates.check import GateKind, GateRef
from kafka_rollout.run.events import Event, events_of, has
from kafka_rollout.run.offline_events import LiveFailed, LiveLowered, OfflineStopping
from kafka_rollout.run.projections.gates import gate_is_passed
from kafka_rollout.run.step_events import GatePassed, PreparingStop, Started, Stopped, Stopping


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


def stop_asked_at(events: Sequence[Event], release_step: str, node_id: int) -> float | None:
    """Return the time of the last stop request for the node in this release step (epoch seconds)."""
    asked = [e.at for e in events_of(events, Stopping) if (e.release_step, e.node_id) == (release_step, node_id)]
    return asked[-1] if asked else None


def stop_is_unfinished(events: Sequence[Event], release_step: str, node_id: int) -> bool:
    """Return whether the run requested the stop and has not started the node since."""
    return isinstance(last_act_on_node(events, release_step, node_id), Stopping)


def last_act_at(events: Sequence[Event]) -> float:
    """Return the time at which the run last stopped or started a node (epoch seconds); 0 before the first stop."""
    return next((event.at for event in reversed(events) if isinstance(event, Stopping | Started)), 0.0)


def last_act_on_node(events: Sequence[Event], release_step: str, node_id: int) -> Stopping | Started | None:
    """Return the last stop request or start of the node; None if it was in another release step."""
    acts = (event for event in reversed(events) if isinstance(event, Stopping | Started) and event.node_id == node_id)
    last = next(acts, None)
    return last if last is not None and last.release_step == release_step else None


def stop_is_prepared(events: Sequence[Event], release_step: str, node_id: int) -> bool:
    """Return whether the run began the commands before the stop, and has not requested the stop since."""
    acts = [e for e in events if isinstance(e, PreparingStop | Stopping | Started) and e.node_id == node_id]
    return bool(acts) and isinstance(acts[-1], PreparingStop) and acts[-1].release_step == release_step


def find_last_node_event(events: Sequence[Event]) -> Stopping | Started | None:
    """Return the last stop request or start of any node."""
    return next((event for event in reversed(events) if isinstance(event, Stopping | Started)), None)


def find_stopped_nodes(events: Sequence[Event], *, since: float = 0.0) -> tuple[int, ...]:
    """Return the nodes that the run has stopped and not started, alone or all controllers of a live downgrade.

    `since`: epoch seconds; stops before it do not count.
    """
    down = set[int]()
    for event in events:
        match event:
            case Stopping() if event.at >= since:
                down.add(event.node_id)
            case OfflineStopping() if event.at >= since:
                down |= {*event.voters}
            case Started():
                down.discard(event.node_id)
            case LiveLowered() | LiveFailed():
                down.clear()
    return tuple(sorted(down))


def started_release_steps(events: Sequence[Event]) -> frozenset[str]:
    """Release steps in which the run started a node."""
    return frozenset(event.release_step for event in events_of(events, Started))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimes:
    """A node in one release step: epoch seconds of its first stop and start, seconds of the last of each."""

    stopping_at: float | None = None
    started_at: float | None = None
    stop_s: float | None = None
    start_s: float | None = None

    @property
    def began_at(self) -> float | None:
        return self.stopping_at if self.stopping_at is not None else self.started_at


def node_times(events: Sequence[Event], node_id: int) -> Mapping[str, NodeTimes]:
    """Release step → times, in the order in which the node went through them."""
    found: dict[str, NodeTimes] = {}
    for event in events:
        if not isinstance(event, Stopping | Stopped | Started) or event.node_id != node_id:
            continue
        times = found.get(event.release_step, NodeTimes())
        match event:
            case Stopping() if times.stopping_at is None:
                times = replace(times, stopping_at=event.at)
            case Stopped():
                times = replace(times, stop_s=event.seconds)
            case Started():
                first = event.at if times.started_at is None else times.started_at
                times = replace(times, started_at=first, start_s=event.seconds)
        found[event.release_step] = times
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpan:
    """One node step: from the stop to the start, and to the end of its gate (epoch seconds). None: not yet."""

    name: str
    began_at: float
    started_at: float | None
    ended_at: float | None


def node_spans(events: Sequence[Event], names: Mapping[int, str]) -> tuple[NodeSpan, ...]:
    """Return all node steps that began, oldest first. `names`: of the nodes, by their ids."""
    passed = {
        (event.ref.release_step, event.ref.node_id): event.at
        for event in events_of(events, GatePassed)
        if event.ref.kind is GateKind.AFTER_START
    }
    ids = dict.fromkeys(event.node_id for event in events if isinstance(event, Stopping | Started))
    spans = [
        NodeSpan(
            name=f"{names[node_id]} ({node_id})" if node_id in names else f"node {node_id}",
            began_at=times.began_at,
            started_at=times.started_at,
            ended_at=passed.get((step, node_id)) if times.started_at is not None else None,
        )
        for node_id in ids
        for step, times in node_times(events, node_id).items()
        if times.began_at is not None
    ]
    return complete_spans(spans, events)


def complete_spans(spans: Iterable[NodeSpan], events: Iterable[Event]) -> tuple[NodeSpan, ...]:
    """Return the node steps, oldest first, with the stops of all controllers by live downgrades among `events`.

    A node step that never passed its gate ends with the next one of its node: a rollback.
    """
    found: list[NodeSpan] = []
    for one in sorted(spans, key=lambda span: span.began_at, reverse=True):
        next_at = next((later.began_at for later in reversed(found) if later.name == one.name), None)
        started_at = next_at if one.started_at is None else one.started_at
        found.append(replace(one, started_at=started_at, ended_at=next_at if one.ended_at is None else one.ended_at))
    began_at: float | None = None
    for event in events:
        match event:
            case OfflineStopping():
                began_at = event.at
            case LiveLowered() | LiveFailed() if began_at is not None:
                switch = NodeSpan(name="all controllers", began_at=began_at, started_at=event.at, ended_at=event.at)
                found.append(switch)
                began_at = None
    return tuple(sorted(found, key=lambda span: span.began_at))


class NodeProgress(StrEnum):
    NOW = "now"
    DONE = "done"
    TO_COME = "to come"


def node_progress(events: Sequence[Event]) -> Mapping[tuple[str, int], NodeProgress]:
    """Return (release step, node id) → progress, for the node steps that have begun."""
    found: dict[tuple[str, int], NodeProgress] = {}
    for event in events:
        match event:
            case Stopping():
                found[(event.release_step, event.node_id)] = NodeProgress.NOW
            case GatePassed(ref=GateRef(kind=GateKind.AFTER_START, release_step=str(key), node_id=int(node_id))):
                found[(key, node_id)] = NodeProgress.DONE
    return found
