"""kafka-python's coordinator with a fix: the next poll() continues a rebalance that takes longer than one poll().

The base class loses such a rebalance in two cases, and the member leaves the group temporarily or permanently:

- It drops a join whose response arrives between two polls and starts again, and so all other members rejoin, too. With
  polls shorter than a join, or on a slow machine, the group may never become stable.
- A leader rejoins because metadata changed. It assigns with the new metadata, so the reason no longer exists. If the
  poll times out during this rejoin, the member continues without an assignment and without heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.protocol.consumer import UNKNOWN_MEMBER_ID


class UnreadJoin:
    """A join that is not done until its result was read: the base class takes None for a join that was read."""

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
    """A coordinator that keeps its joins."""

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
        """Leave the group and drop a finished join whose result was not read."""
        super().reset_generation(member_id)
        if self._join_task is not None and self._join_task.task.is_done:
            self._join_task = None
