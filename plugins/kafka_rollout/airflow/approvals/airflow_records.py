"""Comparison of the approvals in the run history with Airflow's own records, at the action.

A user with write access to the database of kafka-rollout can add an approval to a run history, and every task of the
same Airflow can write XComs. So each task that needs an approval reads Airflow's Human-in-the-loop record before it
acts; no event and no XCom replaces that. A worker of Airflow 3.3 cannot read it: Airflow forwards only the request for
an answer. The triggerer can, through the execution API. So the task defers for some seconds, and acts after that. A
task that repeats with each batch begins in the triggerer, which reads the records before a worker starts.

A record belongs to a task instance, and Airflow gives it another id when the task is retried or cleared. So the task
that got an answer stores the id, the decision and the plan as an XCom. That only selects a record: the answer itself
names the run, the task, what it approves and the digest of the text that Airflow showed (`request_name`), so that an
answer to another request or to another text proves nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from airflow.sdk import Context
from airflow.sdk.exceptions import TaskDeferred
from airflow.triggers.base import BaseTrigger, TriggerEvent

from kafka_rollout.airflow.logs import OneLineLogger, OneLineLogs
from kafka_rollout.airflow.own_threads import OF_TRIGGERS
from kafka_rollout.airflow.private_api import read_record
from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.outside_text import escape_invisible, is_listed
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    ApprovalRefuted,
    Asked,
    Channel,
    Decision,
    Responder,
    events_of,
)
from kafka_rollout.run.ports import RunStore
from kafka_rollout.run.view import RunView

ANSWER = "kafka_rollout_answer"  # XCom of a task that read an answer
REQUEST = "request"  # field of Airflow's form that names the request

ENDS_PAUSE = (Decision.WAIT_ON, Decision.RETRY)  # the answers that continue after a pause of the plan
_ASK_AGAIN = "Clear the approval's task with all downstream tasks, and answer in Airflow."

_NO_ANSWER = {"error_type": "record", "error": "the record has no answer of a user", "is_missing": True}

PAUSE_S = 2.0  # an event at once can arrive before the end of the task's process

log = OneLineLogger(logging.getLogger(__name__))

Records = Mapping[str, Mapping[str, Any]]  # id of Airflow's record → event of an AnswerTrigger


class AnswerTrigger(OneLineLogs, BaseTrigger):
    """Read records (by the ids of their task instances) once. The event has each: a user's answer, or an error.

    `then`: the method of the task that needs them; the event has it with the same name.
    """

    def __init__(self, *, record_ids: Sequence[str], then: str, pause_s: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.record_ids = list(record_ids)
        self.then = then
        self.pause_s = pause_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        options = {"record_ids": self.record_ids, "then": self.then, "pause_s": self.pause_s}
        return ("kafka_rollout.airflow.approvals.airflow_records.AnswerTrigger", options)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(self.pause_s)
        yield TriggerEvent({"then": self.then, "records": {one: await self._read(one) for one in self.record_ids}})

    async def _read(self, record_id: str) -> dict[str, Any]:
        try:
            return await OF_TRIGGERS.run(read_record, UUID(record_id)) or _NO_ANSWER
        except Exception as error:  # no such record, or no answer of the execution API
            self.log.warning("Airflow's record of the answer cannot be read: %s", error)
            return {"error_type": "record", "error": str(error)}


def read_newest_records(cluster: str, run_id: str) -> dict[str, dict[str, Any]]:
    """Read, in the triggerer, the records of the newest approvals of each kind, before a task begins in a worker.

    It only saves deferrals, each of which is a process and can be lost on a busy machine: which record proves an
    approval is decided in the worker, and one that is not among them is read as always.
    """
    from kafka_rollout.run.store.opening import open_run

    found: dict[str, dict[str, Any]] = {}
    try:
        given = {one.what: one.responder for one in events_of(open_run(cluster, run_id).events(), Approval)}
        for responder in given.values():
            if responder is None or responder.channel is not Channel.AIRFLOW or responder.record_id in found:
                continue
            if (answer := read_record(UUID(responder.record_id))) is not None:
                found[responder.record_id] = answer
    except Exception as error:  # the worker reads it, and says what is wrong
        log.warning("The approvals cannot be read before the task begins: %s", error)
    return found


class UnreadRecordError(Exception):
    """An approval needs a record that this attempt of the task has not read. `record_ids`: all that it needs."""

    def __init__(self, record_ids: Sequence[str]) -> None:
        super().__init__(", ".join(record_ids))
        self.record_ids = tuple(record_ids)

    def defer(self, then: str) -> TaskDeferred:
        """Return the deferral that reads the records; the task resumes at `confirmed`."""
        trigger = AnswerTrigger(record_ids=self.record_ids, then=then, pause_s=PAUSE_S)
        return TaskDeferred(trigger=trigger, method_name="confirmed")


def map_index_of(context: Context) -> int:
    """Return the map index of this task instance; -1 if its task is not mapped."""
    found = context["ti"].map_index
    return -1 if found is None else int(found)


def place_of(context: Context) -> str:
    """Return the name of this task instance in requests."""
    return instance_name(context["task"].task_id, map_index_of(context))


def instance_name(task_id: str, map_index: int) -> str:
    return task_id if map_index < 0 else f"{task_id}[{map_index}]"


def request_name(run: int, place: str, what: ApprovalOf, text: str) -> str:
    """Return the name of a request of a task instance, which stays the same when it asks again: Airflow keeps the
    first, with its text. `run`: its number. `place`: the instance. `text`: subject and body, as `Asked.text`.
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"run {run}: {place}, {what}, text {digest[:32]}"


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
    """Compares approvals with Airflow's records. `records`: those that were read since the task began.

    The records of all approvals of the plan are read at once, because each deferral costs some seconds.
    """

    def __init__(self, context: Context, run: RunStore, records: Records) -> None:
        self._context = context
        self._run = run
        self._records = records

    def confirm(self, approval: Approval) -> None:
        """Raise RefusedError if Airflow's record is not the answer that the approval claims.

        Raises UnreadRecordError if the record must be read first, TransientError if it could not be read.
        """
        try:
            given, place, record_id = self._find(approval)
        except _RefutedError as refuted:
            raise self._refuted(approval, str(refuted)) from None
        if record_id not in self._records:
            raise UnreadRecordError(self._needed(approval, record_id))
        self._compare(approval, given, self._records[record_id], place)
        if self._is_own(approval, place):  # Airflow removed the XCom when it began the task again
            keep_answer(self._context, approval.plan_hash, (ApprovalOf.ROLL,), given.user)

    def _find(self, approval: Approval) -> tuple[Responder, str, str]:
        """Return who answered, at which task instance, and the id of the record now. Raises _RefutedError."""
        given = approval.responder
        if given is None:
            raise _RefutedError("it names no record of Airflow")
        asking = self._asking_task(given.record_id)
        if asking is None:
            raise _RefutedError(f"no task of this run asked with Airflow's record {given.record_id}")
        task_id, map_index = asking
        place = instance_name(task_id, map_index)
        if self._is_own(approval, place):
            return given, place, str(self._context["ti"].id)
        found = self._kept(task_id, map_index)
        if found.get("plan_hash") != approval.plan_hash or approval.what not in found.get("what", ()):
            raise _RefutedError(f"task {task_id} has no answer in Airflow that approves this")
        return given, place, str(found["record_id"])

    def _is_own(self, approval: Approval, place: str) -> bool:
        own = instance_name(self._context["ti"].task_id, map_index_of(self._context))
        return place == own and approval.what is ApprovalOf.ROLL

    def _needed(self, approval: Approval, record_id: str) -> tuple[str, ...]:
        """Return the records of the approval and of all others of this plan that count now, and those read before."""
        needed = {record_id, *self._records}
        for (_, plan_hash), (other, why_not) in RunView.of(self._run.events()).decisions.items():
            if plan_hash == approval.plan_hash and other.decision == Decision.APPROVED and not why_not:
                with suppress(_RefutedError):
                    needed.add(self._find(other)[2])
        return tuple(sorted(needed))

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
        name = str((record.get("params_input") or {}).get(REQUEST) or "")
        asked = next((one for one in self._requests(approval, place, option) if self._name(one, place) == name), None)
        if asked is None:
            named = escape_invisible(name) or "none: send it as the form of Required Actions has it"
            raise self._refuted(approval, f"in Airflow, the answer of {user} names another request ({named})")
        if approval.text != asked.text:
            raise self._refuted(approval, f"Airflow showed {user} another text")
        if unread := [doubt for doubt in approval.doubts if not is_listed(asked.text, doubt)]:
            raise self._refuted(approval, f"the text that Airflow showed {user} does not list: {'; '.join(unread)}")

    def _requests(self, approval: Approval, place: str, option: str) -> tuple[Asked, ...]:
        """Return the requests of a task instance whose option gives the approval.

        *Approve* gives what the request is about. The other options name what they give.
        """
        asked = (one for one in events_of(self._run.events(), Asked) if _place_of(one) == place)
        return tuple(one for one in asked if option != Decision.APPROVED.label or one.what is approval.what)

    def _name(self, asked: Asked, place: str) -> str:
        return request_name(self._run.number, place, asked.what, asked.text)

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


