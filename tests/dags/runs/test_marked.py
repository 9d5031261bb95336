"""A task that a user marks as successful lets no level be raised: the history has no gate that passed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.outside_text import is_listed
from kafka_rollout.run.events import Approval, ApprovalOf, events_of
from kafka_rollout.run.step_events import Finalized
from tests.dags.conftest import FakeRuns
from tests.fakes.cluster import lose_a_group_at_the_start_of

pytestmark = pytest.mark.airflow


@pytest.mark.usefixtures("combined")
@pytest.mark.parametrize("marked", ["roll.gate_after", "compare_after_roll"])
def test_no_level_is_raised_after_a_task_that_only_was_marked(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, marked: str
) -> None:
    from kafka_rollout.airflow.gates.batch_sensors import BatchGateSensor
    from kafka_rollout.airflow.operators.step import StepOperator

    gate, act = BatchGateSensor.execute, StepOperator.act

    def execute(self: Any, context: Any) -> Any:
        is_last = self.task_id == marked and context["ti"].map_index == 2
        return {"message": "marked as success"} if is_last else gate(self, context)

    def act_or_not(self: Any, context: Any, ports: Any) -> Any:
        return None if self.task_id == marked else act(self, context, ports)

    monkeypatch.setattr(BatchGateSensor, "execute", execute)
    monkeypatch.setattr(StepOperator, "act", act_or_not)
    state, states, record = runs.run(finalize="after_approval")
    assert (state, states["approve_finalize"]) == ("failed", "failed")
    assert not events_of(record.events(), Finalized)
    assert runs.world.finalized["metadata.version"] == 21


@pytest.mark.usefixtures("combined")
def test_a_new_run_asks_about_what_the_gate_of_a_failed_run_waited_for(runs: FakeRuns) -> None:
    """The last gate of a run failed. A new run finds no node to replace, and only finalizes."""
    gate = "roll.gate_after[2]"
    lose_a_group_at_the_start_of(runs.world, 1)
    runs.world.spec = replace(runs.world.spec, approvers=("alice",))

    def leave(place: str) -> None:
        runs.who = "mallory" if place == gate else "alice"

    runs.while_asked = leave
    runs.answers[gate] = ["Wait on"]
    state, states, _ = runs.run(finalize="after_approval")
    assert (state, states[gate], states["finalize"]) == ("failed", "failed", "upstream_failed")
    runs.asked.clear()
    state, states, record = runs.run(finalize="after_approval")
    assert (state, runs.asked) == ("success", ["approve_finalize"]), states
    (given,) = (one for one in events_of(record.events(), Approval) if one.what is ApprovalOf.FINALIZE)
    assert any("the log does not show the load of __consumer_offsets-0" in doubt for doubt in given.doubts)
    assert all(is_listed(runs.bodies["approve_finalize"], doubt) for doubt in given.doubts), "it was read"
    assert events_of(record.events(), Finalized)
