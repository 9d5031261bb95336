"""Real brokers whose tiered storage fails: they are in sync, and the gate notices it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.gates.counters import REMOTE_REQUESTS
from kafka_rollout.gates.gate import GateCondition
from kafka_rollout.gates.node import check_after_start
from kafka_rollout.gates.remote_storage import CONDITION
from kafka_rollout.model.counters import REMOTE_ERROR_RATES
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.metrics import NodeMetricsReader
from kafka_rollout.observation.cluster_ports import ClusterPorts, observe_some
from kafka_rollout.observation.node_logs import read_log
from kafka_rollout.observation.node_steps import check_coordinators, check_remote_storage
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.integration.conftest import MakeCluster
from tests.integration.harness.feature_harness import codes, opened
from tests.integration.harness.tiered.storage import METADATA_PARTITIONS, tiered_config
from tests.plans import plan_upgrade
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.full]

RECORDS, SIZE = 300, 10_000  # three segments of the smallest size that 4.x accepts


@pytest.mark.parametrize("name", ["3.9.1", "4.1.1"])
def test_a_broker_that_cannot_read_its_remote_metadata_passes_every_other_condition(
    name: str, make_cluster: MakeCluster, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    """4.2 and later exit, so the condition of the process fails there."""
    release = Release.parse(name)
    config = tiered_config(release_cache, tmp_path / "remote")
    cluster = make_cluster(name, layout="combined", size=1, extra_config=config)
    (node,) = cluster.spec.nodes
    with opened(cluster, tmp_path / "home") as ports:
        wait_until(lambda: remote(ports, release).is_met, 120)
        assert remote(ports, release).evidence == "node 1 has initialised TopicBasedRemoteLogMetadataManager"
        assert serves_remote_records(cluster.spec.bootstrap_servers, Path(str(node.directory))), (
            "the storage of the test itself works"
        )
        plan = plan_upgrade(ports, Release(4, 3, 1), finalize=False)
        assert "REMOTE-LOG-NOT-CHECKED" in codes(plan)
        assert plan.unchecked == {}, "both agents export the rates of remote errors"

        cluster.stop()
        path = Path(str(node.directory)) / "server.properties"
        path.write_text(f"{path.read_text()}\n{METADATA_PARTITIONS}=3\n")
        cluster.start()

        wait_until(lambda: "partition count" in remote(ports, release).evidence, 120)
        assert not remote(ports, release).is_met
        state = observe_some(ports, [node], metrics=True)
        others = check_after_start(cluster.spec, state, node, before=None, expected=release)
        assert others.passes, others.waits_for
        assert check_coordinators(ports, state, node, None, log=read_log(ports, node)).is_met


@pytest.mark.parametrize("name", ["3.9.1", "4.3.1"])
def test_a_broker_that_cannot_reach_its_remote_storage_passes_every_other_condition(
    name: str, make_cluster: MakeCluster, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    release, folder = Release.parse(name), tmp_path / "remote"
    cluster = make_cluster(name, layout="combined", size=1, extra_config=tiered_config(release_cache, folder))
    (node,) = cluster.spec.nodes
    servers = cluster.spec.bootstrap_servers
    with opened(cluster, tmp_path / "home") as ports:
        wait_until(lambda: remote(ports, release).is_met, 120)
        assert serves_remote_records(servers, Path(str(node.directory)))
        assert remote(ports, release, REMOTE_REQUESTS).is_met

        folder.rename(tmp_path / "away")
        folder.write_text("no directory")
        write(servers)
        consumer = from_the_start(servers)

        def both_fail() -> bool:
            consumer.poll(1)
            return min(rates(node).values()) > 0.1

        try:
            wait_until(both_fail, 120)
        finally:
            consumer.close()
        for agent in ("prometheus", "jolokia"):
            alone = rates(replace(node, **{f"{agent}_url": None}))
            assert alone.keys() == set(REMOTE_ERROR_RATES)
            assert min(alone.values()) > 0.1, f"without {agent}: {alone}"
        failing = remote(ports, release, REMOTE_REQUESTS)
        assert not failing.is_met
        assert "RemoteCopyErrorsPerSec" in failing.evidence
        assert "RemoteFetchErrorsPerSec" in failing.evidence
        assert remote(ports, release).is_met
        state = observe_some(ports, [node], metrics=True)
        others = check_after_start(cluster.spec, state, node, before=None, expected=release)
        assert others.passes, others.waits_for
        assert check_coordinators(ports, state, node, None, log=read_log(ports, node)).is_met


def rates(node: NodeSpec) -> dict[str, float]:
    counters = NodeMetricsReader(timeout_s=60).read(node).counters
    return {name: value for name, value in counters.items() if name in REMOTE_ERROR_RATES}


def remote(ports: ClusterPorts, release: Release, name: str = CONDITION) -> GateCondition:
    (node,) = ports.cluster.nodes
    state = observe_some(ports, [node], metrics=True)
    checked = check_remote_storage(
        ports, state, node, release, config=ports.runtime.config(node), unchecked={}, log=read_log(ports, node)
    )
    (found,) = [one for one in checked if one.name == name]
    return found


def serves_remote_records(servers: str, folder: Path) -> bool:
    """Write more than a segment, wait until the oldest segment is only in the remote storage, and read it."""
    settings = {
        "remote.storage.enable": "true",
        "segment.bytes": "1048576",
        "local.retention.bytes": "1",
        "min.insync.replicas": "1",
    }
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("tiered", 1, 1, config=settings)])["tiered"].result(60)
    write(servers)
    (first,) = folder.rglob("tiered-0/00000000000000000000.log")
    wait_until(lambda: not first.exists(), 120)
    consumer = from_the_start(servers)
    try:
        message = consumer.poll(60)
        return message is not None and message.error() is None and message.offset() == 0
    finally:
        consumer.close()


def write(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.type": "none"})
    for number in range(RECORDS):
        producer.produce("tiered", value=bytes([number % 256]) * SIZE, partition=0)
    assert producer.flush(60) == 0


def from_the_start(servers: str) -> Consumer:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition("tiered", 0, 0)])
    return consumer
