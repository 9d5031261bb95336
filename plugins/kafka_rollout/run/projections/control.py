"""What an operator asked of a run while it was running: a pause, or its end before the next node."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.gates.check import GateKind
from kafka_rollout.model.plan import Plan
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    ApprovalRefuted,
    Decision,
    Event,
    PauseAsked,
    ResumeAsked,
    StopAsked,
    StoppedByOperator,
)
from kafka_rollout.run.step_events import GatePassed


def find_pause(events: Sequence[Event]) -> PauseAsked | None:
    """Return the pause that is in force; None after *resume*. A run that is stopped and continued stays paused."""
    asked = next((event for event in reversed(events) if isinstance(event, PauseAsked | ResumeAsked)), None)
    return asked if isinstance(asked, PauseAsked) else None


def find_stop(events: Sequence[Event]) -> StopAsked | None:
    """Return the request to end the run before the next node.

    None after the run has ended or was asked to resume, and after an approver decided to roll it back.
    """
    for event in reversed(events):
        match event:
            case StopAsked():
                return event
            case ResumeAsked() | StoppedByOperator() | Approval(what=ApprovalOf.ROLL_BACK, decision=Decision.APPROVED):
                return None
    return None


def find_pause_answer(events: Sequence[Event], plan: Plan) -> Approval | None:
    """Return the newest answer that continued this plan after a pause of it.

    An answer counts once, and not if Airflow does not confirm it.
    """
    found: list[Approval] = []
    for event in events:
        match event:
            case Approval(what=ApprovalOf.PAUSE, decision=Decision.APPROVED, plan_hash=plan.hash):
                given = event.responder
                if given is None or not given.record_id or given not in [one.responder for one in found]:
                    found.append(event)
            case ApprovalRefuted(what=ApprovalOf.PAUSE):
                found = [one for one in found if one.responder is None or one.responder.record_id != event.record_id]
    return found[-1] if found else None


def nodes_since_pause(events: Sequence[Event], plan: Plan) -> tuple[tuple[str, int], ...]:
    """Return the node steps (release step, node id) that are done since an approver continued this plan after a pause.

    Node steps of a rollback do not count.
    """
    release_steps = {step.key for step in plan.release_steps}
    answer = find_pause_answer(events, plan)
    done: dict[tuple[str, int], None] = {}
    for event in events:
        match event:
            case Approval() if event is answer:
                done.clear()
            case GatePassed(ref=ref) if ref.kind is GateKind.AFTER_START and ref.release_step in release_steps:
                done[str(ref.release_step), int(ref.node_id or 0)] = None
    return tuple(done)
