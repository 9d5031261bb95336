"""Live downgrades of real clusters across a level that Kafka refuses to lower: 4.3.1 at 30 to 4.2.1 at 29. Only the
controllers are stopped; the brokers serve."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kafka.protocol.admin import AlterPartitionReassignmentsRequest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import Gate, GateKind, GatePolicy
from kafka_rollout.lowering import live
from kafka_rollout.lowering.lowered_snapshot import install_on
from kafka_rollout.metadata_log import log_choice
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.state import Movements
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.roll.gate_checks import check_gate, wait_for_gate
from kafka_rollout.run.events import ApprovalOf, Decision, newest
from kafka_rollout.run.step_events import LiveLowered, OfflineSnapshotWritten, OfflineUndone
from kafka_rollout.traffic.processes.traffic import read_lines
from tests.integration.conftest import MakeCluster
from tests.integration.groups.test_traffic import start, stop
from tests.integration.harness.cluster_contents import WITH_ACLS, assert_clients_data_is_kept, contents, fill
from tests.integration.harness.feature_harness import opened
from tests.plans import plan_downgrade
from tests.waiting import wait_until
from tools.any_requests import AnyRequests
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

NEW, OLD = Release(4, 3, 1), Release(4, 2, 1)
GATE = GatePolicy(checks=1, interval_s=0.5, timeout_s=120, soak_s=0)


@contextmanager
def traffic(cluster: LocalCluster, folder: Path) -> Iterator[Path]:
    """The project's own traffic; in the end nothing is lost and nothing is double."""
    start(cluster.spec, folder)
    try:
        wait_until(lambda: acknowledged(folder) > 500, 120)
        yield folder
    finally:
        verdict = stop(cluster.spec, folder)
    print(verdict)
    assert verdict.is_clean, verdict


def acknowledged(folder: Path) -> int:
    return sum(1 for path in folder.glob("*/acknowledged-plain-*.tsv") for _ in read_lines(path, 5))


def approved_plan(ports: ClusterPorts) -> Plan:
    plan = plan_downgrade(ports, OLD, lowering=Lowering.OFFLINE)
    assert (plan.lowering is Lowering.LIVE, plan.lowering is Lowering.OFFLINE, plan.levels) == (
        True,
        False,
        {METADATA_VERSION: 29},
    )
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test")
    wait_for_gate(Run(ports, plan), Gate(kind=GateKind.CONTROLLERS_STOP), GATE)
    return plan


def levels(ports: ClusterPorts) -> dict[int, int | None]:
    found: dict[int, int | None] = {}
    for node in ports.cluster.nodes:
        try:
            found[node.node_id] = ports.admin.features(node).finalized.get(METADATA_VERSION)
        except TransientError:
            found[node.node_id] = None
    return found


def led(ports: ClusterPorts) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Leader and ISR of every partition."""
    return {partition.name: (partition.leader, partition.isr) for partition in ports.admin.partitions()}


def create_topic(ports: ClusterPorts, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": ports.cluster.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 6, 3)]).values():
        future.result(60)


@pytest.mark.full
@pytest.mark.parametrize("quorum", ["static", "dynamic"])
def test_running_brokers_take_over_the_lower_level_and_every_node_can_restart(
    make_cluster: MakeCluster, tmp_path: Path, quorum: str
) -> None:
    cluster = make_cluster(str(NEW), layout="separate", quorum=quorum, extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)
    with opened(cluster, tmp_path / "home") as ports, traffic(cluster, tmp_path / "live"):
        plan = approved_plan(ports)
        broker_pids = {node.node_id: ports.runtime.process(node).pid for node in ports.cluster.brokers}
        leaders = led(ports)
        sentence = live.lower_live(Run(ports, plan))
        print(sentence)
        wait_for_gate(Run(ports, plan), Gate(kind=GateKind.METADATA_VERSION), GATE)
        assert set(levels(ports).values()) == {29}
        registered = ports.admin.registered()
        assert (registered.brokers, registered.fenced) == ({1, 2, 3}, frozenset())
        assert led(ports) == leaders, "no leader and no ISR has changed"
        assert {node.node_id: ports.runtime.process(node).pid for node in ports.cluster.brokers} == broker_pids
        create_topic(ports, "after")
        assert live.lower_live(Run(ports, plan)) == sentence, "a repeated step changes nothing"
        for node in (cluster.spec.controllers[0], cluster.spec.brokers[0]):
            cluster.runtime.stop(node, deadline_s=60)
            cluster.runtime.start(node)
            wait_until(lambda node=node: levels(ports)[node.node_id] == 29, 120)  # type: ignore[misc]
        wait_until(lambda: all(len(one.isr) == len(one.replicas) for one in ports.admin.partitions()), 120)
        assert_clients_data_is_kept(cluster.spec, before)


@pytest.mark.full
def test_a_snapshot_that_ends_with_the_log_is_not_taken_over_by_running_brokers(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why the snapshot ends beyond every log: a broker keeps a log that the snapshot only continues."""
    monkeypatch.setattr(log_choice, "OFFSETS_BEYOND", 0)
    cluster = make_cluster(str(NEW), layout="separate")
    with opened(cluster, tmp_path / "home") as ports:
        plan = approved_plan(ports)
        live.lower_live(Run(ports, plan))
        with pytest.raises(RefusedError):
            wait_for_gate(
                Run(ports, plan),
                Gate(kind=GateKind.METADATA_VERSION),
                GatePolicy(checks=1, interval_s=0.5, timeout_s=20, soak_s=0),
            )
        found = levels(ports)
        assert {found[node.node_id] for node in ports.cluster.controllers} == {29}
        assert {found[node.node_id] for node in ports.cluster.brokers} == {30}


