"""Reading an answer from Airflow's own Human-in-the-loop record.

A task cannot read that record: a worker of Airflow 3.3 forwards only the request for an answer. The triggerer can read
it through the execution API.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow.sdk.execution_time.hitl import get_hitl_detail_content_detail
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from kafka_rollout.airflow.common.logs import OneLineLogs

if TYPE_CHECKING:
    from airflow.sdk.api.datamodels._generated import HITLDetailResponse

# Options of requests.
APPROVE = "Approve"
RETRY = "Retry"
ROLL_BACK = "Roll back"

# An event at once can arrive before the end of the task's process.
PAUSE_S = 2.0


class AnswerTrigger(OneLineLogs, BaseTrigger):
    """Read the record `record_id` (the task instance's id) once. The event is the result of `answer_event`.

    `carried`: what the task needs after it; the event has it with the same name.
    """

    def __init__(self, *, record_id: str, pause_s: float = PAUSE_S, carried: Mapping[str, Any] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.record_id = record_id
        self.pause_s = pause_s
        self.carried = dict(carried or {})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        options = {"record_id": self.record_id, "pause_s": self.pause_s, "carried": self.carried}
        return ("kafka_rollout.airflow.common.answer.AnswerTrigger", options)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(self.pause_s)
        try:
            found = await sync_to_async(get_hitl_detail_content_detail)(ti_id=UUID(self.record_id))
        except Exception as error:  # no such record, or no answer of the execution API
            self.log.warning("Airflow's record of the answer cannot be read: %s", error)
            yield TriggerEvent({"error_type": "record", "error": str(error), **self._carried})
            return
        yield TriggerEvent({**answer_event(self.record_id, found), **self._carried})

    @property
    def _carried(self) -> dict[str, Any]:
        return {"carried": self.carried} if self.carried else {}


def answer_event(record_id: str, found: HITLDetailResponse) -> dict[str, Any]:
    """Return the event of a user's answer; an error if the record has none."""
    responder = found.responded_by_user
    if not found.response_received or responder is None or not found.chosen_options or found.responded_at is None:
        return {"error_type": "record", "error": "the record has no answer of a user", "is_missing": True}
    return {
        "record_id": record_id,
        "chosen_options": list(found.chosen_options),
        "params_input": dict(found.params_input or {}),
        "responded_by_user": {"id": responder.id, "name": responder.name},
        "responded_at": found.responded_at.timestamp(),
    }
