"""Facts of the metadata log that no response of a node contains: registered levels, ZooKeeper migration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_rollout.releases.facts import VersionRange

# ZkMigrationState: NONE and POST_MIGRATION. PRE_MIGRATION and MIGRATION are 2 and 1, in 3.4 the other way round.
_ZK_CLOSED = frozenset({0, 3})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRegistrations:
    """Registrations in a metadata log.

    `controllers`: id → range by feature, as the controller registered (KIP-919). `migrating_brokers`: registered in
    ZooKeeper mode. `zk_migration`: the newest ZkMigrationStateRecord, 0 without one.
    """

    controllers: Mapping[int, Mapping[str, VersionRange]] = field(default_factory=dict)
    migrating_brokers: frozenset[int] = frozenset()
    zk_migration: int = 0

    @property
    def migrates_from_zookeeper(self) -> bool:
        """Whether a migration from ZooKeeper has begun and is not finalized."""
        return self.zk_migration not in _ZK_CLOSED or bool(self.migrating_brokers)
