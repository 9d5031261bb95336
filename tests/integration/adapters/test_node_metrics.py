"""What the agents of real nodes tell, by release."""

from __future__ import annotations

import json
import socket
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC, SHARE_TOPIC
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.gates.counters import expected_counters
from kafka_rollout.model.counters import ACTIVE_BROKERS, COORDINATOR_COUNTERS
from kafka_rollout.model.state import NodeMetrics
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.metrics import NodeMetricsReader
from kafka_rollout.releases.facts import Release
from tests.integration.conftest import MakeCluster
from tests.integration.harness.feature_harness import Command
from tests.integration.harness.shell import DRY_RUN
from tests.releases import NEWEST
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

GROUPS, SHARES = (set(COORDINATOR_COUNTERS[topic]) for topic in (GROUPS_TOPIC, SHARE_TOPIC))
READER = NodeMetricsReader(timeout_s=60)  # the first answer of a cold agent on a busy machine


@pytest.fixture(scope="module")
def newest(make_shared_cluster: MakeCluster) -> LocalCluster:
    """One broker and one separate controller on 4.3.1."""
    return make_shared_cluster("4.3.1", size=1)


@pytest.fixture(scope="module")
def older(make_shared_cluster: MakeCluster) -> LocalCluster:
    """One combined node on 3.9.1 that writes snapshots each second."""
    quick_snapshots = {"metadata.log.max.snapshot.interval.ms": "1000"}
    return make_shared_cluster("3.9.1", name="older", layout="combined", size=1, extra_config=quick_snapshots)


def test_both_agents_report_the_metadata_version_of_broker_and_controller(newest: LocalCluster) -> None:
    for node in newest.spec.nodes:
        metrics = READER.read(node)
        assert metrics.release == Release(4, 3, 1), node.name
        assert metrics.current_metadata_version_prometheus == 30, node.name
        assert metrics.current_metadata_version_jolokia == 30, node.name
        assert metrics.finalized_levels["metadata.version"] == 30, node.name
        assert metrics.finalized_levels["group.version"] == 1, node.name
        assert metrics.snapshot_age_ms is not None, node.name
        assert metrics.snapshot_bytes is not None, node.name
        assert metrics.java_version is not None, node.name
        assert metrics.java_version >= 17, node.name
        assert metrics.unanswered == {}


@pytest.mark.parametrize("agent", ["prometheus", "jolokia"])
def test_each_agent_reports_every_counter_that_the_gates_check(
    newest: LocalCluster, older: LocalCluster, agent: str
) -> None:
    for cluster in (newest, older):
        assert_counters(cluster, agent)


@pytest.mark.full
@pytest.mark.parametrize("release", ["3.3.0", NEWEST])
def test_the_oldest_and_the_newest_release_have_these_counters_too(make_cluster: MakeCluster, release: str) -> None:
    cluster = make_cluster(release, size=1)
    for agent in ("prometheus", "jolokia"):
        assert_counters(cluster, agent)


def assert_counters(cluster: LocalCluster, agent: str) -> None:
    for node in cluster.spec.nodes:
        alone = replace(node, **{f"{agent}_url": None})
        counters = READER.read(alone).counters.keys()
        assert counters - {*GROUPS, *SHARES} == set(expected_counters(node)), node.name
        # The coordinators of 3.x count no partitions.
        counts = node.is_broker and READER.read(alone).release >= Release(4, 0, 0)  # type: ignore[operator]
        assert counters & GROUPS == (GROUPS if counts else set()), node.name
        above_zero = {ACTIVE_BROKERS: 1} if node.is_controller else {}
        # The controller counts a broker a moment after the broker serves.
        wait_until(lambda alone=alone, expected=above_zero: _above_zero(alone) == expected, 120)  # type: ignore[misc]


def _above_zero(node: NodeSpec) -> dict[str, int]:
    counters = READER.read(node).counters
    return {name: value for name, value in counters.items() if value and name not in {*GROUPS, *SHARES}}


@pytest.mark.full
@pytest.mark.parametrize("agent", ["prometheus", "jolokia"])
def test_one_agent_replaces_the_other_but_not_its_metadata_version(
    newest: LocalCluster, agent: str, closed_port: int
) -> None:
    node = newest.spec.node(1)
    whole = READER.read(node)
    half = READER.read(replace(node, **{f"{agent}_url": f"http://127.0.0.1:{closed_port}/"}))
    assert half.unanswered.keys() == {agent}
    assert getattr(half, f"current_metadata_version_{agent}") is None
    assert half.release == whole.release
    assert half.java_version == whole.java_version
    assert half.finalized_levels == whole.finalized_levels
    assert half.snapshot_age_ms is not None


def test_clients_are_listed_by_library_and_version(newest: LocalCluster) -> None:
    consumer = Consumer({"bootstrap.servers": newest.spec.bootstrap_servers, "group.id": "seen"})
    consumer.list_topics(timeout=60)
    try:
        for url in ("prometheus_url", "jolokia_url"):  # read through each agent alone
            node = replace(newest.spec.node(1), **{url: None})
            deadline = time.monotonic() + 120  # the broker counts a connection a moment after it served it
            while "confluent-kafka-python" not in {c.name for c in READER.read(node).clients}:
                assert time.monotonic() < deadline
                time.sleep(0.2)
    finally:
        consumer.close()


