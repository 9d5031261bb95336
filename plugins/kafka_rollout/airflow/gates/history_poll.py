"""One poll of a run's history for all instances of a triggerer that wait for their turn.

A roll of hundreds of batches has as many sensors that wait for the batches before them. They open no connection to the
cluster: the first one that looks after POLL_S reads the new rows of the history for all of them. The one that is next
looks more often, because what it waits adds to every batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kafka_rollout.model.plan import BatchStep
from kafka_rollout.run.events import Event
from kafka_rollout.run.ports import RunStore
from kafka_rollout.run.projections.open_batches import RollOf, batches_of, first_open_batch

POLL_S = 1.0
NEXT_POLL_S = 0.2

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
    _found: dict[RollOf, tuple[int, tuple[BatchStep, ...], int]] = field(default_factory=dict)  # with number of events

    async def events(self, within_s: float = POLL_S) -> tuple[Event, ...]:
        async with self._lock:
            if self._read_at is None or time.monotonic() - self._read_at >= within_s:
                self._events = await asyncio.to_thread(self.run.events)
                self._read_at = time.monotonic()
        return self._events

    async def batches(self, of: RollOf, within_s: float = POLL_S) -> tuple[tuple[BatchStep, ...], int]:
        """Return the batches and the index of the first one that has not passed. Computed once for each new history."""
        events = await self.events(within_s)
        async with self._lock:
            known = self._found.get(of)
            if known is None or known[0] != len(events):
                known = len(events), *await asyncio.to_thread(self._find, of, events)
                self._found[of] = known
        return known[1:]

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
