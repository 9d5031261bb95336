"""The newest metadata in a log: its newest snapshot and the log after it, by the definitions of the newest release."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from kafka_rollout.base.errors import UserError
from kafka_rollout.formats.messages import decode
from kafka_rollout.metadata_log.classes.known_releases import known_releases, metadata_schemas
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, MetadataRecord, read_start
from kafka_rollout.metadata_log.record_types import MetadataRegistrations, RecordType
from kafka_rollout.metadata_log.start_order import LoggedPartition, LoggedPartitions
from kafka_rollout.model.configs import DynamicConfigs
from kafka_rollout.model.unclean_elections import ENABLE
from kafka_rollout.releases.facts import VersionRange
from kafka_rollout.releases.jars.cache import ReleaseCache

_REGISTRATIONS = frozenset(
    {
        RecordType.REGISTER_BROKER,
        RecordType.UNREGISTER_BROKER,
        RecordType.ZK_MIGRATION_STATE,
        RecordType.REGISTER_CONTROLLER,
        RecordType.UNREGISTER_CONTROLLER,
    }
)
_PARTITIONS = frozenset(
    {
        RecordType.REGISTER_BROKER,
        RecordType.UNREGISTER_BROKER,
        RecordType.FENCE_BROKER,
        RecordType.UNFENCE_BROKER,
        RecordType.BROKER_REGISTRATION_CHANGE,
        RecordType.TOPIC,
        RecordType.REMOVE_TOPIC,
        RecordType.PARTITION,
        RecordType.PARTITION_CHANGE,
        RecordType.CONFIG,
        RecordType.CLEAR_ELR,
    }
)
_CHANGES = frozenset({"isr", "replicas", "eligibleLeaderReplicas", "lastKnownElr"})
_TOPIC, _BROKER = 2, 4  # org.apache.kafka.common.config.ConfigResource.Type
_UNFENCED, _FENCED = -1, 1  # org.apache.kafka.metadata.BrokerRegistrationFencingChange


def read_registrations(folder: MetadataFolder, cache: ReleaseCache) -> MetadataRegistrations:
    """Return the registrations. Raises UserError for a record that no release of the catalogue defines."""
    brokers: dict[int, dict[str, VersionRange]] = {}
    controllers: dict[int, dict[str, VersionRange]] = {}
    migrating: set[int] = set()
    zk_migration = 0
    for kind, value in _newest(folder, cache, _REGISTRATIONS):
        match kind:
            case RecordType.REGISTER_BROKER:
                (migrating.add if value.get("isMigratingZkBroker") else migrating.discard)(value["brokerId"])
                brokers[value["brokerId"]] = _ranges(value)
            case RecordType.UNREGISTER_BROKER:
                migrating.discard(value["brokerId"])
                brokers.pop(value["brokerId"], None)
            case RecordType.ZK_MIGRATION_STATE:
                zk_migration = value["zkMigrationState"]
            case RecordType.REGISTER_CONTROLLER:
                controllers[value["controllerId"]] = _ranges(value)
            case RecordType.UNREGISTER_CONTROLLER:
                controllers.pop(value["controllerId"], None)
    return MetadataRegistrations(
        brokers=brokers,
        controllers=controllers,
        migrating_brokers=frozenset(migrating),
        zk_migration=zk_migration,
    )


def read_partitions(folder: MetadataFolder, cache: ReleaseCache) -> LoggedPartitions:
    """Return the partitions. Raises UserError for a record that no release of the catalogue defines."""
    unfenced: set[int] = set()
    names: dict[str, str] = {}
    topics: dict[str, dict[int, dict[str, Any]]] = {}
    configs: dict[tuple[int, str], str] = {}
    for kind, value in _newest(folder, cache, _PARTITIONS):
        match kind:
            case RecordType.REGISTER_BROKER:
                (unfenced.discard if value["fenced"] else unfenced.add)(value["brokerId"])
            case RecordType.UNREGISTER_BROKER:
                unfenced.discard(value["brokerId"])
            case RecordType.FENCE_BROKER:
                unfenced.discard(value["id"])
            case RecordType.UNFENCE_BROKER:
                unfenced.add(value["id"])
            case RecordType.BROKER_REGISTRATION_CHANGE if value["fenced"] == _FENCED:
                unfenced.discard(value["brokerId"])
            case RecordType.BROKER_REGISTRATION_CHANGE if value["fenced"] == _UNFENCED:
                unfenced.add(value["brokerId"])
            case RecordType.TOPIC:
                names[value["topicId"]] = value["name"]
            case RecordType.REMOVE_TOPIC:
                topics.pop(value["topicId"], None)
                configs.pop((_TOPIC, names.pop(value["topicId"], "")), None)
            case RecordType.PARTITION:
                topics.setdefault(value["topicId"], {})[value["partitionId"]] = value
            case RecordType.PARTITION_CHANGE:
                changed = {name: new for name, new in value.items() if name in _CHANGES and new is not None}
                topics[value["topicId"]][value["partitionId"]].update(changed)
            case RecordType.CLEAR_ELR:
                for topic_id, partitions in topics.items():
                    if value["topicName"] in ("", names[topic_id]):
                        for one in partitions.values():
                            one.update(eligibleLeaderReplicas=None, lastKnownElr=None)
            case RecordType.CONFIG if value["name"] == ENABLE:
                key = (value["resourceType"], value["resourceName"])
                if value["value"] is None:
                    configs.pop(key, None)
                else:
                    configs[key] = value["value"]
    of_topics = {name: {ENABLE: value} for (kind, name), value in configs.items() if kind == _TOPIC}
    of_brokers = {name: {ENABLE: value} for (kind, name), value in configs.items() if kind == _BROKER}
    return LoggedPartitions(
        partitions=tuple(
            _partition(names[topic_id], number, value)
            for topic_id, partitions in topics.items()
            for number, value in sorted(partitions.items())
        ),
        unfenced=frozenset(unfenced),
        dynamic=DynamicConfigs(
            topics=of_topics,
            brokers={int(name): own for name, own in of_brokers.items() if name},
            all_brokers=of_brokers.get("", {}),
        ),
    )


def _partition(topic: str, number: int, value: dict[str, Any]) -> LoggedPartition:
    return LoggedPartition(
        topic=topic,
        partition=number,
        replicas=tuple(value["replicas"]),
        isr=tuple(value["isr"]),
        elr=tuple(value.get("eligibleLeaderReplicas") or ()),
        last_known_elr=tuple(value.get("lastKnownElr") or ()),
    )


def _ranges(registration: dict[str, Any]) -> dict[str, VersionRange]:
    return {
        one["name"]: VersionRange(one["minSupportedVersion"], one["maxSupportedVersion"])
        for one in registration["features"]
    }


def _newest(
    folder: MetadataFolder, cache: ReleaseCache, kinds: Collection[RecordType]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the type and the message of each record of these types, without transactions that did not end (KIP-868)."""
    folders = cache.catalogue_folders
    schemas = metadata_schemas(known_releases(*folders)[-1], *folders)
    newest = folder.checkpoints[-1] if folder.checkpoints else None
    pending: list[tuple[int, dict[str, Any]]] | None = None
    for batch, _ in read_start(folder, newest):
        for record in batch.records if not batch.is_control else ():
            if record.type == RecordType.BEGIN_TRANSACTION:
                pending = []
            elif record.type == RecordType.END_TRANSACTION:
                yield from pending or ()
                pending = None
            elif record.type == RecordType.ABORT_TRANSACTION:
                pending = None
            elif record.type in kinds:
                found = record.type, _decode(record, schemas, folder)
                if pending is None:
                    yield found
                else:
                    pending.append(found)


def _decode(record: MetadataRecord, schemas: Any, folder: MetadataFolder) -> dict[str, Any]:
    schema = schemas.get(record.type)
    if schema is None or record.version not in schema.valid_versions:
        raise UserError(
            f"{folder.log} has a record of type {record.type}, version {record.version}, which no release of the "
            "catalogue defines.",
            remedy="Add the running release with `kafka-rollout-derive add`.",
        )
    value: dict[str, Any] = decode(schema.layout(record.version), record.value, record.body_at).value
    return value
