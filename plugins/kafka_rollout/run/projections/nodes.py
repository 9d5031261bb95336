"""Gates and node steps of a run: stops and starts of each node, with their times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

from kafka_rollout.gates.gate import GateCheck, GateKind, GateRef
from kafka_rollout.model.plan import Plan
from kafka_rollout.planning.batches import NODE_S
from kafka_rollout.run.events import Approval, ApprovalOf, Decision, Event, events_of, has, newest
from kafka_rollout.run.step_events import (
    GateChecked,
    GateFailed,
    GatePassed,
    LiveFailed,
    LiveLowered,
    OfflineStopping,
    PreparingStop,
    RegistrationsRead,
    Rehearsed,
    Started,
    Stopped,
    Stopping,
    StopPrepared,
)


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


class GateState(StrEnum):
    """The values are those of the report."""

    WAITS = "waits"
    PASSES = "passes"  # the newest check passed; the gate is still being watched
    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateHistory:
    """A gate and its recorded checks, oldest first. Times in epoch seconds."""

    ref: GateRef
    gate: str
    state: GateState = GateState.WAITS
    message: str = ""
    checks: tuple[GateCheck, ...] = ()
    passed_or_failed_at: float | None = None

    @property
    def began_at(self) -> float | None:
        return self.checks[0].at if self.checks else None

    @property
    def ended_at(self) -> float | None:
        """When the gate passed, failed or was last checked, whichever is later."""
        checked_at = self.checks[-1].at if self.checks else None
        return max((at for at in (self.passed_or_failed_at, checked_at) if at is not None), default=None)

    @property
    def waited_s(self) -> float | None:
        began, ended = self.began_at, self.ended_at
        return None if began is None or ended is None else ended - began

    @property
    def is_passed(self) -> bool:
        return self.state in {GateState.PASSED, GateState.PASSES}


def gate_histories(events: Sequence[Event]) -> tuple[GateHistory, ...]:
    """Return every gate that was checked, in the order of the first checks."""
    found: dict[GateRef, GateHistory] = {}
    for event in events:
        match event:
            case GateChecked(ref=ref, check=check):
                gate = found.get(ref, GateHistory(ref=ref, gate=check.gate))
                state = GateState.PASSES if check.passes else GateState.WAITS
                if check.passes and gate.state is GateState.PASSED:  # checked once more right before the act
                    state = GateState.PASSED
                found[ref] = replace(gate, checks=(*gate.checks, check), state=state)
            case GatePassed(ref=ref) | GateFailed(ref=ref):
                gate = found.get(ref, GateHistory(ref=ref, gate=event.gate))
                state = GateState.PASSED if isinstance(event, GatePassed) else GateState.FAILED
                found[ref] = replace(gate, state=state, message=event.message, passed_or_failed_at=event.at)
    return tuple(found.values())


def open_gates(events: Sequence[Event]) -> tuple[GateHistory, ...]:
    """Return the gates that have not passed and that the run has not left by a rollback, the newest check first.

    A history has the checks since the node was stopped or started last.
    """
    begins: dict[GateRef, int] = {}
    passed = set[GateRef]()
    for at, event in enumerate(events):
        match event:
            case GateChecked(ref=ref) if event.check.passes and ref in passed:  # once more right before the act
                continue
            case GateChecked(ref=ref) | GateFailed(ref=ref):
                passed.discard(ref)
                begins.setdefault(ref, at)
            case GatePassed(ref=ref):
                begins.pop(ref, None)
                passed.add(ref)
            case Stopping() | Started():
                begins = {ref: begin for ref, begin in begins.items() if ref.node_id != event.node_id}
                passed = {ref for ref in passed if ref.node_id != event.node_id}
            case (
                Approval(decision=Decision.ROLL_BACK) | Approval(what=ApprovalOf.ROLL_BACK, decision=Decision.APPROVED)
            ):
                begins = {}
    found = [
        gate_histories([one for one in events[begin:] if getattr(one, "ref", None) == ref])[0]
        for ref, begin in begins.items()
    ]
    return tuple(sorted(found, key=lambda gate: gate.ended_at or 0.0, reverse=True))


def node_step_seconds(events: Sequence[Event]) -> dict[str, float]:
    """Return release step and node (`3.9.1-to-4.3.1 node 2`) → seconds from the stop until the gate passed."""
    began: dict[str, float] = {}
    found: dict[str, float] = {}
    for event in events:
        match event:
            case Stopping():
                began.setdefault(f"{event.release_step} node {event.node_id}", event.at)
            case GatePassed() if event.ref.kind is GateKind.AFTER_START:
                key = f"{event.ref.release_step} node {event.ref.node_id}"
                if key in began:
                    found[key] = round(event.at - began[key], 1)
    return found


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
    """Return (release step, node id) → progress, for the node steps that have begun, or that are not needed."""
    found: dict[tuple[str, int], NodeProgress] = {}
    for event in events:
        match event:
            case Stopping():
                found[(event.release_step, event.node_id)] = NodeProgress.NOW
            case GatePassed(ref=GateRef(kind=GateKind.AFTER_START, release_step=str(key), node_id=int(node_id))):
                found[(key, node_id)] = NodeProgress.DONE
            case RegistrationsRead():
                found |= {(event.release_step, node_id): NodeProgress.DONE for node_id in event.seen.complete}
    return found


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
        if not (goes_back and step.restarts)
        for ids in step.node_ids_together
        if (node_ids := [one for one in ids if not goes_back or (step.key, one) in acted])
    ]
    together = [  # the node steps of each batch, also of the rollback
        [key for node_id in node_ids if (key := f"{one.key} node {node_id}") in done]
        for step in plan.release_steps
        for one in ((step,) if step.restarts else (step, step.reversed()))
        for node_ids in one.node_ids_together
    ]
    took = [max(done[key] for key in keys) for keys in together if keys] or [*done.values()]
    left = [batch for batch in batches if not done.keys() >= set(batch)]
    return TimeOfNodeSteps(
        elapsed_s=now - acts[0].at,
        remaining_s=len(left) * median(took),
        at_least_s=len(left) * min(took),
        at_most_s=len(left) * max(took),
        left=sum(one not in done for batch in left for one in batch),
    )
