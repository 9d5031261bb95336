"""Requests of a run and their answers: the open one, approvals and why one no longer counts, accepted differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.gates.gate import GateCheck
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    ApprovalRefuted,
    Asked,
    AskingEnded,
    Begun,
    Decision,
    Event,
    TakenOver,
    TaskFailed,
    Unknown,
    Voided,
    events_of,
    has,
)
from kafka_rollout.run.step_events import ComparedAfter, ContentsCompared, GateChecked, GatePassed, Started, Stopping

INVALID = "invalid"


def newest_decision(events: Sequence[Event], what: ApprovalOf, plan_hash: str) -> Approval | None:
    """Return the newest decision on `what` for the plan with this hash."""
    given = [one for one in events_of(events, Approval) if one.what == what and one.plan_hash == plan_hash]
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

    An approval of Airflow follows the request that names the same record. An action compares it with the record
    itself. Approvals after a takeover are the shell's.
    """
    if not has(events, Begun):
        return ""
    known = {asked.record_id for asked in events_of(events, Asked)}
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


def open_question(
    events: Sequence[Event], ended_at: float | None = None, *, has_lock: bool = True
) -> tuple[int, Asked] | None:
    """Return position and event of the request that no one has answered yet; also one whose time is over.

    `ended_at`: the end of the run by its report (epoch seconds); a request before it is closed. `has_lock`: without it,
    no terminal waits any more, because its process was killed.
    """
    closing = Approval | AskingEnded | TakenOver | TaskFailed | Started | Stopping | GatePassed
    for at in range(len(events) - 1, -1, -1):
        event = events[at]
        if isinstance(event, closing):
            return None
        if isinstance(event, Asked):
            is_over = ended_at is not None and ended_at >= event.at
            return None if is_over or (event.terminal is not None and not has_lock) else (at, event)
    return None


def asks_for_decision(asked: Asked) -> bool:
    """Return whether the run asks how to continue after a failure, and not for an approval."""
    return Decision.APPROVED.label not in asked.options


def who_can_answer(asked: Asked, dag_id: str) -> tuple[str, ...]:
    """Return Airflow's ids of the users who can answer, or one sentence. `dag_id`: empty if it is unknown."""
    return asked.users or (f"everyone who can change the DAG {dag_id or 'of the run'}",)


def subject_of(asked: Asked) -> str:
    """Return the first line of the request. The other lines can have settings of the cluster."""
    return asked.text.partition("\n")[0].strip()


def newest_comparison(events: Sequence[Event], after: ComparedAfter) -> ContentsCompared | None:
    """Return the newest comparison after the roll, or after the change of the levels."""
    return next((one for one in reversed(events_of(events, ContentsCompared)) if one.after == after), None)


def accepted_digests(events: Sequence[Event], plan_hash: str) -> frozenset[str]:
    """Return the digests of the differences that are accepted: each decision is about the newest comparison before."""
    accepted: set[str] = set()
    compared = ""
    for event in events:
        match event:
            case ContentsCompared():
                compared = event.digest
            case Approval() if event.what == ApprovalOf.DIFFERENCES and event.plan_hash == plan_hash:
                if event.decision == Decision.APPROVED:
                    accepted.add(compared)
                else:
                    accepted.discard(compared)
    return frozenset(accepted - {""})


def find_unaccepted(events: Sequence[Event], plan_hash: str) -> ContentsCompared | None:
    """Return the newest comparison if it found differences that no approver accepted."""
    compared = events_of(events, ContentsCompared)
    if not compared or not compared[-1].digest:
        return None
    return None if compared[-1].digest in accepted_digests(events, plan_hash) else compared[-1]


def find_acceptances(events: Sequence[Event], plan_hash: str) -> Mapping[str, Approval]:
    """Return doubt → the newest acceptance, of the doubts about logs that an approver has accepted.

    A doubt is about one process, so an acceptance ends with it. One that Airflow does not confirm does not count.
    """
    accepted: dict[str, Approval] = {}
    for event in events:
        match event:
            case Approval(what=ApprovalOf.NODE_LOG, decision=Decision.APPROVED) if event.plan_hash == plan_hash:
                accepted |= dict.fromkeys(event.text.splitlines(), event)
            case ApprovalRefuted(what=ApprovalOf.NODE_LOG):
                record_ids = {doubt: one.responder and one.responder.record_id for doubt, one in accepted.items()}
                accepted = {doubt: one for doubt, one in accepted.items() if record_ids[doubt] != event.record_id}
    return accepted


def find_doubts(events: Sequence[Event]) -> tuple[str, ...]:
    """Return what an approver can accept of the last checks of the gates that have not passed."""
    failed: dict[str, GateCheck | None] = {}
    for event in events:
        match event:
            case GateChecked():
                failed[f"{event.ref.release_step} {event.ref}"] = event.check
            case GatePassed():
                failed[f"{event.ref.release_step} {event.ref}"] = None
    return tuple(dict.fromkeys(one for check in failed.values() if check and not check.passes for one in check.doubts))
