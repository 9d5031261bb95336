"""Reads the registrations in a metadata log, by the definitions of the newest release."""

from __future__ import annotations

from typing import Any

from kafka_rollout.base.errors import UserError
from kafka_rollout.kafka.formats.messages import decode
from kafka_rollout.metadata_log.classes.known_releases import known_releases, metadata_schemas
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, MetadataRecord, read_start
from kafka_rollout.metadata_log.records import RecordType
from kafka_rollout.metadata_log.registrations import MetadataRegistrations
from kafka_rollout.releases.facts import VersionRange
from kafka_rollout.releases.jars.cache import ReleaseCache

_READ = frozenset(
    {
        RecordType.REGISTER_BROKER,
        RecordType.UNREGISTER_BROKER,
        RecordType.ZK_MIGRATION_STATE,
        RecordType.REGISTER_CONTROLLER,
        RecordType.UNREGISTER_CONTROLLER,
    }
)


def read_registrations(folder: MetadataFolder, cache: ReleaseCache) -> MetadataRegistrations:
    """Read the newest snapshot and the log after it. Raises UserError for a record that no known release defines."""
    folders = cache.catalogue_folders
    schemas = metadata_schemas(known_releases(*folders)[-1], *folders)
    controllers: dict[int, dict[str, VersionRange]] = {}
    migrating: set[int] = set()
    zk_migration = 0
    newest = folder.checkpoints[-1] if folder.checkpoints else None
    for batch, _ in read_start(folder, newest):
        for record in batch.records if not batch.is_control else ():
            if record.type not in _READ:
                continue
            value = _decode(record, schemas, folder)
            match record.type:
                case RecordType.REGISTER_BROKER:
                    (migrating.add if value.get("isMigratingZkBroker") else migrating.discard)(value["brokerId"])
                case RecordType.UNREGISTER_BROKER:
                    migrating.discard(value["brokerId"])
                case RecordType.ZK_MIGRATION_STATE:
                    zk_migration = value["zkMigrationState"]
                case RecordType.REGISTER_CONTROLLER:
                    controllers[value["controllerId"]] = {
                        one["name"]: VersionRange(one["minSupportedVersion"], one["maxSupportedVersion"])
                        for one in value["features"]
                    }
                case RecordType.UNREGISTER_CONTROLLER:
                    controllers.pop(value["controllerId"], None)
    return MetadataRegistrations(
        controllers=controllers, migrating_brokers=frozenset(migrating), zk_migration=zk_migration
    )


def _decode(record: MetadataRecord, schemas: Any, folder: MetadataFolder) -> dict[str, Any]:
    schema = schemas.get(record.type)
    if schema is None or record.version not in schema.valid_versions:
        raise UserError(
            f"{folder.log} has a record of type {record.type}, version {record.version}, which no release of the "
            "catalogue defines.",
            remedy="Add the running release with `kafka-rollout catalogue add`.",
        )
    value: dict[str, Any] = decode(schema.layout(record.version), record.value, record.body_at).value
    return value
