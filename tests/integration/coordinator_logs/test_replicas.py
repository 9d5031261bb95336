"""Each broker cleans its own replica: what a follower still has decides the verdict, on real brokers."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.client.fetch import FetchSource
from kafka_rollout.coordinator_logs.findings import path_findings
from kafka_rollout.coordinator_logs.scan import LoadVerdict
from kafka_rollout.formats.log_types import ReplicaRange
from kafka_rollout.groups.group_records import conversion_conditions
from kafka_rollout.groups.reading.live import LiveCoordinatorLogs
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout_spark.kernel.programs import DecodingSpec
from kafka_rollout_spark.result import record_classes
from kafka_rollout_spark.source import live_logs, read_split
from tests.integration.conftest import MakeCluster
from tests.integration.coordinator_logs.test_scan_cleaner import make_offsets_topic
from tests.integration.harness.logs.planted_logs import BEHIND, COMMIT, COMMITTED
from tests.waiting import wait_until
from tools.coordinator_traffic import CONSUMER_OFFSETS, plant, versioned

pytestmark = pytest.mark.integration

NEVER_MS = 36_000_000
CONFIG = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "log.cleaner.backoff.ms": str(NEVER_MS),
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
UNKNOWN_VALUE = versioned(9)


def alter(servers: str, kind: ResourceType, name: str, settings: dict[str, object]) -> None:
    entries = [
        ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()
    ]
    admin = AdminClient({"bootstrap.servers": servers})
    for answer in admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values():
        answer.result(60)


@pytest.mark.parametrize(
    "release",
    [
        pytest.param("3.3.2", marks=pytest.mark.full),
        pytest.param("3.9.2", marks=pytest.mark.full),
        "4.3.1",
        pytest.param("4.4.0", marks=pytest.mark.full),
    ],
)
def test_a_record_that_only_a_follower_has_stops_every_release(make_cluster: MakeCluster, release: str) -> None:
    cluster = make_cluster(release, size=2, controllers=1, extra_config=CONFIG)
    servers = cluster.spec.bootstrap_servers
    make_offsets_topic(servers)
    fast = {"segment.ms": 1_000, "min.cleanable.dirty.ratio": 0.001, "max.compaction.lag.ms": 1_000}
    alter(servers, ResourceType.TOPIC, CONSUMER_OFFSETS, fast)
    plant(servers, CONSUMER_OFFSETS, 0, [(COMMIT, UNKNOWN_VALUE), (COMMIT, COMMITTED)], "none")

    with FetchSource(servers) as source:
        leader, follower = source.replicas([CONSUMER_OFFSETS]).ranges
        alter(servers, ResourceType.BROKER, str(leader.broker), {"log.cleaner.backoff.ms": 500})

        def kinds(replica: ReplicaRange) -> set[tuple[int | None, int | None]]:
            rows = pa.Table.from_batches(read_split(logs.source, DecodingSpec(), logs.of(replica.copy).ranges))
            return {(kind.key_version, kind.value_version) for kind in record_classes(rows, logs.names)}

        def leader_is_clean() -> bool:
            plant(servers, CONSUMER_OFFSETS, 0, [BEHIND], "none")
            return (1, 9) not in kinds(leader)

        logs = live_logs(cluster="two", bootstrap_servers=servers, security=None, topics=(CONSUMER_OFFSETS,), known=())
        wait_until(leader_is_clean, 180)
        assert (1, 9) in kinds(follower)

    settings = Settings.from_environment()
    catalogue = load_catalogue(settings.include)
    reader = LiveCoordinatorLogs(cluster=cluster.spec, catalogue=catalogue, settings=settings)
    where = f"{CONSUMER_OFFSETS}-0 (broker {follower.broker})"
    scan = reader.scan_small(planned=None)
    assert set(scan.standing.values()) == {LoadVerdict.FAILS}
    assert {verdict.place for verdict in scan.verdicts if verdict.topic == CONSUMER_OFFSETS} == {where}
    older = Release(3, 9, 1)
    whole = reader.group_records(planned=False)
    plant(servers, CONSUMER_OFFSETS, 0, [BEHIND], "none")
    added = reader.group_records(planned=False, incremental=True)
    assert (whole.is_whole, added.is_whole, added.offsets) == (True, False, whole.offsets + 1)
    for records in (whole, added):
        (gate,) = conversion_conditions((), records, (), catalogue=catalogue, releases=[older])
        assert not gate.is_met
        assert where in gate.evidence
    assert reader.unread_replicas() == ()

    cluster.runtime.stop(cluster.spec.node(follower.broker), deadline_s=0.0, force=True)
    wait_until(lambda: bool(reader.scan_small(planned=None).damage), 60)
    (blocker,) = [
        found for found in path_findings(reader.scan_small(planned=None), older, [older]) if found.severity == "blocker"
    ]
    assert blocker.code == "LOGS-UNREADABLE"
    assert where in blocker.sentence
    assert [place.replica for place in reader.unread_replicas()] == [f"broker {follower.broker}"]
    alone = reader.group_records(planned=False, incremental=True)
    assert (alone.is_whole, [place.place for place in alone.damage]) == (True, [where])
    tail = reader.scan_new_records(scan, planned=None)
    assert not tail.damage, "the leader has each new record"
