"""*Accept the log* accepts what the text of the request lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.gates.gate import GateCondition
from kafka_rollout.roll import gate_checks
from kafka_rollout.run.events import Approval, ApprovalOf, events_of
from tests.dags.conftest import FakeRuns
from tests.fakes.cluster import lose_a_group_at_the_start_of

pytestmark = pytest.mark.airflow
LATER = "node 3: the log shows a failed load of __consumer_offsets-7"


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
    accepted = {line for one in given for line in one.text.splitlines()}
    assert accepted
    assert LATER not in accepted
