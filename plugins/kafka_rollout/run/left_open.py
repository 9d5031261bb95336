"""What a run leaves open for the runs after it: differences and test traffic that no approver of it accepted.

The state before a later run lacks what is lost already, so no comparison of that run shows it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.base.wording import count
from kafka_rollout.gates.gate import GateKind, GateRef
from kafka_rollout.run.events import (
    Approval,
    ApprovalRefuted,
    Asked,
    AskingEnded,
    Decision,
    Event,
    Planned,
    events_of,
    newest,
)
from kafka_rollout.run.projections.approvals import is_refuted
from kafka_rollout.run.proofs import NODE_ACTS, find_uncompared
from kafka_rollout.run.step_events import (
    ContentsCompared,
    GatePassed,
    RollbackPlanned,
    Started,
    Stopping,
    TrafficChecked,
    TrafficCompared,
)
from kafka_rollout.run.view import RunView

EVENTS_READ: tuple[type[Event], ...] = (
    *NODE_ACTS,
    Approval,
    ApprovalRefuted,
    Asked,
    AskingEnded,
    ContentsCompared,
    GatePassed,
    Planned,
    RollbackPlanned,
    TrafficChecked,
    TrafficCompared,
)
"""What `find_left_open` and `find_accepted_lines` need of a history."""


def find_left_open(events: Sequence[Event]) -> tuple[str, ...]:
    """Return what the run has found and no approver of it has accepted, as sentences. After a complete rollback only
    the comparison after it counts: the release that carried the test traffic is gone.
    """
    planned, view = newest(events, Planned), RunView.of(events)
    plan_hash = "" if planned is None else planned.plan_hash
    found = list(find_open_differences(view, plan_hash))
    if planned is not None and _is_rolled_back(events, planned):
        return tuple(found)
    digests = view.accepted_digests(plan_hash)
    accepted = {*find_accepted_lines(events), *_accepted_of_comparisons(events, digests)}
    found += [one for one in _unproved_traffic(events) if one not in accepted]
    return tuple(dict.fromkeys(found))


def find_open_differences(view: RunView, plan_hash: str) -> tuple[str, ...]:
    """Return the differences of the newest comparison that no approver accepted, or that it is missing."""
    found = list[str]()
    if gap := find_uncompared(view.events, NODE_ACTS):
        found.append(f"{gap.sentence[0].upper()}{gap.sentence[1:]}.")
    if compared := view.unaccepted(plan_hash):
        found += compared.first
        if more := compared.failing - len(compared.first):
            found.append(
                f"{count(more, 'more difference')}: `state/after-{compared.after}.json` of its history lists them "
                f"({compared.digest[:12]})."
            )
    return tuple(found)


def find_accepted_lines(events: Sequence[Event]) -> frozenset[str]:
    """Return the lines that approvers of the run accepted by name, of whatever plan, by its history: only the run
    itself can compare its approvals with Airflow's records (`accepted_doubts` in control/approval.py).
    """
    given = [one for one in events_of(events, Approval) if one.doubts and one.decision == Decision.APPROVED]
    return frozenset(line for one in given if not is_refuted(events, one) for line in one.doubts)


def _is_rolled_back(events: Sequence[Event], planned: Planned) -> bool:
    """Return whether each node that the run touched has a passed gate of a rollback to the source of its plan since."""
    keys = {key for back in events_of(events, RollbackPlanned) for key, _ in back.batches}
    to_source = {key for key in keys if key.endswith(f"-to-{planned.source}")}
    left = set[int]()
    for event in events:
        match event:
            case Stopping() | Started():
                left.add(event.node_id)
            case GatePassed(ref=GateRef(kind=GateKind.AFTER_START, release_step=str(key), node_id=int(node_id))):
                left -= {node_id} if key in to_source else set()
    return bool(to_source) and not left


def _unproved_traffic(events: Sequence[Event]) -> tuple[str, ...]:
    """Return what the newest check of the test traffic did not prove, during the run or at its end."""
    for event in reversed(events):
        match event:
            case TrafficChecked():
                return event.unproved
            case TrafficCompared():
                return event.verdict.unproved
    return ()


def _accepted_of_comparisons(events: Sequence[Event], digests: frozenset[str]) -> set[str]:
    """Return the sentences of accepted comparisons that can be about test traffic: its check is right before each."""
    accepted = set[str]()
    checked: tuple[str, ...] = ()
    for event in events:
        match event:
            case TrafficChecked():
                checked = event.unproved
            case ContentsCompared() if event.digest in digests:
                accepted.update(checked, event.first)
    return accepted
