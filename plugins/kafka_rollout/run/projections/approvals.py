"""Requests of a run and their answers: the open one, approvals and why one no longer counts, accepted differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.base.outside_text import is_listed
from kafka_rollout.gates.gate import GateCheck, GateKind
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    ApprovalRefuted,
    Asked,
    AskingEnded,
    Begun,
    Decision,
    Event,
    Planned,
    RollbackAskedAgain,
    TakenOver,
    events_of,
    find_text,
    has,
    newest,
)
from kafka_rollout.run.step_events import (
    ComparedAfter,
    ContentsCompared,
    EarlierRunsRead,
    GateChecked,
    GatePassed,
    TrafficChecked,
)
from kafka_rollout.run.view import INVALID, RunView


def newest_decision(events: Sequence[Event], what: ApprovalOf, plan_hash: str) -> Approval | None:
    """Return the newest decision on `what` for the plan with this hash."""
    decided = RunView.of(events).decisions.get((what, plan_hash))
    return None if decided is None else decided[0]


def find_invalidity(events: Sequence[Event], approval: Approval) -> str:
    """Return why an approval no longer counts; empty if it does (`RunView.decisions`)."""
    decided = RunView.of(events).decisions.get((approval.what, approval.plan_hash))
    return "" if decided is None else decided[1]


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


def find_unaccepted_of_rollback(events: Sequence[Event], plan_hash: str, sentences: Sequence[str]) -> tuple[str, ...]:
    """Return those of the sentences that the newest approval of the rollback does not accept.

    It accepts what its text lists, and what the approver was asked again about before.
    """
    given, read, again = None, frozenset[str](), set[str]()
    for event in events:
        match event:
            case RollbackAskedAgain():
                again.update(event.sentences)
            case Approval(what=ApprovalOf.ROLL_BACK) if event.plan_hash == plan_hash:
                given, read, again = event, frozenset(again), set()
    if given is None or given.decision != Decision.APPROVED:
        return tuple(sentences)
    return tuple(one for one in sentences if one not in read and not is_listed(given.text, one))


def is_refuted(events: Sequence[Event], approval: Approval) -> bool:
    """Return whether a later event says that Airflow's record does not confirm the approval.

    Their order decides, because the clocks of two hosts can differ.
    """
    record_id = "" if approval.responder is None else approval.responder.record_id
    for event in reversed(events):
        if event == approval:
            return False
        if isinstance(event, ApprovalRefuted) and (event.what, event.record_id) == (approval.what, record_id):
            return True
    return False


def events_read(events: Sequence[Event], plan_hash: str, *of: ApprovalOf) -> Sequence[Event]:
    """Return the history from which the text of the newest approval `of` the plan was made; empty without one.

    An approval that another answer renewed keeps its text.
    """
    for at in range(len(events) - 1, -1, -1):
        event = events[at]
        if isinstance(event, Approval) and event.what in of and event.plan_hash == plan_hash:
            text = find_text(events, at) if event.decision == Decision.APPROVED else None
            if text is not None:
                return events[:text]
    return ()


def has_readers(events: Sequence[Event], plan_hash: str, *of: ApprovalOf) -> bool:
    """Return whether an approver has approved one `of` these for the plan, or reads a request for it now."""
    reads = False
    for event in events:
        match event:
            case Approval() if event.what in of and event.plan_hash == plan_hash:
                if event.decision == Decision.APPROVED:
                    return True
                reads = False
            case Asked() if event.what in of:
                reads = True
            case AskingEnded() | Planned():
                reads = False
    return reads


def is_invalid(events: Sequence[Event], approval: Approval) -> bool:
    """Return whether a later blocker or an unreadable entry made an approval invalid."""
    return find_invalidity(events, approval).startswith(INVALID)


def asks_for_decision(asked: Asked) -> bool:
    """Return whether the run asks how to continue after a failure, and not for an approval."""
    return asked.what is ApprovalOf.FAILED_GATE


def who_can_answer(asked: Asked, dag_id: str) -> tuple[str, ...]:
    """Return Airflow's ids of the users who can answer, or one sentence. `dag_id`: empty if it is unknown."""
    return asked.users or (f"everyone who can change the DAG {dag_id or 'of the run'}",)


def newest_comparison(events: Sequence[Event], after: ComparedAfter) -> ContentsCompared | None:
    """Return the newest comparison after the roll, or after the change of the levels."""
    return next((one for one in reversed(events_of(events, ContentsCompared)) if one.after == after), None)


def find_acceptances(events: Sequence[Event], plan_hash: str) -> Mapping[str, Approval]:
    """Return doubt → the newest acceptance, of the doubts about logs that an approver has accepted, by the history.

    A doubt is about one process, so an acceptance ends with it, or about a layout that no gate can read, in the logs of
    all brokers. `accepted_doubts` proves them (control/approval.py).
    """
    given = (one for one in events_of(events, Approval) if one.doubts and one.plan_hash == plan_hash)
    counting = [one for one in given if one.decision == Decision.APPROVED and not is_refuted(events, one)]
    return {doubt: one for one in counting for doubt in one.doubts}


def find_doubts_of_nodes(events: Sequence[Event]) -> tuple[str, ...]:
    """Return what the approval to raise levels accepts: the doubts of the newest check of the running nodes."""
    seen = next((one for one in reversed(events_of(events, GateChecked)) if one.ref.kind is GateKind.NODES), None)
    return () if seen is None or seen.check is None or seen.check.passes else tuple(dict.fromkeys(seen.check.doubts))


def find_doubts_of_traffic(events: Sequence[Event]) -> tuple[str, ...]:
    """Return what the newest comparison of the test traffic so far did not prove."""
    seen = newest(events, TrafficChecked)
    return () if seen is None else seen.unproved


def find_doubts_of_runs(events: Sequence[Event]) -> tuple[str, ...]:
    """Return what other runs left open, by the newest reading of their histories."""
    seen = newest(events, EarlierRunsRead)
    return () if seen is None else seen.unaccepted


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
