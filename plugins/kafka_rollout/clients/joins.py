"""kafka-python's coordinator, mended: a rebalance that outlasts a poll() is gone on with by the next one.

The base class forgets it in two ways, and both take the member out of the group for a while, or for ever:

- A join whose answer comes between two polls is thrown away and begun anew, and every other member joins anew as well.
  With polls shorter than a join, or on a slow machine, a group may never settle.
- A leader joins because metadata changed. By assigning with the new metadata the reason is gone, and a poll that ran
  out of time meanwhile leaves a member that keeps polling without assignment and without heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.protocol.consumer import UNKNOWN_MEMBER_ID


class UnreadJoin:
    """A join that is not done before somebody has heard its end: the base class takes None for heard."""

    is_done = False

    def __init__(self, task: Any) -> None:
        self.task = task

    def add_callback(self, call: Callable[[Any], None]) -> None:
        self.task.add_callback(call)

    def add_errback(self, call: Callable[[Any], None]) -> None:
        self.task.add_errback(call)

    def __await__(self) -> Generator[Any, Any, Any]:
        awaiting: Generator[Any, Any, Any] = self.task.__await__()
        return awaiting


class KeptJoins(ConsumerCoordinator):  # type: ignore[misc]
    """A coordinator that keeps its joins; an instance is made one by its class."""

    @property
    def _join_task(self) -> UnreadJoin | None:
        join: UnreadJoin | None = self.__dict__["_join_task"]
        return join

    @_join_task.setter
    def _join_task(self, task: Any) -> None:
        self.__dict__["_join_task"] = None if task is None else UnreadJoin(task)

    def need_rejoin(self) -> bool:
        begun = self.rejoining and self._subscription.partitions_auto_assigned()
        return bool(begun or super().need_rejoin())

    def reset_generation(self, member_id: str = UNKNOWN_MEMBER_ID) -> None:
        """Out of the group: the assignment of a join that is over, and was not heard, is of no use any more."""
        super().reset_generation(member_id)
        if self._join_task is not None and self._join_task.task.is_done:
            self._join_task = None
