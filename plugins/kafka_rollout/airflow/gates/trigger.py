"""Checks a gate in the triggerer, so no worker is used while a node starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from kafka_rollout.airflow.common.cluster_hook import KafkaClusterHook
from kafka_rollout.airflow.logs import OneLineLogs
from kafka_rollout.base.errors import RolloutError, TransientError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.gates.check import (
    HELD_INTERVAL_S,
    GateRef,
    GateWatch,
    WatchState,
    WatchStatus,
    resolve_together,
)
from kafka_rollout.steps.gates.waiting import check_gates
from kafka_rollout.steps.planning.check import check_plan

if TYPE_CHECKING:
    from kafka_rollout.kafka.client.security.client_security import ClientSecurity
    from kafka_rollout.steps.common.cluster_ports import ClusterPorts

LOG_AGAIN_S = 30.0  # an unchanged message is logged again after this time
SOAK_INTERVAL_S = 10.0  # between two checks during a soak
ERROR = "error"  # the state of the event if the check itself was refused


def pause_s(watches: Sequence[GateWatch], now: float) -> float:
    """Return the seconds until the next check; a soak or a pause of hours needs fewer checks."""
    if any(watch.is_held for watch in watches):
        return HELD_INTERVAL_S
    return min(_pause_s(watch, now) for watch in watches if not watch.is_done)


def _pause_s(watch: GateWatch, now: float) -> float:
    if watch.passed_since is None:
        return watch.policy.interval_s
    left = watch.passed_since + watch.policy.soak_s - now
    return max(watch.policy.interval_s, min(SOAK_INTERVAL_S, left))


class GateTrigger(OneLineLogs, BaseTrigger):
    """Check a gate until its watch ends. `watch`: dictionary of a GateWatch, so it continues the checks of the task.

    `others`: gates and watches of the other nodes of a batch; the trigger waits for all. The event has `state` (passed,
    failed or error), `message` and `gate`.
    """

    def __init__(
        self,
        *,
        cluster: str,
        run_id: str,
        plan_hash: str,
        gate: dict[str, Any],
        watch: dict[str, Any],
        others: Sequence[dict[str, Any]] = (),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cluster = cluster
        self.run_id = run_id
        self.plan_hash = plan_hash
        self.gate = gate
        self.watch = watch
        self.others = others

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("cluster", "run_id", "plan_hash", "gate", "watch", *(("others",) if self.others else ()))
        return "kafka_rollout.airflow.gates.trigger.GateTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        watcher = _Watcher(self)
        try:
            security = await KafkaClusterHook(self.cluster).asecurity()
            while True:
                # The task has just checked. An event at once can arrive before the end of the task's process.
                await watcher.pause(security)
                status = await asyncio.to_thread(watcher.check)
                if watcher.is_due_for_log(status):
                    self.log.info("%s", status.message)
                if status.done:
                    yield self._event(status.state.value, status.message)
                    return
        except RolloutError as error:
            yield self._event(ERROR, str(error))
        finally:
            await asyncio.to_thread(watcher.close)

    def _event(self, state: str, message: str) -> TriggerEvent:
        return TriggerEvent({"state": state, "message": message, "gate": self.gate})


class _Watcher:
    """The ports of one cluster, kept open between checks and opened again after an error."""

    def __init__(self, trigger: GateTrigger) -> None:
        self._trigger = trigger
        watched = ({"gate": trigger.gate, "watch": trigger.watch}, *trigger.others)
        self._refs = [from_json(GateRef, one["gate"]) for one in watched]
        self._watches = [from_json(GateWatch, one["watch"]) for one in watched]
        self._open: AbstractContextManager[ClusterPorts] | None = None
        self._ports: ClusterPorts | None = None
        self._unanswered = WatchStatus(state=WatchState.WAITING, message="")
        self._logged, self._logged_at = "", 0.0

    async def pause(self, security: ClientSecurity) -> None:
        """Wait until the next check is due."""
        if self._ports is None:
            await asyncio.to_thread(self._connect, security)
        if self._ports is None:
            await asyncio.sleep(self._watches[0].policy.interval_s)
        else:
            await self._ports.clock.sleep_async(pause_s(self._watches, self._ports.clock.now()))

    def check(self) -> WatchStatus:
        if self._ports is None:
            return self._unanswered
        try:
            plan = check_plan(self._ports, self._trigger.plan_hash)
            gates = resolve_together(self._refs, plan, self._ports.cluster)
            return check_gates(self._ports, plan, gates, self._watches)
        except TransientError as error:
            return _unanswered(error)

    def is_due_for_log(self, status: WatchStatus) -> bool:
        """Return whether the message changed, or was logged more than LOG_AGAIN_S ago."""
        now = 0.0 if self._ports is None else self._ports.clock.monotonic()
        if status.message == self._logged and now - self._logged_at <= LOG_AGAIN_S:
            return False
        self._logged, self._logged_at = status.message, now
        return True

    def _connect(self, security: ClientSecurity) -> None:
        try:
            self._open = KafkaClusterHook(self._trigger.cluster).open(self._trigger.run_id, security)
            self._ports = self._open.__enter__()
        except TransientError as error:
            self._unanswered = _unanswered(error)

    def close(self) -> None:
        opened, self._open, self._ports = self._open, None, None
        if opened is not None:
            opened.__exit__(None, None, None)


def _unanswered(error: TransientError) -> WatchStatus:
    return WatchStatus(state=WatchState.WAITING, message=f"waits for a response: {error}")