def test_without_an_answer_the_error_names_both_reasons_soon(newest: LocalCluster, closed_port: int) -> None:
    url = f"http://127.0.0.1:{closed_port}/"
    began = time.monotonic()
    with pytest.raises(TransientError, match=r"No metrics agent of node broker-1 responds \(jolokia: .*prometheus: "):
        NodeMetricsReader().read(replace(newest.spec.node(1), prometheus_url=url, jolokia_url=url))
    assert time.monotonic() - began < 60


def test_the_agents_answer_queries_and_change_nothing(newest: LocalCluster) -> None:
    import httpx

    answer = httpx.post(
        str(newest.spec.node(1).jolokia_url) + "/",
        json={"type": "exec", "mbean": "java.lang:type=Memory", "operation": "gc"},
    )
    assert answer.json()["status"] == 403


def test_an_old_release_reports_release_and_old_requests_but_no_metadata_version(
    make_cluster: MakeCluster, command: Command
) -> None:
    cluster = make_cluster("3.4.0", layout="combined", size=1)
    metrics = READER.read(cluster.spec.node(1))
    assert metrics.release == Release(3, 4, 0)
    assert metrics.current_metadata_version_prometheus is None
    assert metrics.current_metadata_version_jolokia is None
    assert metrics.partition_count == 0
    assert metrics.unanswered == {}
    assert_counters(cluster, "jolokia")
    assert old_clients(cluster, command) == []
    send_fetch_0(cluster.spec.node(1))
    for url in ("prometheus_url", "jolokia_url"):
        alone = replace(cluster.spec.node(1), **{url: None})
        wait_until(lambda alone=alone: ("Fetch", 0) in versions(READER.read(alone)), 180)  # type: ignore[misc]
    (sentence,) = old_clients(cluster, command)
    assert "Kafka 4.3.1 rejects: Fetch v0 (1 times)." in sentence


def versions(metrics: NodeMetrics) -> set[tuple[str, int]]:
    return {(one.api, one.version) for one in metrics.requests}


def test_a_controller_counts_the_partitions_that_a_superuser_can_list(newest: LocalCluster) -> None:
    broker, controller = newest.spec.brokers[0], newest.spec.controllers[0]
    client = AdminClient({"bootstrap.servers": newest.spec.bootstrap_servers})
    client.create_topics([NewTopic("counted", 3, 1)])["counted"].result(60)
    with KafkaAdmin(newest.spec) as admin:
        # The cluster is shared: other topics are there already.
        wait_until(lambda: len([each for each in admin.partitions() if each.topic == "counted"]) == 3, 180)
        for agent in ("prometheus", "jolokia"):
            alone = replace(controller, **{f"{agent}_url": None})
            # The broker and the controller learn of a topic one after the other.
            wait_until(lambda alone=alone: READER.read(alone).partition_count == len(admin.partitions()), 180)  # type: ignore[misc]
    assert READER.read(broker).partition_count is None


def test_snapshots_written_by_the_running_process_show_their_size(older: LocalCluster) -> None:
    node = older.spec.node(1)
    deadline = time.monotonic() + 180
    while not READER.read(node).snapshot_bytes:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert list(Path(str(node.directory)).rglob("__cluster_metadata-0/*.checkpoint"))


def test_old_requests_are_counted_and_the_plan_names_client_and_address(older: LocalCluster, command: Command) -> None:
    """3.9.1 counts requests that 4.x no longer serves (KIP-896), and logs them with the address."""
    node = older.spec.node(1)
    send_fetch_0(node)
    for url in ("prometheus_url", "jolokia_url"):
        alone = replace(node, **{url: None})
        # The broker counts a request a moment after it answered it.
        wait_until(lambda alone=alone: bool(READER.read(alone).deprecated_requests), 180)  # type: ignore[misc]
        seen = READER.read(alone).deprecated_requests
        assert [(one.api, one.version, one.count) for one in seen] == [("Fetch", 0, 1)]
    (sentence,) = old_clients(older, command)
    assert "Kafka 4.3.1 rejects: Fetch v0 (1 times)." in sentence
    # The address is from the log, and a client can write a part of such a line itself.
    assert "It connects from 127.0.0.1 (client id old-client), as lines of the brokers' logs say;" in sentence


def send_fetch_0(node: NodeSpec) -> None:
    """Send Fetch v0: header, then an empty body."""
    host, port = str(node.broker_address).rsplit(":", 1)
    client = b"old-client"
    request = struct.pack(">hhih", 1, 0, 7, len(client)) + client
    request += struct.pack(">iiii", -1, 0, 0, 0)
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        assert connection.recv(4)


def old_clients(cluster: LocalCluster, command: Command) -> list[str]:
    _, out, err = command(cluster, f"{' '.join(DRY_RUN)} --to 4.3.1 --json")
    assert out, err
    return [one["sentence"] for one in json.loads(out)["plan"]["findings"] if one["code"].startswith("OLD-CLIENTS")]
