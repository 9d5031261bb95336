"""Approvals of a run: decisions, and why one no longer counts."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.run.events import (
    Answered,
    Approval,
    ApprovalOf,
    ApprovalRefuted,
    Asked,
    Begun,
    Decision,
    Event,
    TakenOver,
    Unknown,
    Voided,
    events_of,
    has,
)
from kafka_rollout.run.step_events import ContentsCompared

INVALID = "invalid"


def approvals(events: Sequence[Event]) -> tuple[Approval, ...]:
    """Return all decisions, oldest first."""
    return events_of(events, Approval)


def newest_decision(events: Sequence[Event], what: ApprovalOf, plan_hash: str) -> Approval | None:
    """Return the newest decision on `what` for the plan with this hash."""
    given = [one for one in approvals(events) if one.what == what and one.plan_hash == plan_hash]
    return given[-1] if given else None


def find_invalidity(events: Sequence[Event], approval: Approval) -> str:
    """Return why an approval no longer counts; empty if it does.

    A blocker that was found later makes it invalid, and so does an entry of the history that cannot be read: it can be
    such a blocker. An approval of the opposite direction supersedes it.
    """
    opposite = ApprovalOf.ROLL if approval.what == ApprovalOf.ROLL_BACK else ApprovalOf.ROLL_BACK
    why = ""
    for event in events:
        match event:
            case Approval() if event.what == approval.what and event.plan_hash == approval.plan_hash:
                why = ""
            case Approval() if event.what == opposite and event.decision == Decision.APPROVED:
                why = f"superseded: {event.by} approved the {opposite.noun()} after it"
            case Voided() if event.plan_hash == approval.plan_hash and approval.what != ApprovalOf.ROLL_BACK:
                why = f"{INVALID}: {'; '.join(event.blockers)}"
            case ContentsCompared() if approval.what == ApprovalOf.DIFFERENCES:
                why = "superseded: the cluster was compared again after it"
            case Unknown():
                why = f"{INVALID}: a later entry of the run history (kind {event.recorded_kind}) cannot be read"
    return why


def find_unconfirmed_approval(events: Sequence[Event]) -> str:
    """Return a sentence about the first approval in a DAG's run that was not given in Airflow; empty if there is none.

    An approval of Airflow follows the request that names the same record, or the answer that a retry read. An action
    compares it with the record itself. Approvals after a takeover are the shell's. Those of earlier versions name no
    record and do not count at an action.
    """
    if not has(events, Begun):
        return ""
    known = {asked.record_id for asked in events_of(events, Asked)}
    known |= {answer.responder.record_id for answer in events_of(events, Answered) if answer.responder is not None}
    for event in events:
        match event:
            case TakenOver():
                return ""
            case ApprovalRefuted():
                return event.sentence
            case Approval() if event.responder is not None and event.responder.record_id not in known:
                record_id = event.responder.record_id or "none"
                return (
                    f"The approval of the {event.what.noun()} by {event.by} was not given in Airflow: no task asked "
                    f"with its record ({record_id})."
                )
    return ""


def is_invalid(events: Sequence[Event], approval: Approval) -> bool:
    """Return whether a later blocker or an unreadable entry made an approval invalid."""
    return find_invalidity(events, approval).startswith(INVALID)