@pytest.mark.full
def test_after_a_failure_with_the_controllers_stopped_they_serve_again_on_their_old_logs(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three installations fail, so no majority has the snapshot. The next try gets through."""
    cluster = make_cluster(str(NEW), layout="separate")
    with opened(cluster, tmp_path / "home") as ports, traffic(cluster, tmp_path / "undone"):
        plan = approved_plan(ports)
        done: list[object] = []

        def fails_after_the_first(*given: object) -> object:
            done.append(given)
            if len(done) > 1:
                raise TransientError("The disk does not respond.")
            return install_on(*given)  # type: ignore[arg-type]

        with monkeypatch.context() as patched:
            patched.setattr(live, "install_on", fails_after_the_first)
            with pytest.raises(
                RefusedError, match=r"(?s)The disk does not respond\..*The controllers run on their old logs"
            ):
                live.lower_live(Run(ports, plan))
        assert newest(ports.run.events(), OfflineUndone) is not None
        assert newest(ports.run.events(), LiveLowered) is None
        wait_until(lambda: set(levels(ports).values()) == {30}, 60)
        create_topic(ports, "between")
        wait_for_gate(Run(ports, plan), Gate(kind=GateKind.CONTROLLERS_STOP), GATE)
        live.lower_live(Run(ports, plan))
        wait_for_gate(Run(ports, plan), Gate(kind=GateKind.METADATA_VERSION), GATE)
        written = newest(ports.run.events(), OfflineSnapshotWritten)
        assert written is not None
        assert (written.from_level, written.to_level) == (30, 29)
        create_topic(ports, "after")


@pytest.mark.full
def test_a_reassignment_in_progress_holds_the_controllers_back(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """The copy is throttled to one byte a second on the broker that gets it, from the second fetch (1 MiB) on."""
    cluster = make_cluster(str(NEW), layout="separate")
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    moved = NewTopic("moved", 1, replica_assignment=[[1]], config={"follower.replication.throttled.replicas": "*"})
    admin.create_topics([moved])["moved"].result(60)
    producer = Producer({"bootstrap.servers": cluster.spec.bootstrap_servers})
    for _ in range(300):
        producer.produce("moved", os.urandom(100_000))
        producer.poll(0)
    assert producer.flush(60) == 0
    throttle(admin, AlterConfigOpType.SET)
    with opened(cluster, tmp_path / "home") as ports:
        plan = plan_downgrade(ports, OLD, lowering=Lowering.LIVE)
        reassign(cluster, "moved", [3])
        wait_until(lambda: ports.admin.movements().reassigned == ("moved-0",), 60)
        seen = check_gate(Run(ports, plan), Gate(kind=GateKind.CONTROLLERS_STOP))
        assert "no reassignment: moved-0" in seen.waits_for
        throttle(admin, AlterConfigOpType.DELETE)
        wait_until(lambda: ports.admin.movements() == Movements(), 120)


def throttle(admin: AdminClient, how: AlterConfigOpType) -> None:
    rate = ConfigEntry("follower.replication.throttled.rate", "1", incremental_operation=how)
    for future in admin.incremental_alter_configs([ConfigResource("broker", "3", incremental_configs=[rate])]).values():
        future.result(60)


def reassign(cluster: LocalCluster, topic: str, replicas: list[int]) -> None:
    of = AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = of.ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(timeout_ms=60_000, topics=[of(name=topic, partitions=[partition])])
    connections = AnyRequests(cluster.spec, ClientSecurity(), timeout_s=60)
    try:
        connections.first_answer(connections.brokers, request, lambda response, _: response)
    finally:
        connections.close()
