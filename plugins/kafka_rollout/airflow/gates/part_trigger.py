"""What the parts of a batch share that wait in the triggerer: their place, and the part of the batch before them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from airflow.triggers.base import BaseTrigger, TaskSkippedEvent, TriggerEvent

from kafka_rollout.airflow.common.cluster_access import clears_of
from kafka_rollout.airflow.gates.history_poll import NEXT_POLL_S, POLL_S, HistoryPoll
from kafka_rollout.airflow.logs import OneLineLogs
from kafka_rollout.base.errors import LockBrokenError, RolloutError, StoppedError
from kafka_rollout.run.batch_progress import describe_batch
from kafka_rollout.run.events import Event, StepEnded, StepOutcome
from kafka_rollout.run.projections.open_batches import BatchPart, RollOf, find_end, find_part_event

_FAILED = frozenset({"failed", "upstream_failed"})
_WAITS_FOR = {
    BatchPart.GATE_BEFORE: ("the gate before the stop of its nodes", "The nodes were not stopped"),
    BatchPart.REPLACE: ("the replacement of its nodes", "The nodes were not replaced"),
}


class Told(StrEnum):
    """The state of an event that resumes the task in a worker."""

    PASSED = "passed"
    PAUSES = "pauses"  # until an approver ends the pause of the plan
    FAILED = "failed"
    ERROR = "error"  # the check was refused
    ENDED = "ended"  # the roll ended before this batch


class PartTrigger(OneLineLogs, BaseTrigger):
    """Wait with one part of the batch whose place is the map index of the task.

    All parts of all batches begin to wait at once: a task that is ready only later costs the scheduler a pass over all
    open batches. While earlier batches are open, or the part before this one is not done, it only reads the history
    and Airflow's states, which all triggers of the run share.

    `place`: of `place_of_instance`, if a worker deferred the task; of one that begins here the triggerer knows it.
    """

    part: BatchPart

    def __init__(self, *, cluster: str, of: str, place: Mapping[str, Any] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cluster = cluster
        self.of = of
        self.place = None if place is None else dict(place)

    async def wait_for(self, part: BatchPart, poll: HistoryPoll, place: Mapping[str, Any]) -> TriggerEvent | None:
        """Return None when a part of the same batch is done, or the event that ends this one as that part ended.

        It applies Airflow's rule *all_success* to the state of that part. A part that is done in the history, since
        this wait began, is the same and known earlier. An older one proves nothing, because it can have been cleared.
        One that a user marked as successful is checked by what follows.
        """
        of, index, began_at, logged = RollOf(self.of), place["map_index"], time.monotonic(), ""
        task_id, (waits_for, is_missing) = of.step_of(part), _WAITS_FOR[part]
        batches, first = await poll.batches(of)
        begins = await self.begins(poll)
        while first < index or not _is_done((await poll.events())[begins:], task_id, index):
            state = await self.state(poll, place, part, began_at, is_next=first >= index)
            if state == "success":
                break
            if state == "skipped":
                self.log.info("It is skipped, as %s was.", waits_for)
                return TaskSkippedEvent()
            if state in _FAILED:
                # Not TaskFailedEvent: Airflow would retry it.
                why = f"{is_missing}: Airflow shows {task_id}[{index}] as {state}."
                how = "To continue, clear the first failed task of this batch with all downstream tasks."
                is_end = bool(find_end((await poll.events())[begins:]))
                return told(Told.ENDED, f"{why} {of.how_to_continue if is_end else how}")
            why = f"{waits_for}, {task_id}[{index}]"
            if first < index:
                why = f"the batches before it: {describe_batch(batches, first)} has not passed"
            if why != logged:
                self.log.info("It waits for %s.", why)
                logged = why
            within_s = NEXT_POLL_S if first >= index else POLL_S
            await self.pause(within_s)
            batches, first = await poll.batches(of, within_s)
        return None

    async def state(
        self, poll: HistoryPoll, place: Mapping[str, Any], part: BatchPart, since: float, *, is_next: bool
    ) -> str:
        """Return Airflow's state of a part of the batch, as `HistoryPoll.states`; empty if it has none."""
        states = await poll.states(place, RollOf(self.of).step_of(part), since, is_next=is_next)
        return states.get(place["map_index"], "")

    async def begins(self, poll: HistoryPoll) -> int:
        """Return the number of events before this wait: a decision before the task began, or was cleared, is over."""
        return len(await poll.events())

    async def pause(self, seconds: float) -> None:
        """Wait until the history is read again."""
        await asyncio.sleep(seconds)

    def find_place(self) -> Mapping[str, Any]:
        if self.place is not None:
            return self.place
        task: Any = self.task_instance
        return {**place_of_instance(task.get_template_context()), "clears": None}  # Airflow shows a trigger always 0


def told(state: Told, message: str, **more: Any) -> TriggerEvent:
    """Return an event that resumes the task in a worker."""
    return TriggerEvent({"state": state.value, "message": message, **more})


def name_way_on(error: RolloutError, of: RollOf) -> RolloutError:
    """Return the error of a batch; after a stop by an operator with the remedy that continues all batches."""
    if not isinstance(error, StoppedError) or isinstance(error, LockBrokenError):
        return error
    return StoppedError(error.sentence, remedy=of.how_to_continue)


def place_of_instance(context: Any) -> dict[str, Any]:
    """Return what the trigger needs of the task instance."""
    ti = context["ti"]
    names = ("dag_id", "run_id", "map_index")
    more = {"clears": clears_of(context), "params": dict(context["params"])}
    return {**{name: getattr(ti, name) for name in names}, **more}


def _is_done(events: Sequence[Event], step: str, index: int) -> bool:
    newest = find_part_event(events, step, index)
    return isinstance(newest, StepEnded) and newest.outcome is StepOutcome.DONE
