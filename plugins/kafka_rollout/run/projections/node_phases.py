"""The phase of each node of a run: from its wait for the stop to its passed gate, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kafka_rollout.gates.gate import ANSWERS, PROCESS, GateKind
from kafka_rollout.model.plan import Lowering, Plan, ReleaseStep
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Event, TaskFailed
from kafka_rollout.run.step_events import (
    GateChecked,
    GateEnded,
    GateFailed,
    GatePassed,
    LiveFailed,
    LiveLowered,
    NodeEvent,
    OfflineStopping,
    PreparingStop,
    Started,
    Stopped,
    Stopping,
    StopPrepared,
)


class NodePhase(StrEnum):
    """The values are the words that the page shows."""

    WAITING = "waiting"
    GATE_BEFORE = "waiting for its gate"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    CATCHING_UP = "catching up"
    DONE = "done"
    FAILED = "failed"
    ROLLED_BACK = "rolled back"
    UNCHANGED = "unchanged"  # the run goes back, or has ended, and never stopped it


_SWITCHED = "stopped with all controllers, to lower metadata.version"
UNDER_WAY = frozenset({NodePhase.STOPPING, NodePhase.STOPPED, NodePhase.STARTING, NodePhase.CATCHING_UP})
"""The run works on the node, and has requested its stop or prepares it."""
_COMMANDS = "commands before the stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """`release`: that the node runs, or last ran; `target`: of its release step, empty if nothing is left for it.

    `since`: when the phase began, `began_at`: the stop, `ended_at`: the passed gate (epoch seconds). `note`: the unmet
    conditions or the failure. `is_down`: it was stopped, and its gate has not passed since.
    """

    node_id: int
    name: str
    phase: NodePhase
    release: Release
    target: Release | None = None
    release_step: str = ""
    since: float | None = None
    began_at: float | None = None
    ended_at: float | None = None
    note: str = ""
    is_down: bool = False


def node_statuses(events: Sequence[Event], plan: Plan | None, *, has_ended: bool = False) -> tuple[NodeStatus, ...]:
    """Return the nodes of the plan in the order of its first release step. `has_ended`: the run is over."""
    if plan is None or not plan.release_steps:
        return ()
    forth = {step.key: step for step in plan.release_steps}
    back = {step.reversed().key: step.reversed() for step in plan.release_steps if not step.restarts}
    steps = {**back, **forth}
    found = {
        one.node_id: NodeStatus(
            node_id=one.node_id,
            name=one.name,
            phase=NodePhase.WAITING,
            release=plan.release_steps[0].from_release,
            target=plan.release_steps[0].to_release,
        )
        for step in plan.release_steps
        for one in step.order
    }
    current = plan.release_steps[0]
    for event in events:
        if isinstance(event, TaskFailed):
            for status in found.values():
                if status.phase in UNDER_WAY:
                    note = event.sentence
                    found[status.node_id] = replace(status, phase=NodePhase.FAILED, since=event.at, note=note)
            continue
        if plan.lowering is Lowering.LIVE and isinstance(event, OfflineStopping | LiveLowered | LiveFailed):
            _switch_controllers(found, event)
            continue
        node_id, key = _subject(event)
        if node_id is None or node_id not in found or key not in steps:
            continue
        current = steps[key]
        found[node_id] = _after(found[node_id], event, current, goes_back=key not in forth)
    is_back = current.key not in forth
    return tuple(_seen_from(status, current, is_back=is_back, has_ended=has_ended) for status in found.values())


def _switch_controllers(found: dict[int, NodeStatus], event: OfflineStopping | LiveLowered | LiveFailed) -> None:
    """Change the controllers, which a live downgrade stops together, before the release step of each."""
    for node_id in [one for one in event.voters if one in found] if isinstance(event, OfflineStopping) else []:
        found[node_id] = replace(found[node_id], phase=NodePhase.STOPPED, since=event.at, note=_SWITCHED, is_down=True)
    for status in [*found.values()] if not isinstance(event, OfflineStopping) else []:
        if status.note == _SWITCHED:
            found[status.node_id] = replace(status, phase=NodePhase.WAITING, since=None, note="", is_down=False)


def _subject(event: Event) -> tuple[int | None, str | None]:
    match event:
        case NodeEvent():
            return event.node_id, event.release_step
        case GateChecked() | GateEnded():
            return event.ref.node_id, event.ref.release_step
    return None, None


def _after(status: NodeStatus, event: Event, step: ReleaseStep, *, goes_back: bool) -> NodeStatus:
    """Return the status of a node after one of its events in the release step `step`."""
    if status.release_step != step.key:
        status = replace(status, release_step=step.key, target=step.to_release, began_at=None, ended_at=None)

    def turn(phase: NodePhase, note: str = "") -> NodeStatus:
        since = status.since if phase is status.phase else event.at
        return replace(status, phase=phase, since=since, note=note)

    match event:
        case PreparingStop() | StopPrepared():
            return replace(turn(NodePhase.STOPPING, _COMMANDS), began_at=status.began_at or event.at)
        case Stopping():
            return replace(turn(NodePhase.STOPPING), began_at=status.began_at or event.at, is_down=True)
        case Stopped():
            return replace(turn(NodePhase.STOPPED), is_down=True)
        case Started():
            begun = status.began_at or event.at
            return replace(turn(NodePhase.STARTING), release=step.to_release, began_at=begun, is_down=True)
        case GateChecked() if event.ref.kind is GateKind.BEFORE_STOP:
            if status.note == _COMMANDS and not event.check.passes:  # the commands have ended, or were killed
                status = replace(status, began_at=None)
            elif status.phase in UNDER_WAY:
                return status
            return turn(NodePhase.GATE_BEFORE, event.check.waits_for)
        case GateChecked():
            unmet = {one.name for one in event.check.conditions if not one.is_met}
            phase = NodePhase.STARTING if unmet & {PROCESS, ANSWERS} else NodePhase.CATCHING_UP
            if status.phase is NodePhase.DONE:  # checked once more right before the next act
                return status
            return turn(phase, event.check.waits_for)
        case GatePassed() if event.ref.kind is GateKind.AFTER_START:
            phase = NodePhase.ROLLED_BACK if goes_back else NodePhase.DONE
            return replace(
                turn(phase), release=step.to_release, since=event.at, ended_at=event.at, is_down=False, target=None
            )
        case GateFailed():
            return replace(turn(NodePhase.FAILED, event.message), since=event.at)
    return status


def _seen_from(status: NodeStatus, current: ReleaseStep, *, is_back: bool, has_ended: bool) -> NodeStatus:
    """Return the status in the release step that the run works on now. `is_back`: it is a rollback."""
    settled = {NodePhase.WAITING, NodePhase.DONE, NodePhase.ROLLED_BACK}
    if status.phase not in settled or status.release_step == current.key:
        return status
    was_touched = bool(status.release_step)
    if has_ended or (is_back and not was_touched):
        return status if was_touched else replace(status, phase=NodePhase.UNCHANGED, target=None)
    if is_back and status.release != current.from_release:
        return status
    return replace(status, phase=NodePhase.WAITING, target=current.to_release, began_at=None, ended_at=None)
