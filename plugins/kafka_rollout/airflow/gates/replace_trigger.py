"""The replacement of a batch, in the triggerer until its gate has passed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import TriggerEvent

from kafka_rollout.airflow.approvals.airflow_records import read_newest_records
from kafka_rollout.airflow.gates.history_poll import shared_history
from kafka_rollout.airflow.gates.part_trigger import PartTrigger
from kafka_rollout.airflow.own_threads import OF_TRIGGERS
from kafka_rollout.run.projections.open_batches import BatchPart


class ReplaceTrigger(PartTrigger):
    """Wait for the gate before the stop, then read Airflow's records of the approvals. The event has `records`.

    It allows nothing: the task proves in the worker what allows the stop.
    """

    part = BatchPart.REPLACE

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("cluster", "of", "place")
        return f"{ReplaceTrigger.__module__}.{ReplaceTrigger.__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        place = self.find_place()
        async with shared_history(self.cluster, place["run_id"]) as poll:
            ended = await self.wait_for(BatchPart.GATE_BEFORE, poll, place)
        if ended is not None:
            yield ended
            return
        records = await OF_TRIGGERS.run(read_newest_records, self.cluster, place["run_id"])
        yield TriggerEvent({"records": records})
