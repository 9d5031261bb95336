"""Checks a gate in the triggerer, so no worker is used while a node starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from kafka_rollout.airflow.common.cluster_access import ClusterAccess
from kafka_rollout.airflow.gates.gate_log import GateLog
from kafka_rollout.airflow.gates.trigger_ports import trigger_ports
from kafka_rollout.airflow.logs import OneLineLogs
from kafka_rollout.airflow.own_threads import OF_TRIGGERS
from kafka_rollout.base.errors import RolloutError, TransientError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.gates.gate import (
    HELD_INTERVAL_S,
    GateRef,
    GateWatch,
    WatchState,
    WatchStatus,
)
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.frozen_plan import check_plan
from kafka_rollout.roll.gate_checks import check_gates

if TYPE_CHECKING:
    from kafka_rollout.observation.cluster_ports import ClusterPorts

SOAK_INTERVAL_S = 10.0  # between two checks during a soak
ERROR = "error"  # the state of the event if the check itself was refused


def pause_s(watches: Sequence[GateWatch]) -> float:
    """Return the seconds until the next check; a soak or a pause of hours needs fewer checks."""
    if any(watch.is_held for watch in watches):
        return HELD_INTERVAL_S
    return min(_pause_s(watch) for watch in watches if not watch.is_done)


def _pause_s(watch: GateWatch) -> float:
    if (left := watch.soak_left_s) is None:
        return watch.policy.interval_s
    return max(watch.policy.interval_s, min(SOAK_INTERVAL_S, left))


class GateTrigger(OneLineLogs, BaseTrigger):
    """Check a gate until its watch ends. `watch`: dictionary of a GateWatch, so it continues the checks of the task.

    `records`: what the task has read before. The event has `state` (passed, failed or error), `message` and `records`.
    """

    def __init__(
        self,
        *,
        cluster: str,
        run_id: str,
        clears: int,
        plan_hash: str,
        gate: dict[str, Any],
        watch: dict[str, Any],
        records: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cluster = cluster
        self.run_id = run_id
        self.clears = clears
        self.plan_hash = plan_hash
        self.gate = gate
        self.watch = watch
        self.records = dict(records or {})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("cluster", "run_id", "clears", "plan_hash", "gate", "watch", "records")
        return "kafka_rollout.airflow.gates.trigger.GateTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        watch = from_json(GateWatch, self.watch)
        ports: ClusterPorts | None = None
        closing = ExitStack()
        said = GateLog(self.log.info)
        try:
            hook = ClusterAccess(self.cluster)
            security = await hook.asecurity()
            while True:
                try:
                    if ports is None:
                        ports = await OF_TRIGGERS.run(
                            lambda: closing.enter_context(
                                trigger_ports(hook, self.run_id, security, clears=self.clears)
                            )
                        )
                    # The task has just checked. An event at once can arrive before the end of the task's process.
                    await ports.clock.sleep_async(pause_s([watch]))
                    status = await OF_TRIGGERS.run(self._check, watch, ports, said)
                except TransientError as error:
                    status = WatchStatus(state=WatchState.WAITING, message=f"waits for a response: {error}")
                    if ports is None:
                        await asyncio.sleep(watch.policy.interval_s)
                now = 0.0 if ports is None else ports.clock.monotonic()
                said.say(status.message, now, is_done=status.done)
                if status.done:
                    yield self._event(status.state.value, status.message)
                    return
        except RolloutError as error:
            yield self._event(ERROR, str(error))
        finally:
            await OF_TRIGGERS.run(closing.close)

    def _check(self, watch: GateWatch, ports: ClusterPorts, said: GateLog) -> WatchStatus:
        plan = check_plan(ports, self.plan_hash)
        gate = from_json(GateRef, self.gate).resolve(plan, ports.cluster)
        return check_gates(Run(ports, plan), [gate], [watch], said.add)

    def _event(self, state: str, message: str) -> TriggerEvent:
        return TriggerEvent({"state": state, "message": message, "records": self.records})
