"""Waits in the triggerer until a cluster meets a condition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from kafka_rollout.airflow.common.any_cluster import AnyCluster, Opening
from kafka_rollout.airflow.logs import OneLineLogs
from kafka_rollout.airflow.own_threads import OF_TRIGGERS
from kafka_rollout.base.errors import RolloutError, TransientError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.gates.gate import GateCheck
from kafka_rollout.report.conditions import ClusterCondition

ERROR = "error"  # the state of the event if a check was refused
PASSED = "passed"


class ConditionTrigger(OneLineLogs, BaseTrigger):
    """Check the condition each `poke_interval` seconds until it is met.

    `place`, `condition`: dictionaries of AnyCluster and ClusterCondition. The event has `state` (passed or error) and
    `found` (`found_by`) or `message`.
    """

    def __init__(self, *, place: Mapping[str, Any], condition: Mapping[str, Any], poke_interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.place = dict(place)
        self.condition = dict(condition)
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("place", "condition", "poke_interval")
        path = "kafka_rollout.airflow.sensors.condition_trigger.ConditionTrigger"
        return path, {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        condition = from_json(ClusterCondition, self.condition)
        said = ""
        try:
            opening = await from_json(AnyCluster, self.place).aopening()
            while True:
                # The task has just checked. An event at once can arrive before the end of the task's process.
                await asyncio.sleep(self.poke_interval)
                try:
                    seen = await OF_TRIGGERS.run(check_once, opening, condition)
                except TransientError as error:
                    waits_for = str(error)
                else:
                    if seen.passes:
                        yield TriggerEvent({"state": PASSED, "found": found_by(seen)})
                        return
                    waits_for = seen.waits_for
                if waits_for != said:
                    self.log.info("Waits for %s", waits_for)
                    said = waits_for
        except RolloutError as error:
            yield TriggerEvent({"state": ERROR, "message": str(error)})


def check_once(opening: Opening, condition: ClusterCondition) -> GateCheck:
    with opening() as ports:
        return condition.check(ports)


def found_by(check: GateCheck) -> Any:
    """Return what a sensor leaves as its XCom: the conditions with the facts that were seen."""
    return to_json(check)
