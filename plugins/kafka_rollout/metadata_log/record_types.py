"""Record types of the metadata log, the catalogue's facts about them per release, and the registrations in a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from kafka_rollout.releases.facts import Release, VersionRange


class RecordType(IntEnum):
    """apiKeys of org.apache.kafka.common.metadata.MetadataRecordType. They never change."""

    REGISTER_BROKER = 0
    UNREGISTER_BROKER = 1
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    FENCE_BROKER = 7
    UNFENCE_BROKER = 8
    REMOVE_TOPIC = 9
    FEATURE_LEVEL = 12
    BROKER_REGISTRATION_CHANGE = 17
    ACCESS_CONTROL_ENTRY = 18
    NO_OP = 20
    ZK_MIGRATION_STATE = 21
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REGISTER_CONTROLLER = 27
    CLEAR_ELR = 28
    UNREGISTER_CONTROLLER = 29


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRecordFacts:
    """One record type of a release."""

    type: int
    name: str
    reads: VersionRange
    """The versions that its classes parse."""
    controller: bool
    """Whether a controller (QuorumController.replay) and a broker (MetadataDelta.replay) accept it."""
    broker: bool
    """Whether a controller (QuorumController.replay) and a broker (MetadataDelta.replay) accept it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogFacts:
    """How a release reads the metadata log."""

    release: Release
    records: Mapping[int, MetadataRecordFacts]
    names: Mapping[int, str]
    """All record types of all releases of the catalogue."""
    starts_from_snapshot: bool
    """A starting node loads its newest snapshot even if its log begins at 0. Otherwise it replays such a log from 0 and
    loads the snapshot only if the log begins above 0."""

    @property
    def knows_transactions(self) -> bool:
        """Whether the release supports metadata transactions (KIP-868)."""
        return RecordType.BEGIN_TRANSACTION in self.records

    def name(self, kind: int) -> str:
        return self.names.get(kind, f"record type {kind}")

    def reason_not_read(self, kind: int, version: int) -> str | None:
        """Return why a controller of the release cannot replay a record of this type and version; None if it can."""
        known = self.records.get(kind)
        if known is None:
            return f"{self.release} does not support {self.name(kind)} (type {kind})"
        if version not in known.reads:
            return f"{self.release} supports {known.name} at versions {known.reads}, not {version}"
        if not known.controller:
            return f"controllers of {self.release} reject {known.name}"
        return None


# ZkMigrationState: NONE and POST_MIGRATION. PRE_MIGRATION and MIGRATION are 2 and 1, in 3.4 the other way round.
_ZK_BEGUN = frozenset({1, 2, 3})  # PRE_MIGRATION, MIGRATION, POST_MIGRATION
_ZK_CLOSED = frozenset({0, 3})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRegistrations:
    """Registrations in a metadata log, which no response of a node contains."""

    brokers: Mapping[int, Mapping[str, VersionRange]] = field(default_factory=dict)
    """Id → range by feature, as the broker (RegisterBrokerRecord) or the controller (KIP-919) registered."""
    controllers: Mapping[int, Mapping[str, VersionRange]] = field(default_factory=dict)
    """Id → range by feature, as the broker (RegisterBrokerRecord) or the controller (KIP-919) registered."""
    migrating_brokers: frozenset[int] = frozenset()
    """Registered in ZooKeeper mode."""
    zk_migration: int = 0
    """The newest ZkMigrationStateRecord, 0 without one."""

    @property
    def was_migrated(self) -> bool | None:
        """Whether the cluster was migrated from ZooKeeper, or this has begun; None if the state does not say so."""
        if self.migrating_brokers or self.zk_migration in _ZK_BEGUN:
            return True
        return False if self.zk_migration == 0 else None

    @property
    def migrates_from_zookeeper(self) -> bool:
        """Whether a migration from ZooKeeper has begun and is not finalized."""
        return self.zk_migration not in _ZK_CLOSED or bool(self.migrating_brokers)
