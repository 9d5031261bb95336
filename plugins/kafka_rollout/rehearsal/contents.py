"""The contents of a cluster as a run and a rehearsal compare them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from kafka_rollout.base.clock import Clock
from kafka_rollout.base.errors import TransientError
from kafka_rollout.model.contents import ClusterInventory
from kafka_rollout.ports.cluster import ClusterAdmin
from kafka_rollout.rehearsal.result import Contents

T = TypeVar("T")
_TRIES, _PAUSE_S = 10, 2.0  # a leader that was just elected responds later


def read_contents(admin: ClusterAdmin, clock: Clock, before: Contents | None = None) -> Contents:
    """Read the contents of a cluster, without end offsets of partitions that have no leader.

    `before`: its groups with a configuration are queried in any case. Raises TransientError if a query still fails
    after some tries.
    """
    return _patiently(clock, lambda: _read(admin, before))


def read_inventory(admin: ClusterAdmin, clock: Clock, *, configured_groups: Collection[str] = ()) -> ClusterInventory:
    """Read contents and configuration of a cluster in service, as `read_contents` does, without transactional ids."""
    return _patiently(clock, lambda: admin.inventory(configured_groups=configured_groups, leaderless=True))


def _patiently(clock: Clock, read: Callable[[], T]) -> T:
    for _ in range(_TRIES - 1):
        try:
            return read()
        except TransientError:
            clock.sleep(_PAUSE_S)
    return read()


def _read(admin: ClusterAdmin, before: Contents | None) -> Contents:
    configured = () if before is None else tuple(before.inventory.group_configs)
    inventory = admin.inventory(configured_groups=configured, leaderless=True)
    ids = (transaction.transactional_id for transaction in admin.transactions())
    return Contents(inventory=inventory, transactional_ids=tuple(sorted(ids)))
