"""Partitions in a metadata log: records that are appended to the log of a real node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_rollout.metadata_log.disk.folder import MetadataFolder
from kafka_rollout.metadata_log.node_logs.newest_metadata import read_partitions
from kafka_rollout.metadata_log.record_types import RecordType
from kafka_rollout.metadata_log.start_order import LoggedPartition
from kafka_rollout.model.unclean_elections import ENABLE
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.unit.metadata_log.node_logs.test_registrations import BROKER, append, cache, folder

__all__ = ["cache", "folder"]  # fixtures
ID = "AAAAAAAAAAAAAAAAAAAAAQ"
NONE: Mapping[str, Any] = {"eligibleLeaderReplicas": None, "lastKnownElr": None}
PARTITION: Mapping[str, Any] = {
    "partitionId": 0,
    "topicId": ID,
    "replicas": [1, 2, 3],
    "isr": [1, 2, 3],
    "removingReplicas": [],
    "addingReplicas": [],
    "leader": 1,
    "leaderRecoveryState": 0,
    "leaderEpoch": 1,
    "partitionEpoch": 1,
    "directories": [],
    **NONE,
}
CHANGE: Mapping[str, Any] = {
    "partitionId": 0,
    "topicId": ID,
    "isr": None,
    "leader": -2,
    "replicas": None,
    "removingReplicas": None,
    "addingReplicas": None,
    "leaderRecoveryState": -1,
    "directories": None,
    **NONE,
}


def add_topic(folder: MetadataFolder, **fields: Any) -> None:
    append(folder, RecordType.TOPIC, {"name": "a", "topicId": ID})
    append(folder, RecordType.PARTITION, {**PARTITION, **fields}, version=2)


def change(folder: MetadataFolder, **fields: Any) -> None:
    append(folder, RecordType.PARTITION_CHANGE, {**CHANGE, **fields}, version=2)


def set_value(folder: MetadataFolder, kind: int, name: str, value: str | None, setting: str = ENABLE) -> None:
    fields = {"resourceType": kind, "resourceName": name, "name": setting, "value": value}
    append(folder, RecordType.CONFIG, fields)


def found(folder: MetadataFolder, cache: ReleaseCache) -> list[LoggedPartition]:
    return [one for one in read_partitions(folder, cache).partitions if one.topic == "a"]


def test_each_change_replaces_only_its_fields(folder: MetadataFolder, cache: ReleaseCache) -> None:
    add_topic(folder)
    change(folder, isr=[3], leader=-1)
    change(folder, eligibleLeaderReplicas=[2], lastKnownElr=[1])
    (one,) = found(folder, cache)
    assert (one.name, one.replicas, one.isr, one.elr, one.last_known_elr) == ("a-0", (1, 2, 3), (3,), (2,), (1,))
    change(folder, isr=[])
    assert found(folder, cache)[0].clean_leaders == (2,)
    append(folder, RecordType.CLEAR_ELR, {"topicName": "b"})
    assert found(folder, cache)[0].elr == (2,)
    append(folder, RecordType.CLEAR_ELR, {"topicName": "a"})
    assert found(folder, cache)[0].clean_leaders == ()


def test_a_deleted_topic_and_its_setting_are_gone(folder: MetadataFolder, cache: ReleaseCache) -> None:
    add_topic(folder)
    set_value(folder, 2, "a", "true")
    append(folder, RecordType.REMOVE_TOPIC, {"topicId": ID})
    assert found(folder, cache) == []
    assert read_partitions(folder, cache).dynamic.topics == {}


def test_a_topic_of_a_transaction_that_did_not_end_does_not_exist(folder: MetadataFolder, cache: ReleaseCache) -> None:
    append(folder, RecordType.BEGIN_TRANSACTION, {"name": None})
    add_topic(folder)
    assert found(folder, cache) == []
    append(folder, RecordType.ABORT_TRANSACTION, {"reason": None})
    assert found(folder, cache) == []
    append(folder, RecordType.BEGIN_TRANSACTION, {"name": None})
    add_topic(folder)
    append(folder, RecordType.END_TRANSACTION, {})
    assert len(found(folder, cache)) == 1


def test_brokers_are_unfenced_by_each_record_that_says_so(folder: MetadataFolder, cache: ReleaseCache) -> None:
    def unfenced() -> bool:
        return 9 in read_partitions(folder, cache).unfenced

    def change_registration(fenced: int) -> None:
        fields = {"brokerId": 9, "brokerEpoch": 1, "fenced": fenced, "inControlledShutdown": 0, "logDirs": []}
        append(folder, RecordType.BROKER_REGISTRATION_CHANGE, fields, version=2)

    append(folder, RecordType.REGISTER_BROKER, BROKER, version=2)
    assert not unfenced()
    append(folder, RecordType.UNFENCE_BROKER, {"id": 9, "epoch": 1})
    assert unfenced()
    append(folder, RecordType.FENCE_BROKER, {"id": 9, "epoch": 1})
    assert not unfenced()
    change_registration(-1)
    assert unfenced()
    change_registration(0)
    assert unfenced()
    change_registration(1)
    assert not unfenced()
    append(folder, RecordType.REGISTER_BROKER, {**BROKER, "fenced": False}, version=2)
    assert unfenced()
    append(folder, RecordType.UNREGISTER_BROKER, {"brokerId": 9, "brokerEpoch": 1})
    assert not unfenced()


def test_the_values_of_topics_nodes_and_all_brokers(folder: MetadataFolder, cache: ReleaseCache) -> None:
    set_value(folder, 2, "a", "true")
    set_value(folder, 2, "b", "true")
    set_value(folder, 2, "b", None)
    set_value(folder, 2, "c", "60000", setting="retention.ms")
    set_value(folder, 4, "1", "true")
    set_value(folder, 4, "", "false")
    dynamic = read_partitions(folder, cache).dynamic
    assert dynamic.topics == {"a": {ENABLE: "true"}}
    assert dynamic.brokers == {1: {ENABLE: "true"}}
    assert dynamic.all_brokers == {ENABLE: "false"}
