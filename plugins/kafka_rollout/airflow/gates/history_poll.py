"""One poll of a run's history and of Airflow's states, for all instances of a triggerer that wait for their turn.

A roll of hundreds of batches has as many sensors that wait for the batches before them. They open no connection to the
cluster: the first one that looks after POLL_S reads the new rows of the history for all of them. The one that is next
looks more often, because what it waits adds to every batch.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka_rollout.airflow.logs import OneLineLogger
from kafka_rollout.airflow.own_threads import OF_TRIGGERS
from kafka_rollout.airflow.private_api import read_states
from kafka_rollout.base.errors import TransientError
from kafka_rollout.model.plan import BatchStep
from kafka_rollout.run.events import Event
from kafka_rollout.run.ports import RunStore
from kafka_rollout.run.projections.open_batches import RollOf, batches_of, first_open_batch

POLL_S = 1.0
NEXT_POLL_S = 0.2
STATES_S = 5.0

log = OneLineLogger(logging.getLogger(__name__))

_POLLS: dict[tuple[int, str, str], HistoryPoll] = {}  # by event loop, cluster and run


@dataclass(slots=True, eq=False)
class HistoryPoll:
    """The history of a run. `within_s`: how old it can be."""

    run: RunStore
    users: int = 0
    """How many triggers read it."""
    _events: tuple[Event, ...] = ()
    _read_at: float | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _states: dict[str, tuple[float, Mapping[int, str]]] = field(default_factory=dict)  # with when they were read
    _states_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _found: dict[RollOf, tuple[int, tuple[BatchStep, ...], int]] = field(default_factory=dict)  # with number of events

    async def events(self, within_s: float = POLL_S) -> tuple[Event, ...]:
        async with self._lock:
            if self._read_at is None or time.monotonic() - self._read_at >= within_s:
                self._events = await self._read()
                self._read_at = time.monotonic()
        return self._events

    async def _read(self) -> tuple[Event, ...]:
        """Read until the database responds: a short outage must not end all parts that wait for their turn."""
        while True:
            try:
                return await OF_TRIGGERS.run(self.run.events)
            except TransientError as error:
                log.warning("The history of the run cannot be read, and is read again: %s", error)
                await asyncio.sleep(POLL_S)

    async def batches(self, of: RollOf, within_s: float = POLL_S) -> tuple[tuple[BatchStep, ...], int]:
        """Return the batches and the index of the first one that has not passed. Computed once for each new history."""
        events = await self.events(within_s)
        async with self._lock:
            known = self._found.get(of)
            if known is None or known[0] != len(events):
                known = len(events), *await OF_TRIGGERS.run(self._find, of, events)
                self._found[of] = known
        return known[1:]

    async def states(self, place: Mapping[str, Any], task_id: str, since: float, *, is_next: bool) -> Mapping[int, str]:
        """Return Airflow's state of each instance of a mapped task, by map index. An instance without one is missing.

        `place`: `dag_id` and `run_id` of the run. The states are at most STATES_S old, and not older than `since`
        (monotonic seconds), before which the task can have been cleared. Empty if Airflow does not respond. Also empty
        in the first STATES_S of an instance that is not next: many begin within seconds, and share one reading.
        """
        async with self._states_lock:
            read_at, found = self._states.get(task_id, (-math.inf, {}))
            now = time.monotonic()
            if not is_next and now < since + STATES_S:
                return {}
            if read_at < max(since, now - STATES_S):
                try:
                    found = await OF_TRIGGERS.run(read_states, place["dag_id"], place["run_id"], task_id)
                except Exception as error:  # no answer of the execution API
                    log.warning("Airflow's states of %s cannot be read: %s", task_id, error)
                    found = {}
                self._states[task_id] = now, found
        return found

    def _find(self, of: RollOf, events: tuple[Event, ...]) -> tuple[tuple[BatchStep, ...], int]:
        batches = batches_of(of, events, self.run.load_plan())
        return batches, first_open_batch(events, batches)


@asynccontextmanager
async def shared_history(cluster: str, run_id: str) -> AsyncIterator[HistoryPoll]:
    """Yield the poll of a run that all triggers of this process share."""
    from kafka_rollout.run.store.opening import open_run

    key = (id(asyncio.get_running_loop()), cluster, run_id)
    if key not in _POLLS:
        _POLLS[key] = HistoryPoll(run=open_run(cluster, run_id))
    poll = _POLLS[key]
    poll.users += 1
    try:
        yield poll
    finally:
        poll.users -= 1
        if not poll.users:
            _POLLS.pop(key, None)
