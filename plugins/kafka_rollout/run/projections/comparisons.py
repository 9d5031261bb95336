"""Comparisons of the cluster with its state before the run, and their differences that an approver accepted."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.run.events import Approval, ApprovalOf, Decision, Event, events_of
from kafka_rollout.run.step_events import ComparedAfter, ContentsCompared


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
