"""The contents of a cluster as a rehearsal compares them."""

from __future__ import annotations

from kafka_rollout.domain.rehearsal.result import Contents
from kafka_rollout.ports.cluster import ClusterAdmin


def read_contents(admin: ClusterAdmin, before: Contents | None = None) -> Contents:
    """Read the contents of a cluster, without end offsets of partitions that have no leader.

    `before`: its groups with a configuration are queried in any case.
    """
    configured = () if before is None else tuple(before.inventory.group_configs)
    inventory = admin.inventory(configured_groups=configured, leaderless=True)
    ids = (transaction.transactional_id for transaction in admin.transactions())
    return Contents(inventory=inventory, transactional_ids=tuple(sorted(ids)))
