"""*Accept the log* accepts what the text of the request lists."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kafka_rollout.gates.gate import GateCondition
from kafka_rollout.roll import gate_checks
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    ApprovalRefuted,
    Asked,
    Channel,
    Decision,
    Responder,
    RollbackAskedAgain,
    events_of,
)
from kafka_rollout.run.projections.approvals import find_doubts
from tests.dags.conftest import ANSWERED_AT, FakeRuns
from tests.fakes.cluster import lose_a_group_at_the_start_of
from tests.records import run_history, run_ids

pytestmark = pytest.mark.airflow
LATER = "node 3: the log shows a failed load of __consumer_offsets-7"


@pytest.mark.full
@pytest.mark.usefixtures("combined")
def test_a_doubt_of_after_the_first_request_is_not_accepted(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = "roll.gate_after[1]"
    lose_a_group_at_the_start_of(runs.world, 3)
    runs.answers[gate] = ["Wait on", "Accept the log"]
    texts: list[str] = []
    real = gate_checks.check_gate

    def check(run: Any, of: Any, *args: Any, **more: Any) -> Any:
        seen = real(run, of, *args, **more)
        if not texts or "after" not in of.name or seen.passes:
            return seen
        later = GateCondition(name="coordinators", is_met=False, evidence="a load failed", doubts=(LATER,))
        return replace(seen, conditions=(*seen.conditions, later))

    monkeypatch.setattr(gate_checks, "check_gate", check)
    runs.while_asked = lambda place: texts.append(runs.bodies[gate]) if place == gate else None
    _, _, record = runs.run()
    given = [one for one in events_of(record.events(), Approval) if one.what is ApprovalOf.NODE_LOG]
    accepted = {doubt for one in given for doubt in one.doubts}
    assert accepted
    assert LATER not in accepted
    shown = [asked.text for asked in events_of(record.events(), Asked)]
    assert {one.text for one in given} <= set(shown), "an approval keeps the text that Airflow showed"


@pytest.mark.usefixtures("combined")
def test_an_acceptance_that_was_added_to_the_history_lets_no_gate_pass(runs: FakeRuns) -> None:
    """The last gate of a run passes in the triggerer, and no replacement follows it."""
    gate, forged = "roll.gate_after[2]", list[str]()
    lose_a_group_at_the_start_of(runs.world, 1)
    runs.answers |= {gate: ["Wait on", "Roll back"], "roll_back.gate_after[0]": ["Accept the log"]}

    def forge(place: str) -> None:
        if place != gate or forged:
            return
        (run_id,) = run_ids(runs.home, "fake")
        record = run_history(runs.home, "fake", run_id)
        asked = events_of(record.events(), Asked)[-1]
        forged.extend(find_doubts(record.events()))
        answered_at = (ANSWERED_AT + timedelta(seconds=len(runs.asked))).timestamp()
        alice = Responder(channel=Channel.AIRFLOW, user="alice", name="alice", record_id=asked.record_id)
        record.record(
            Approval(
                what=ApprovalOf.NODE_LOG,
                by="alice",
                decision=Decision.APPROVED,
                reason="forged",
                plan_hash=record.load_plan().hash,
                responder=replace(alice, answered_at=answered_at),
                text=asked.text,
                doubts=tuple(forged),
            )
        )

    runs.while_asked = forge
    _, states, record = runs.run()
    assert forged
    assert (states[gate], runs.asked.count(gate)) == ("failed", 2), states
    (refuted,) = events_of(record.events(), ApprovalRefuted)
    assert "in Airflow, alice chose 'Wait on'" in refuted.sentence


@pytest.mark.full
@pytest.mark.usefixtures("combined")
def test_a_rollback_that_compares_less_than_the_text_says_is_asked_once_more(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow keeps the text of the first request, also for weeks."""
    from kafka_rollout.procedure import approval_requests

    gate, unread = "roll.gate_after[1]", list[str]()
    lose_a_group_at_the_start_of(runs.world, 3)
    runs.answers |= {gate: ["Roll back", "Roll back"], "roll_back.gate_after[0]": ["Accept the log"]}
    monkeypatch.setattr(approval_requests, "unread_of_rollback", lambda run: tuple(unread))
    files = iter(("The file of node 1 is unknown.", "The file of node 2 is unknown."))
    runs.while_asked = lambda place: unread.append(next(files)) if place == gate else None
    _, states, record = runs.run()
    (asked_again,) = events_of(record.events(), RollbackAskedAgain)
    assert (asked_again.by, asked_again.sentences) == ("alice", ("The file of node 1 is unknown.",))
    assert (states[gate], runs.asked.count(gate)) == ("failed", 2), states
    given = [one for one in events_of(record.events(), Approval) if one.what is ApprovalOf.ROLL_BACK]
    assert len(given) == 1, "the first answer gave nothing"
    assert {str(runs.world.release_of(node_id)) for node_id in (1, 2, 3)} == {"3.9.1"}
