"""Comparison of the approvals in the run history with Airflow's own records, at the action.

A user with write access to the database of kafka-rollout can add an approval to a run history, and every task of the
same Airflow can write XComs. So each task that needs an approval reads Airflow's Human-in-the-loop record before it
acts; no event and no XCom replaces that. A worker of Airflow 3.3 cannot read it: Airflow forwards only the request for
an answer. The triggerer can, through the execution API. So the task defers for some seconds, and acts after that.

A record belongs to a task instance, and Airflow gives it another id when the task is retried or cleared. So the task
that got an answer stores the id, the decision and the plan as an XCom. That only selects a record: the answer itself
names the run, the task and what it approves (`request_name`), so that an answer to another request proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

from airflow.sdk import Context
from airflow.sdk.exceptions import TaskDeferred
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from kafka_rollout.airflow.logs import OneLineLogs
from kafka_rollout.airflow.private_api import read_record
from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.run.events import (
    OF_ROLLS,
    Approval,
    ApprovalOf,
    ApprovalRefuted,
    Asked,
    Decision,
    Responder,
    events_of,
)
from kafka_rollout.run.ports import RunStore

ANSWER = "kafka_rollout_answer"  # XCom of a task that read an answer
REQUEST = "request"  # field of Airflow's form that names the request

ENDS_PAUSE = (Decision.WAIT_ON, Decision.RETRY)  # the answers that continue after a pause of the plan
_ASK_AGAIN = "Clear the approval's task with all downstream tasks, and answer in Airflow."

_NO_ANSWER = {"error_type": "record", "error": "the record has no answer of a user", "is_missing": True}

PAUSE_S = 2.0  # an event at once can arrive before the end of the task's process

Records = Mapping[str, Mapping[str, Any]]  # id of Airflow's record → event of an AnswerTrigger


class AnswerTrigger(OneLineLogs, BaseTrigger):
    """Read the record `record_id` (the task instance's id) once. The event is a user's answer, or an error.

    `carried`: what the task needs after it; the event has it with the same name.
    """

    def __init__(self, *, record_id: str, pause_s: float, carried: Mapping[str, Any] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.record_id = record_id
        self.pause_s = pause_s
        self.carried = dict(carried or {})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        options = {"record_id": self.record_id, "pause_s": self.pause_s, "carried": self.carried}
        return ("kafka_rollout.airflow.approvals.airflow_records.AnswerTrigger", options)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(self.pause_s)
        try:
            answer = await sync_to_async(read_record)(UUID(self.record_id))
            event = {"record_id": self.record_id, **answer} if answer is not None else _NO_ANSWER
        except Exception as error:  # no such record, or no answer of the execution API
            self.log.warning("Airflow's record of the answer cannot be read: %s", error)
            event = {"error_type": "record", "error": str(error)}
        yield TriggerEvent({**event, **({"carried": self.carried} if self.carried else {})})


class UnreadRecordError(Exception):
    """An approval needs the record `record_id`, which this attempt of the task has not read."""

    def __init__(self, record_id: str) -> None:
        super().__init__(record_id)
        self.record_id = record_id

    def defer(self, then: str, records: Records) -> TaskDeferred:
        """Return the deferral that reads the record; the task resumes at `confirmed`."""
        carried = {"then": then, "record_id": self.record_id, "records": dict(records)}
        trigger = AnswerTrigger(record_id=self.record_id, pause_s=PAUSE_S, carried=carried)
        return TaskDeferred(trigger=trigger, method_name="confirmed")


def read_records(event: Mapping[str, Any]) -> tuple[str, Records]:
    """Return what the event of such a deferral says: the method to call, and all records that were read."""
    carried = event["carried"]
    record = {key: value for key, value in event.items() if key != "carried"}
    return str(carried["then"]), {**carried["records"], str(carried["record_id"]): record}


def map_index_of(context: Context) -> int:
    """Return the map index of this task instance; -1 if its task is not mapped."""
    found = context["ti"].map_index
    return -1 if found is None else int(found)


def place_of(context: Context) -> str:
    """Return the name of this task instance in requests."""
    return instance_name(context["task"].task_id, map_index_of(context))


def instance_name(task_id: str, map_index: int) -> str:
    return task_id if map_index < 0 else f"{task_id}[{map_index}]"


def request_name(run_id: str, place: str, what: ApprovalOf) -> str:
    """Return the name of a request of a task instance, which stays the same when it asks again: Airflow keeps the
    first. `place`: the instance.
    """
    return f"{run_id}: {place}, {what}"


def keep_answer(context: Context, plan_hash: str, what: tuple[ApprovalOf, ...], by: str) -> None:
    """Store which of Airflow's records is the answer of this task, and to what. `what`: the approvals that it gives.

    The end of a pause, and an accepted log, keep what an earlier answer of this task gave.
    """
    ti, record_id = context["ti"], str(context["ti"].id)
    adds = bool({ApprovalOf.PAUSE, ApprovalOf.NODE_LOG}.intersection(what))
    before = ti.xcom_pull(task_ids=ti.task_id, map_indexes=map_index_of(context), key=ANSWER) if adds else None
    if before and (before["record_id"], before["plan_hash"]) == (record_id, plan_hash):
        what = (*what, *map(ApprovalOf, before["what"]))
    found = {"record_id": record_id, "plan_hash": plan_hash, "what": list(dict.fromkeys(map(str, what)))}
    ti.xcom_push(key=ANSWER, value={**found, "by": by})


class AirflowRecords:
    """Compares approvals with Airflow's records. `records`: those that were read since the task began."""

    def __init__(self, context: Context, run: RunStore, records: Records) -> None:
        self._context = context
        self._run = run
        self._records = records

    def confirm(self, approval: Approval) -> None:
        """Raise RefusedError if Airflow's record is not the answer that the approval claims.

        Raises UnreadRecordError if the record must be read first, TransientError if it could not be read.
        """
        given = approval.responder
        if given is None:
            raise self._refuted(approval, "it names no record of Airflow")
        asking = self._asking_task(given.record_id)
        if asking is None:
            raise self._refuted(approval, f"no task of this run asked with Airflow's record {given.record_id}")
        task_id, map_index = asking
        own = (self._context["ti"].task_id, map_index_of(self._context))
        is_own = asking == own and approval.what in OF_ROLLS
        found = {} if is_own else self._kept(task_id, map_index)
        if not is_own and (found.get("plan_hash") != approval.plan_hash or approval.what not in found.get("what", ())):
            raise self._refuted(approval, f"task {task_id} has no answer in Airflow that approves this")
        record_id = str(self._context["ti"].id if is_own else found["record_id"])
        if record_id not in self._records:
            raise UnreadRecordError(record_id)
        self._compare(approval, given, self._records[record_id], instance_name(task_id, map_index))
        if is_own:  # Airflow removed the XCom when it began the task again
            keep_answer(self._context, approval.plan_hash, OF_ROLLS, given.user)

    def _compare(self, approval: Approval, given: Responder, record: Mapping[str, Any], place: str) -> None:
        if "chosen_options" not in record and record.get("is_missing"):
            raise self._refuted(approval, "its record there has no answer of a user")
        if "chosen_options" not in record:
            raise TransientError(
                f"Airflow's record of the approval of the {approval.what.noun()} by {approval.by} cannot be read: "
                f"{record.get('error')}.",
                remedy="Check the triggerer and Airflow's API server, then clear this task.",
            )
        user, option = str(record["responded_by_user"]["id"]), str(record["chosen_options"][0])
        if user != given.user or approval.by != given.user:
            raise self._refuted(approval, f"in Airflow, {user} answered")
        if option not in [decision.label for decision in _decisions(approval.what)]:
            raise self._refuted(approval, f"in Airflow, {user} chose '{option}'")
        if abs(float(record["responded_at"]) - given.answered_at) > 0.001:
            raise self._refuted(approval, f"in Airflow, {user} answered at another time")
        asked = str((record.get("params_input") or {}).get(REQUEST) or "")
        if asked not in self._requests(approval, place, option):
            named = escape_invisible(asked) or "none: send it as the form of Required Actions has it"
            raise self._refuted(approval, f"in Airflow, the answer of {user} names another request ({named})")

    def _requests(self, approval: Approval, place: str, option: str) -> tuple[str, ...]:
        """Return the names of the requests of a task whose option gives the approval.

        *Approve* gives what the request is about. The other options name what they give.
        """
        asked = (approval.what,) if option == Decision.APPROVED.label else tuple(ApprovalOf)
        return tuple(request_name(str(self._context["ti"].run_id), place, what) for what in asked)

    def _asking_task(self, record_id: str) -> tuple[str, int] | None:
        """Return task and map index of the instance that asked with this record; None if there is none."""
        asked = (event for event in reversed(events_of(self._run.events(), Asked)) if event.record_id == record_id)
        return next(((event.task_id, event.map_index) for event in asked), None)

    def _kept(self, task_id: str, map_index: int) -> Mapping[str, Any]:
        found = self._context["ti"].xcom_pull(task_ids=task_id, map_indexes=map_index, key=ANSWER)
        return found if isinstance(found, Mapping) else {}

    def _refuted(self, approval: Approval, difference: str) -> RefusedError:
        record_id = "" if approval.responder is None else approval.responder.record_id
        sentence = (
            f"Airflow does not confirm the approval of the {approval.what.noun()} by {approval.by} in the run history: "
            f"{difference}."
        )
        self._run.record(ApprovalRefuted(what=approval.what, by=approval.by, record_id=record_id, sentence=sentence))
        return RefusedError(sentence, remedy=_ASK_AGAIN)


def _decisions(what: ApprovalOf) -> tuple[Decision, ...]:
    """Return the answers that give an approval. *Retry* renews one that became invalid."""
    if what is ApprovalOf.ROLL_BACK:
        return (Decision.ROLL_BACK,)
    if what is ApprovalOf.PAUSE:
        return ENDS_PAUSE
    if what is ApprovalOf.NODE_LOG:
        return (Decision.ACCEPT,)
    return (Decision.APPROVED, Decision.RETRY) if what in OF_ROLLS else (Decision.APPROVED,)
