"""The gates of a batch, in the triggerer: no worker runs while nothing must be decided."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TaskSkippedEvent, TaskSuccessEvent, TriggerEvent

from kafka_rollout.airflow.common.cluster_access import ClusterAccess
from kafka_rollout.airflow.gates.gate_log import GateLog
from kafka_rollout.airflow.gates.history_poll import NEXT_POLL_S, POLL_S, HistoryPoll, shared_history
from kafka_rollout.airflow.gates.part_trigger import PartTrigger, Told, name_way_on, told
from kafka_rollout.airflow.gates.trigger import pause_s
from kafka_rollout.airflow.gates.trigger_ports import trigger_ports
from kafka_rollout.airflow.own_threads import OF_TRIGGERS
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
from kafka_rollout.run.events import Event
from kafka_rollout.run.projections.open_batches import (
    BatchPart,
    RollOf,
    find_end,
    is_rollback_decided,
)

if TYPE_CHECKING:
    from kafka_rollout.observation.cluster_ports import ClusterPorts

AT_ONCE_S = 1.0  # an event at once can arrive before the end of the process that deferred the task


class BatchTrigger(PartTrigger):
    """Wait for a gate of a batch.

    After its turn has come, it checks the gate. The task ends here when the gate has passed, and is skipped here when
    the run rolls back. Everything else resumes the task, also an end by an approver or an operator, after which it
    fails without a retry.

    `part`: one of the gates. `resumes`: the task continues in a worker also after a passed gate. `records`: what the
    task has read before.
    """

    def __init__(
        self,
        *,
        cluster: str,
        of: str,
        part: str,
        place: Mapping[str, Any] | None = None,
        resumes: bool = False,
        records: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(cluster=cluster, of=of, place=place)
        self.part = BatchPart(part)
        self.resumes = resumes
        self.records = dict(records or {})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("cluster", "of", "place", "resumes", "records")
        options = {"part": self.part.value, **{name: getattr(self, name) for name in names}}
        return "kafka_rollout.airflow.gates.batch_trigger.BatchTrigger", options

    async def run(self) -> AsyncIterator[TriggerEvent]:
        place, closing = self.find_place(), ExitStack()
        try:
            async with shared_history(self.cluster, place["run_id"]) as poll:
                if (ended := await self._wait(poll, place)) is not None:
                    yield ended
                    return
            yield await self._watch(place, closing)
        except RolloutError as error:
            stops, why = isinstance(error, StoppedError), str(name_way_on(error, RollOf(self.of)))
            yield self._event(Told.ERROR, why, asks=isinstance(error, FatalError), stops=stops)
        finally:
            await OF_TRIGGERS.run(closing.close)

    async def _wait(self, poll: HistoryPoll, place: Mapping[str, Any]) -> TriggerEvent | None:
        """Return None when the gate can be checked, or the event that ends it before."""
        self._introduce((await poll.batches(RollOf(self.of)))[0], place["map_index"])
        if (
            self.part is BatchPart.GATE_BEFORE or RollOf(self.of).is_offline
        ):  # an offline step replaces all nodes at once
            return await self._wait_for_turn(poll, place)
        return await self.wait_for(BatchPart.REPLACE, poll, place)

    async def _wait_for_turn(self, poll: HistoryPoll, place: Mapping[str, Any]) -> TriggerEvent | None:
        """Return None when all earlier batches have passed, or the event that ends this one."""
        of, index, logged = RollOf(self.of), place["map_index"], -1
        batches, first = await poll.batches(of)
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
        return self._ended(await poll.events(), begins) if self.part is BatchPart.GATE_BEFORE else None

    def _introduce(self, batches: Sequence[BatchStep], index: int) -> None:
        if index < len(batches):
            at = "before the stop" if self.part is BatchPart.GATE_BEFORE else "after the start"
            self.log.info("This is the gate %s of %s.", at, describe_batch(batches, index))

    def _ended(self, events: tuple[Event, ...], begins: int) -> TriggerEvent | None:
        if (skipped := self._skipped(events)) is not None:
            return skipped
        if why := find_end(events[begins:]):
            # Not TaskFailedEvent: Airflow would retry it.
            return self._event(Told.ENDED, f"{why} {RollOf(self.of).how_to_continue}")
        return None

    def _skipped(self, events: Sequence[Event]) -> TriggerEvent | None:
        """Return the event that ends a batch of the roll if the run rolls back."""
        if self.of != RollOf.PLAN or not is_rollback_decided(events):
            return None
        self.log.info("The run rolls back.")
        return self._event(Told.ENDED, "The run rolls back.", skips=True) if self.resumes else TaskSkippedEvent()

    async def _watch(self, place: Mapping[str, Any], closing: ExitStack) -> TriggerEvent:
        hook, ports, watch = ClusterAccess(self.cluster), None, None
        security = await hook.asecurity()
        said = GateLog(self.log.info)
        while True:
            try:
                if ports is None or watch is None:
                    ports = await OF_TRIGGERS.run(
                        lambda: closing.enter_context(
                            trigger_ports(hook, place["run_id"], security, clears=place["clears"])
                        )
                    )
                    watch = await OF_TRIGGERS.run(self._new_watch, ports, place)
                    if self.place is not None:
                        await ports.clock.sleep_async(AT_ONCE_S)
                status = await OF_TRIGGERS.run(self._check, ports, watch, place["map_index"], said)
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
            if (skipped := self._skipped(await OF_TRIGGERS.run(ports.run.events))) is not None:
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
        gate = loop.gate_before if self.part is BatchPart.GATE_BEFORE else loop.gate_after
        return gate(roll, roll.batches[index], watch, said.add)

    def _event(self, state: Told, message: str, **more: Any) -> TriggerEvent:
        return told(state, message, records=self.records, **more)
