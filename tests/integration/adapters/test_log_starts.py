"""What a real broker removes by retention is no difference; records that are gone otherwise are."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.model.contents import (
    ClusterInventory,
    Difference,
    comparable_starts,
    compare_inventories,
    unexplained_starts,
)
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.integration.conftest import MakeCluster
from tests.integration.harness.tiered.storage import tiered_config
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.full]

DAY_MS, SEGMENT = 86_400_000, 1_048_576
SETTINGS = {"segment.bytes": str(SEGMENT), "min.insync.replicas": "1"}
TIERED = SETTINGS | {"remote.storage.enable": "true", "local.retention.ms": "1000"}
OLD, DELETED, COMPACTED = "expires", "deleted", "compacted"


def write(servers: str, topic: str, *, age_days: float = 0.0) -> None:
    """Write three segments."""
    producer = Producer({"bootstrap.servers": servers, "compression.type": "none"})
    at = int(time.time() * 1000 - age_days * DAY_MS)
    for number in range(300):
        producer.produce(topic, key=str(number), value=bytes(10_000), partition=0, timestamp=at)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("release", ["3.9.1", "4.3.1"])
def test_a_log_start_that_retention_does_not_explain_is_a_difference(
    release: str, make_cluster: MakeCluster, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    config = tiered_config(release_cache, tmp_path / "remote") | {"log.initial.task.delay.ms": "500"}
    cluster = make_cluster(release, layout="combined", size=1, extra_config=config)
    (node,) = cluster.spec.nodes
    servers = cluster.spec.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    topics = {OLD: SETTINGS, DELETED: SETTINGS, COMPACTED: SETTINGS | {"cleanup.policy": "compact"}, "tiered": TIERED}
    for made in admin.create_topics([NewTopic(topic, 1, 1, config=one) for topic, one in topics.items()]).values():
        made.result(60)
    # Half of the week of retention.ms protects the younger records of this topic.
    write(servers, OLD, age_days=4)
    for topic in (OLD, DELETED, COMPACTED, "tiered"):
        write(servers, topic)
    with KafkaAdmin(cluster.spec) as client:

        def read(*, kept: bool = False) -> ClusterInventory:
            return client.inventory(kept=kept)

        wait_until(lambda: "tiered-0" in read(kept=True).kept, 120)
        before = read(kept=True)
        assert {name: one.from_offset for name, one in before.kept.items() if name[:-2] in topics} == {
            f"{OLD}-0": 300,
            f"{DELETED}-0": 0,
            f"{COMPACTED}-0": 0,
            "tiered-0": before.kept["tiered-0"].from_offset,
        }
        assert before.starts["tiered-0"] == 0 < before.kept["tiered-0"].from_offset
        admin.delete_records([TopicPartition(OLD, 0, 250)])[TopicPartition(OLD, 0)].result(60)
        assert compare_inventories(before, read()) == (), "half a week is what retention can remove in this time"
        admin.delete_records([TopicPartition(DELETED, 0, OFFSET_END)])[TopicPartition(DELETED, 0)].result(60)
        (deleted,) = compare_inventories(before, read())
        above = comparable_starts(before, time.time())

        def at_gate() -> tuple[Difference, ...]:
            return unexplained_starts(before, client.log_starts([node.node_id], above))

        assert at_gate() == (deleted,)
        assert client.log_starts([], above).starts == {}
        assert "deleted-0 began at offset 0 and now begins at 300." in deleted.sentence

        cluster.stop()
        path = Path(str(node.directory)) / "server.properties"
        path.write_text(f"{path.read_text()}\nremote.log.storage.system.enable=false\n")
        cluster.start()
        wait_until(lambda: read().starts["tiered-0"] > 0, 120)
        assert [one.subject for one in compare_inventories(before, read())] == [f"{DELETED}-0", "tiered-0"]
        assert [one.subject for one in at_gate()] == [f"{DELETED}-0", "tiered-0"]
