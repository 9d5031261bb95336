"""A run as a whole: its kind, its owner, its last failure and its end, and what an operator asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_rollout.gates.gate import GateKind
from kafka_rollout.model.plan import Plan, reversed_key
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    ApprovalRefuted,
    Begun,
    Decision,
    Event,
    PauseAsked,
    Planned,
    Responder,
    ResumeAsked,
    StopAsked,
    StoppedByOperator,
    Voided,
    events_of,
    has,
    newest,
)
from kafka_rollout.run.step_events import (
    GatePassed,
    Started,
    Stopping,
)
from kafka_rollout.run.view import CHANGES


def run_of(events: Sequence[Event]) -> RunOf:
    """Return what the run changes, by its first plan; an upgrade before the first plan."""
    return next((planned.run_of for planned in events_of(events, Planned)), RunOf.UPGRADE)


def find_dag_id(events: Sequence[Event]) -> str:
    """Return the id of the DAG of the run; empty for a run of the command line."""
    return next((begun.dag_id for begun in events_of(events, Begun)), "")


def has_plan(events: Sequence[Event]) -> bool:
    return has(events, Planned)


def find_planned(events: Sequence[Event], plan_hash: str) -> Planned | None:
    """Return the newest event of the plan with this hash."""
    return newest([planned for planned in events_of(events, Planned) if planned.plan_hash == plan_hash], Planned)


def has_acted(events: Sequence[Event]) -> bool:
    """Return whether the run has changed the cluster, or tried to."""
    return has(events, *CHANGES)


def is_plan_refused(events: Sequence[Event], plan: Plan) -> bool:
    """Return whether the run changed nothing, because its plan has blockers or a later finding refused the plan."""
    if has_acted(events):
        return False
    planned = max((at for at, event in enumerate(events) if isinstance(event, Planned)), default=-1)
    return bool(plan.blockers) or any(isinstance(event, Voided) for event in events[planned + 1 :])


_ROLLS_BACK = (ApprovalOf.ROLL_BACK, Decision.APPROVED)
QUIET_S = 120.0  # an active run records something, or holds the lock
_SAME_TIME_S = 1.0  # a report is written right after the last event


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run by its report."""

    outcome: str = ""
    """A value of `report.run_report.Outcome`."""
    sentence: str = ""
    ended_at: float = 0.0
    """Epoch seconds."""

    def is_newest(self, last_at: float | None) -> bool:
        """Return whether nothing happened since. `last_at`: time of the newest event."""
        return last_at is None or self.ended_at >= last_at - _SAME_TIME_S


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

    An answer counts once, not if Airflow does not confirm it, and not after an approved rollback: when the plan is
    carried out again, it pauses again.
    """
    found, seen = list[Approval](), list[Responder]()
    for event in events:
        match event:
            case Approval(what=ApprovalOf.PAUSE, decision=Decision.APPROVED, plan_hash=plan.hash):
                given = event.responder
                if given is None or not given.record_id or given not in seen:
                    found.append(event)
                if given is not None:
                    seen.append(given)
            case Approval() if (event.what, event.decision) == _ROLLS_BACK:
                found.clear()
            case ApprovalRefuted(what=ApprovalOf.PAUSE):
                found = [one for one in found if one.responder is None or one.responder.record_id != event.record_id]
    return found[-1] if found else None


def nodes_since_pause(events: Sequence[Event], plan: Plan) -> tuple[tuple[str, int], ...]:
    """Return the node steps (release step, node id) that are done since an approver continued this plan after a pause.

    Node steps of a rollback do not count, nor do those that it undoes.
    """
    release_steps = {step.key for step in plan.release_steps}
    answer = find_pause_answer(events, plan)
    done: dict[tuple[str, int], None] = {}
    for event in events:
        match event:
            case Approval() if event is answer:
                done.clear()
            case Stopping() | Started():
                done.pop((reversed_key(event.release_step), event.node_id), None)
            case GatePassed(ref=ref) if ref.kind is GateKind.AFTER_START and ref.release_step in release_steps:
                done[str(ref.release_step), int(ref.node_id or 0)] = None
    return tuple(done)