class TriggerRecords(AirflowRecords):
    """Compares approvals in the triggerer, which reads Airflow's records itself, at each check of a gate.

    It reads the record that the approval names. After a clear the record has another id, so that it proves nothing
    here, and the gate asks again.
    """

    def __init__(self, ports: ClusterPorts) -> None:
        ti = SimpleNamespace(run_id=ports.run_id)
        super().__init__({"ti": ti}, ports.run, {})  # type: ignore[typeddict-item]

    def confirm(self, approval: Approval) -> None:
        record_id = "" if approval.responder is None else approval.responder.record_id
        try:
            found = read_record(UUID(record_id)) or _NO_ANSWER
        except Exception as error:  # no such record, or no answer of the execution API
            found = {"error_type": "record", "error": str(error)}
        self._records = {record_id: found}
        super().confirm(approval)

    def _find(self, approval: Approval) -> tuple[Responder, str, str]:
        given = approval.responder
        asking = None if given is None else self._asking_task(given.record_id)
        if given is None or asking is None:
            raise _RefutedError("no task of this run asked with its record")
        return given, instance_name(*asking), given.record_id

    def _is_own(self, approval: Approval, place: str) -> bool:
        return False


def _place_of(asked: Asked) -> str:
    return instance_name(asked.task_id, asked.map_index)


class _RefutedError(Exception):
    """The difference between an approval and what Airflow has."""


def _decisions(what: ApprovalOf) -> tuple[Decision, ...]:
    """Return the answers that give an approval. *Retry* renews one that became invalid."""
    if what is ApprovalOf.ROLL_BACK:
        return (Decision.ROLL_BACK,)
    if what is ApprovalOf.PAUSE:
        return ENDS_PAUSE
    if what is ApprovalOf.NODE_LOG:
        return (Decision.ACCEPT,)
    return (Decision.APPROVED, Decision.RETRY) if what is ApprovalOf.ROLL else (Decision.APPROVED,)
