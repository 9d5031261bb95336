"""Registrations in a metadata log: records that are appended to the log of a real node."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.formats.messages import encode
from kafka_rollout.metadata_log.classes.known_releases import metadata_schemas
from kafka_rollout.metadata_log.disk.folder import (
    MetadataFolder,
    MetadataRecord,
    encode_batch,
    log_range,
    open_folder,
    read_log,
)
from kafka_rollout.metadata_log.node_logs.newest_metadata import read_registrations
from kafka_rollout.metadata_log.record_types import RecordType
from kafka_rollout.releases.facts import Release, VersionRange
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.paths import FIXTURES
from tests.releases import NEWEST
from tools.demo.folder import PROJECT_ROOT

INCLUDE = PROJECT_ROOT / "include"
CONTROLLER: Mapping[str, Any] = {
    "controllerId": 4,
    "incarnationId": "AAAAAAAAAAAAAAAAAAAAAA",
    "zkMigrationReady": False,
    "endPoints": [],
    "features": [{"name": "metadata.version", "minSupportedVersion": 1, "maxSupportedVersion": 21}],
}
BROKER: Mapping[str, Any] = {
    "brokerId": 9,
    "isMigratingZkBroker": True,
    "incarnationId": "AAAAAAAAAAAAAAAAAAAAAA",
    "brokerEpoch": 1,
    "endPoints": [],
    "features": [],
    "rack": None,
    "fenced": True,
    "inControlledShutdown": False,
}


@pytest.fixture
def cache(tmp_path: Path) -> ReleaseCache:
    return ReleaseCache(cache=tmp_path / "cache", include=INCLUDE)


@pytest.fixture
def folder(tmp_path: Path) -> MetadataFolder:
    shutil.copytree(FIXTURES / "metadata-log-level-30", tmp_path / "metadata")
    return open_folder(tmp_path / "metadata")


def append(folder: MetadataFolder, kind: int, value: Mapping[str, Any], version: int = 0) -> None:
    schema = metadata_schemas(Release.parse(NEWEST), INCLUDE).get(kind)
    body = b"" if schema is None else encode(schema.layout(version), value)
    raw = bytes((1, kind, version)) + body
    last = list(read_log(folder))[-1]
    offset = log_range(folder)[1]
    record = MetadataRecord(offset=offset, frame=1, type=kind, version=version, value=raw, body_at=3)
    batch = replace(last, base_offset=offset, last_offset=offset)
    with folder.segments[-1].open("ab") as file:
        file.write(encode_batch(batch, [record]))


def test_a_cluster_in_kraft_mode(folder: MetadataFolder, cache: ReleaseCache) -> None:
    found = read_registrations(folder, cache)
    assert found.controllers[1]["metadata.version"] == VersionRange(7, 30)
    assert not found.migrates_from_zookeeper


def test_the_newest_registration_of_a_controller_counts(folder: MetadataFolder, cache: ReleaseCache) -> None:
    append(folder, RecordType.REGISTER_CONTROLLER, CONTROLLER)
    assert read_registrations(folder, cache).controllers[4] == {"metadata.version": VersionRange(1, 21)}
    again = [{"name": "metadata.version", "minSupportedVersion": 7, "maxSupportedVersion": 33}]
    append(folder, RecordType.REGISTER_CONTROLLER, {**CONTROLLER, "features": again})
    assert read_registrations(folder, cache).controllers[4] == {"metadata.version": VersionRange(7, 33)}
    append(folder, RecordType.UNREGISTER_CONTROLLER, {"controllerId": 4})
    assert set(read_registrations(folder, cache).controllers) == {1}


def test_the_state_of_a_migration_is_the_newest(folder: MetadataFolder, cache: ReleaseCache) -> None:
    for state, is_open in ((2, True), (1, True), (3, False)):
        append(folder, RecordType.ZK_MIGRATION_STATE, {"zkMigrationState": state})
        found = read_registrations(folder, cache)
        assert (found.zk_migration, found.migrates_from_zookeeper) == (state, is_open)


def test_a_broker_in_zookeeper_mode_counts_until_it_registers_again(
    folder: MetadataFolder, cache: ReleaseCache
) -> None:
    append(folder, RecordType.REGISTER_BROKER, BROKER, version=2)
    found = read_registrations(folder, cache)
    assert (found.migrating_brokers, found.migrates_from_zookeeper) == ({9}, True)
    append(folder, RecordType.REGISTER_BROKER, {**BROKER, "isMigratingZkBroker": False}, version=2)
    assert not read_registrations(folder, cache).migrates_from_zookeeper


def test_the_newest_registration_of_a_broker_has_the_ranges_that_it_sent(
    folder: MetadataFolder, cache: ReleaseCache
) -> None:
    metadata = {"name": "metadata.version", "minSupportedVersion": 7, "maxSupportedVersion": 30}
    group = {"name": "group.version", "minSupportedVersion": 0, "maxSupportedVersion": 1}
    append(folder, RecordType.REGISTER_BROKER, {**BROKER, "features": [metadata]}, version=2)
    assert read_registrations(folder, cache).brokers[9] == {"metadata.version": VersionRange(7, 30)}
    append(folder, RecordType.REGISTER_BROKER, {**BROKER, "features": [metadata, group]}, version=2)
    assert read_registrations(folder, cache).brokers[9]["group.version"] == VersionRange(0, 1)
    append(folder, RecordType.UNREGISTER_BROKER, {"brokerId": 9, "brokerEpoch": 1})
    assert 9 not in read_registrations(folder, cache).brokers


def test_an_unknown_version_is_refused(folder: MetadataFolder, cache: ReleaseCache) -> None:
    append(folder, RecordType.ZK_MIGRATION_STATE, {"zkMigrationState": 0}, version=0)
    log = folder.segments[-1]
    data = log.read_bytes()
    batch = list(read_log(folder))[-1]
    record = replace(batch.records[0], value=bytes((1, 21, 9, 0)))
    log.write_bytes(data[: batch.position] + encode_batch(batch, [record]))
    with pytest.raises(UserError, match="type 21, version 9"):
        read_registrations(folder, cache)
