"""The cleaning times of a remedy are those of a real broker with the settings for faster cleaning."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kafka_rollout.client.fetch import FetchSource
from kafka_rollout.formats import cleaning as scan_cleaning
from kafka_rollout.formats.cleaning import CleaningConfig, SettingChange
from tests.integration.conftest import MakeCluster
from tests.integration.harness.cluster_contents import wait_until_all_know
from tests.waiting import wait_until
from tools.coordinator_traffic import CONSUMER_OFFSETS, Counts, count_by_consumer, plant, versioned

SHADOWED, TOMBSTONES = (0, 99, 7), (0, 99, None)
FASTER_MS = 10_000
BACKOFF_MS = 1_000
PASS_MS = 120_000  # the pass itself, and a busy machine
CLOCKS_MS = 500  # the broker counts by another clock


@dataclass
class Log:
    """One partition of a coordinator log, to which a record is appended with every read: it is what closes segments."""

    servers: str

    def append(self, key: int, value: bytes | None) -> None:
        plant(self.servers, CONSUMER_OFFSETS, 0, [(versioned(key, b"one"), value)], "none")

    def read(self) -> Counts:
        self.append(98, versioned(0))
        return count_by_consumer(self.servers, CONSUMER_OFFSETS)

    def gone(self, what: tuple[int, int, int | None], since: float, *, within_ms: int) -> tuple[float, float, Counts]:
        """When the last read began that found a record of the class (`since`, if none did), when the first was over
        that found none, and what that one found. However long reads take, the record went between the two."""
        found, deadline = since, time.monotonic() + within_ms / 1000
        while True:
            began = time.monotonic()
            seen = self.read()
            if what not in seen:
                return found, time.monotonic(), seen
            found = began
            assert began < deadline, f"{what} is there still"


@pytest.mark.integration
@pytest.mark.full
@pytest.mark.parametrize("release", ["4.3.1", "3.4.1"])
def test_the_cleaner_removes_tombstones_in_its_second_pass_within_the_time_that_the_remedy_names(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    cluster = make_cluster(
        release,
        layout="combined",
        size=1,
        extra_config={"offsets.topic.num.partitions": "1", "log.cleaner.backoff.ms": str(BACKOFF_MS)},
    )
    servers = cluster.spec.bootstrap_servers
    monkeypatch.setattr(scan_cleaning, "FASTER_MS", FASTER_MS)
    config = replace(CleaningConfig(), cleaner_backoff_ms=BACKOFF_MS)
    soon = config.with_faster_cleaning()
    assert soon.pass_within_ms == FASTER_MS + BACKOFF_MS

    log = Log(servers)
    make_offsets_topic(servers)
    log.append(99, versioned(7))
    log.append(99, None)
    assert {SHADOWED, TOMBSTONES} <= log.read().keys()
    began = time.monotonic()
    alter(servers, config.faster_settings(CONSUMER_OFFSETS))
    wait_until_all_know(cluster.spec)
    with FetchSource(servers) as source:
        told = source.cleaning([CONSUMER_OFFSETS, "no-such-topic"])
    own = ("delete.retention.ms", "max.compaction.lag.ms")
    assert told.keys() == {CONSUMER_OFFSETS}
    assert set(own) <= set(told[CONSUMER_OFFSETS].own)
    assert replace(told[CONSUMER_OFFSETS], cleaner_backoff_ms=BACKOFF_MS, known=False, own=()) == soon

    before_first, after_first, seen = log.gone(SHADOWED, began, within_ms=soon.pass_within_ms + PASS_MS)
    assert TOMBSTONES in seen, "a tombstone outlives the first pass over it"
    within_ms = (soon.tombstones_gone_within_ms or 0) + 2 * PASS_MS
    _, after_second, _ = log.gone(TOMBSTONES, after_first, within_ms=within_ms)
    assert 1000 * (after_second - before_first) > FASTER_MS - CLOCKS_MS


def make_offsets_topic(servers: str) -> None:
    """The brokers create it at the first request for a coordinator."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "asks"})

    def answered() -> bool:
        try:
            return bool(consumer.committed([TopicPartition("none", 0)], timeout=5))
        except KafkaException:
            return False

    try:
        wait_until(answered, 180)
    finally:
        consumer.close()


def alter(servers: str, changes: Iterable[SettingChange], *, back: bool = False) -> None:
    """`back`: as it was before; none of these tests' topics has such settings of its own."""
    how = AlterConfigOpType.DELETE if back else AlterConfigOpType.SET
    resource = ConfigResource(
        ResourceType.TOPIC,
        CONSUMER_OFFSETS,
        incremental_configs=[ConfigEntry(change.name, change.value, incremental_operation=how) for change in changes],
    )
    admin = AdminClient({"bootstrap.servers": servers})  # must live until it has answered
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(60)
