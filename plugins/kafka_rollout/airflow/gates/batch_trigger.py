"""The gates of a batch, in the triggerer: no worker runs while nothing must be decided."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TaskSkippedEvent, TaskSuccessEvent, TriggerEvent

from kafka_rollout.airflow.common.cluster_hook import KafkaClusterHook, clears_of
from kafka_rollout.airflow.gates.gate_log import GateLog
from kafka_rollout.airflow.gates.history_poll import NEXT_POLL_S, POLL_S, HistoryPoll, shared_history
from kafka_rollout.airflow.gates.trigger import pause_s
from kafka_rollout.airflow.gates.trigger_ports import trigger_ports
from kafka_rollout.airflow.logs import OneLineLogs
from kafka_rollout.base.errors import FatalError, RolloutError, StoppedError, TransientError
from kafka_rollout.gates.gate import WatchState
from kafka_rollout.model.plan import BatchStep
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import request_of
from kafka_rollout.procedure.kinds import run_of_dag
from kafka_rollout.roll import loop
from kafka_rollout.roll.gate_checks import policy_of
from kafka_rollout.roll.loop import BatchStatus, BatchWatch
from kafka_rollout.run.batch_progress import describe_batch
from kafka_rollout.run.events import Event, StepEnded, StepOutcome
from kafka_rollout.run.projections.open_batches import (
    BatchPart,
    RollOf,
    find_end,
    find_part_event,
    is_rollback_decided,
)

if TYPE_CHECKING:
    from kafka_rollout.observation.cluster_ports import ClusterPorts

CONTINUE = (
    "To continue, clear the task roll.gate_before with all downstream tasks: no batch that has passed is repeated."
)
_FAILED = frozenset({"failed", "upstream_failed"})
AT_ONCE_S = 1.0  # an event at once can arrive before the end of the process that deferred the task


class GateOf(StrEnum):
    """Which gate of a batch."""

    BEFORE = "before"
    AFTER = "after"


class Told(StrEnum):
    """The state of an event that resumes the task in a worker."""

    PASSED = "passed"
    PAUSES = "pauses"  # until an approver ends the pause of the plan
    FAILED = "failed"
    ERROR = "error"  # the check was refused
    ENDED = "ended"  # the roll ended before this batch


class BatchTrigger(OneLineLogs, BaseTrigger):
    """Wait for a gate of the batch whose place is the map index of the task.

    While earlier batches are open, or the nodes are not replaced, it only reads the history and Airflow's states, which
    all triggers of the run share. Then it checks the gate. The task ends here when the gate has passed, and is skipped
    here when the run rolls back. Everything else resumes the task, also an end by an approver or an operator, after
    which it fails without a retry.

    `place`: of `place_of_instance`, if a worker deferred the task; of one that begins here the triggerer knows it.
    `resumes`: the task continues in a worker also after a passed gate. `records`: what the task has read before.
    """

    def __init__(
        self,
        *,
        cluster: str,
        of: str,
        gate: str,
        place: Mapping[str, Any] | None = None,
        resumes: bool = False,
        records: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cluster = cluster
        self.of = of
        self.gate = gate
        self.place = None if place is None else dict(place)
        self.resumes = resumes
        self.records = dict(records or {})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("cluster", "of", "gate", "place", "resumes", "records")
        return "kafka_rollout.airflow.gates.batch_trigger.BatchTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        place, closing = self._place(), ExitStack()
        try:
            async with shared_history(self.cluster, place["run_id"]) as poll:
                wait = self._wait_for_replacement if self._follows else self._wait_for_turn
                if (ended := await wait(poll, place)) is not None:
                    yield ended
                    return
            yield await self._watch(place, closing)
        except RolloutError as error:
            yield self._event(Told.ERROR, str(error), asks=isinstance(error, FatalError), stops=_stops(error))
        finally:
            await asyncio.to_thread(closing.close)

    @property
    def _follows(self) -> bool:
        """Whether the gate follows the replacement of its batch. An offline step has none: it replaces all nodes."""
        return self.gate == GateOf.AFTER and not RollOf(self.of).is_offline

    async def _wait_for_turn(self, poll: HistoryPoll, place: Mapping[str, Any]) -> TriggerEvent | None:
        """Return None when all earlier batches have passed, or the event that ends this one."""
        of, index, logged = RollOf(self.of), place["map_index"], -1
        batches, first = await poll.batches(of)
        self._introduce(batches, index)
        begins = await self.begins(poll)
        while first < index:
            if first != logged:
                self.log.info("It waits for the batches before it: %s has not passed.", describe_batch(batches, first))
                logged = first
            if (ended := self._ended(await poll.events(), begins)) is not None:
                return ended
            within_s = NEXT_POLL_S if first == index - 1 else POLL_S
            await self.pause(within_s)
            batches, first = await poll.batches(of, within_s)
        return self._ended(await poll.events(), begins) if self.gate == GateOf.BEFORE else None

    async def _wait_for_replacement(self, poll: HistoryPoll, place: Mapping[str, Any]) -> TriggerEvent | None:
        """Return None when the nodes of the batch are replaced, or the event that ends the gate as its replacement.

        The gate waits from the begin, as those before the stop: a task that is ready only later costs the scheduler a
        pass over all open batches. So it applies Airflow's rule *all_success* here, to the state of the replacement.
        A replacement that is done in the history, since this wait began, is the same and known earlier. An older one
        proves nothing, because the replacement can have been cleared. One that a user marked as successful is checked.
        """
        of, index, began_at, logged = RollOf(self.of), place["map_index"], time.monotonic(), ""
        task_id = of.step_of(BatchPart.REPLACE)
        batches, first = await poll.batches(of)
        self._introduce(batches, index)
        begins = await self.begins(poll)
        while first < index or not _is_replaced((await poll.events())[begins:], task_id, index):
            state = await self.state(poll, place, began_at, is_next=first >= index)
            if state == "success":
                break
            if state == "skipped":
                self.log.info("The replacement of its nodes was skipped.")
                return TaskSkippedEvent()
            if state in _FAILED:
                # Not TaskFailedEvent: Airflow would retry it.
                why = f"The nodes were not replaced: Airflow shows {task_id}[{index}] as {state}."
                how = "To continue, clear the first failed task of this batch with all downstream tasks."
                return self._event(Told.ENDED, f"{why} {how}")
            why = f"the replacement of its nodes, {task_id}[{index}]"
            if first < index:
                why = f"the batches before it: {describe_batch(batches, first)} has not passed"
            if why != logged:
                self.log.info("It waits for %s.", why)
                logged = why
            within_s = NEXT_POLL_S if first >= index else POLL_S
            await self.pause(within_s)
            batches, first = await poll.batches(of, within_s)
        return None

    async def state(self, poll: HistoryPoll, place: Mapping[str, Any], since: float, *, is_next: bool) -> str:
        """Return Airflow's state of the batch's replacement, as `HistoryPoll.states`; empty if it has none."""
        states = await poll.states(place, RollOf(self.of).step_of(BatchPart.REPLACE), since, is_next=is_next)
        return states.get(place["map_index"], "")

    def _introduce(self, batches: Sequence[BatchStep], index: int) -> None:
        if index < len(batches):
            at = "before the stop" if self.gate == GateOf.BEFORE else "after the start"
            self.log.info("This is the gate %s of %s.", at, describe_batch(batches, index))

    async def begins(self, poll: HistoryPoll) -> int:
        """Return the number of events before this wait: a decision before the task began, or was cleared, is over."""
        return len(await poll.events())

    async def pause(self, seconds: float) -> None:
        """Wait until the history is read again."""
        await asyncio.sleep(seconds)

    def _ended(self, events: tuple[Event, ...], begins: int) -> TriggerEvent | None:
        if (skipped := self._skipped(events)) is not None:
            return skipped
        if why := find_end(events[begins:]):
            # Not TaskFailedEvent: Airflow would retry it.
            return self._event(Told.ENDED, f"{why} {CONTINUE}")
        return None

    def _skipped(self, events: Sequence[Event]) -> TriggerEvent | None:
        """Return the event that ends a batch of the roll if the run rolls back."""
        if self.of != RollOf.PLAN or not is_rollback_decided(events):
            return None
        self.log.info("The run rolls back.")
        return self._event(Told.ENDED, "The run rolls back.", skips=True) if self.resumes else TaskSkippedEvent()

    async def _watch(self, place: Mapping[str, Any], closing: ExitStack) -> TriggerEvent:
        hook, ports, watch = KafkaClusterHook(self.cluster), None, None
        security = await hook.asecurity()
        said = GateLog(self.log.info)
        while True:
            try:
                if ports is None or watch is None:
                    ports = await asyncio.to_thread(
                        lambda: closing.enter_context(
                            trigger_ports(hook, place["run_id"], security, clears=place["clears"])
                        )
                    )
                    watch = await asyncio.to_thread(self._new_watch, ports, place)
                    if self.place is not None:
                        await ports.clock.sleep_async(AT_ONCE_S)
                status = await asyncio.to_thread(self._check, ports, watch, place["map_index"], said)
            except TransientError as error:
                status = BatchStatus(state=WatchState.WAITING, message=f"waits for a response: {error}")
            now = 0.0 if ports is None else ports.clock.monotonic()
            said.say(status.message, now, is_done=status.done or status.pauses)
            if status.pauses:
                return self._event(Told.PAUSES, status.message)
            if status.state is WatchState.PASSED:
                if self.resumes:
                    return self._event(Told.PASSED, status.message)
                return TaskSuccessEvent(xcoms={"return_value": {"message": status.message}})
            if status.state is WatchState.FAILED:
                return self._event(Told.FAILED, status.message)
            if ports is None:
                await asyncio.sleep(POLL_S)
                continue
            # The history is read in a thread: the triggerer has one event loop for all its triggers.
            if (skipped := self._skipped(await asyncio.to_thread(ports.run.events))) is not None:
                return skipped
            await ports.clock.sleep_async(self._pause_s(watch))

    def _pause_s(self, watch: BatchWatch | None) -> float:
        open_watches = () if watch is None else [one for one in watch.watches if not one.is_done]
        return pause_s(open_watches) if open_watches else POLL_S

    def _new_watch(self, ports: ClusterPorts, place: Mapping[str, Any]) -> BatchWatch:
        request, plan = request_of(place["params"], run_of_dag(place["dag_id"])), ports.run.load_plan()
        return BatchWatch(policy=lambda kind: policy_of(ports, kind, request, plan))

    def _check(self, ports: ClusterPorts, watch: BatchWatch, index: int, said: GateLog) -> BatchStatus:
        roll = loop.roll_of(Run(ports, ports.run.load_plan()), RollOf(self.of))
        gate = loop.gate_before if self.gate == GateOf.BEFORE else loop.gate_after
        return gate(roll, roll.batches[index], watch, said.add)

    def _place(self) -> Mapping[str, Any]:
        if self.place is not None:
            return self.place
        task: Any = self.task_instance
        return place_of_instance(task.get_template_context())

    def _event(self, state: Told, message: str, **more: Any) -> TriggerEvent:
        return TriggerEvent({"state": state.value, "message": message, "records": self.records, **more})


def _is_replaced(events: Sequence[Event], step: str, index: int) -> bool:
    newest = find_part_event(events, step, index)
    return isinstance(newest, StepEnded) and newest.outcome is StepOutcome.DONE


def place_of_instance(context: Any) -> dict[str, Any]:
    """Return what the trigger needs of the task instance."""
    ti = context["ti"]
    names = ("dag_id", "run_id", "map_index")
    more = {"clears": clears_of(context), "params": dict(context["params"])}
    return {**{name: getattr(ti, name) for name in names}, **more}


def _stops(error: RolloutError) -> bool:
    return isinstance(error, StoppedError)
