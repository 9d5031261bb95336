"""A task that a user marks as successful lets no level be raised: the history has no gate that passed."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Finalized
from tests.dags.conftest import FakeRuns

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
    state, states, record = runs.run(finalize="after_approval", snapshot_interval_seconds=5)
    assert (state, states["approve_finalize"]) == ("failed", "failed")
    assert not events_of(record.events(), Finalized)
    assert runs.world.finalized["metadata.version"] == 21
