"""A real broker of 3.x and a real client whose group id writes whole lines into the broker's log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.internal_topics import GROUPS_TOPIC, coordinator_partition
from kafka_rollout.gates.coordinators import coordinators_condition
from kafka_rollout.gates.gate import BeforeStop
from kafka_rollout.model.node_log import SeenLog, read_part
from kafka_rollout.model.state import PartitionState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.node_logs import read_log
from tests.integration.conftest import MakeCluster
from tests.integration.harness.feature_harness import opened
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

LOST = "orders"
AT = "[2026-11-28 08:00:00,000]"
MANAGER = "kafka.coordinator.group.GroupMetadataManager"


def crafted(*lines: str) -> str:
    """A group id that ends the line of the log in which it begins, and begins the line in which it ends."""
    return "\n".join(("x (kafka.a.B)", *lines, f"{AT} INFO y"))


def log_of(ports: ClusterPorts, node: NodeSpec) -> SeenLog:
    seen = read_log(ports, node)
    assert seen is not None
    return seen


def join(servers: str, group: str, until: Callable[[], bool]) -> None:
    """Let a consumer join until the broker's log shows it."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})

    def is_seen() -> bool:
        consumer.poll(0.5)
        return until()

    try:
        consumer.subscribe(["any"])
        wait_until(is_seen, 90)
    finally:
        consumer.close()


def test_no_group_id_of_a_client_hides_a_failed_load(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster("3.9.1", layout="combined", size=1, extra_config={"offsets.topic.num.partitions": "2"})
    (node,) = cluster.spec.nodes
    file = Path(str(node.directory)) / "logs" / "server.log"
    servers = cluster.spec.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("any", 1, 1)])["any"].result(60)
    with opened(cluster, tmp_path / "home") as ports:
        both = {f"{GROUPS_TOPIC}-0", f"{GROUPS_TOPIC}-1"}
        join(servers, "first", lambda: {*log_of(ports, node).loaded} >= both)
        partitions = ports.admin.partitions()
        own = f"{GROUPS_TOPIC}-{coordinator_partition(LOST, 2)}"
        before = BeforeStop(
            node_id=1,
            release="3.9.1",
            at=0.0,
            in_isr=frozenset(),
            leads=frozenset(p.name for p in partitions),
            was_active_controller=True,
            groups=frozenset({LOST}),
        )

        def gate(seen: SeenLog, found: tuple[PartitionState, ...] = partitions) -> tuple[bool, str]:
            condition = coordinators_condition(found, 1, ports.admin.coordinators(node, found), before, seen)
            return condition.is_met, condition.evidence

        assert gate(log_of(ports, node))[0], "the broker has loaded the partition, so the group was deleted"
        with file.open("a") as log:
            log.write(f"{AT} ERROR [GroupMetadataManager brokerId=1] Error loading offsets from {own} ({MANAGER})\n")
        assert not gate(log_of(ports, node))[0]

        finished = f"{AT} INFO [GroupMetadataManager brokerId=1] Finished loading offsets and group metadata from {own}"
        started = f"{AT} INFO Registered signal handlers for TERM, INT, HUP"
        texts = (
            f"{finished} in 3 milliseconds for epoch 9, of which 0 milliseconds was spent in it. ({MANAGER})",
            f"{started} (org.apache.kafka.common.utils.LoggingSignalHandler)",
        )
        forged = f"\n{texts[0]}\n{texts[1]}\n"
        join(servers, crafted(*texts), lambda: forged in file.read_text())
        is_met, evidence = gate(log_of(ports, node))
        assert not is_met
        assert f"Error loading offsets from {own}" in evidence

        # The file is rotated: what the history has seen stays, and the forged load after it proves nothing.
        again = read_part(None, ports.runtime.process_log(node))  # type: ignore[arg-type]
        assert again.failed.keys() == {own}
        file.rename(file.with_suffix(".log.1"))
        file.write_text("\n".join(texts) + "\n")
        rotated = log_of(ports, node)
        assert rotated.problem == "was rotated before it was read"
        assert not gate(rotated)[0]

        cluster.stop()
        cluster.start()
        wait_until(lambda: own in log_of(ports, node).loaded, 60)
        assert log_of(ports, node).failed == {}, "a new process"
        assert gate(log_of(ports, node))[0]
