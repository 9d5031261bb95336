"""Groups that lose their type: a run waits for them on real brokers, and what it saw of groups is in its report."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient

from kafka_rollout.adapters.jvm import Jvm, run_jvm
from kafka_rollout.adapters.kafka_admin import KafkaAdmin
from kafka_rollout.adapters.local_cluster import LocalCluster
from kafka_rollout.adapters.release_cache import ReleaseCache
from kafka_rollout.adapters.run_store import FileRunStore
from kafka_rollout.adapters.workbench import open_workbench
from kafka_rollout.domain.errors import TransientError
from kafka_rollout.domain.feature_requests import FeatureAction, FeatureOrder, parse_requests
from kafka_rollout.domain.path import CONTROLLERS
from kafka_rollout.domain.plan import Direction, Hop, NodeTurn, Plan
from kafka_rollout.domain.releases import Release
from kafka_rollout.steps.feature_update import plan_features
from kafka_rollout.steps.gate import GateKind, GateRef, look
from tests.integration.airflow_harness import QUICK_SNAPSHOTS, finalized
from tests.integration.conftest import MakeCluster
from tests.integration.dag_in_process import ProcessRuns
from tests.integration.group_harness import DEADLINE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(1800)]

TOPIC, PARTITIONS = "orders", 6
EAGER = {"partition.assignment.strategy": "range"}
CONSUMER = {"group.protocol": "consumer"}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessRuns:
    return ProcessRuns.open(tmp_path, monkeypatch)


class Members(threading.Thread):
    """Members of groups, all polled by one thread; what is done to them is done by that thread."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._members: dict[str, list[Any]] = {}
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self.start()

    def join_group(self, group: str, number: int, **settings: Any) -> None:
        base = {"bootstrap.servers": self._servers, "group.id": group, "auto.offset.reset": "earliest"}
        made = [Consumer({**base, **settings}) for _ in range(number)]
        self._add(group, made)

    def _add(self, group: str, made: list[Any]) -> None:
        for member in made:
            member.subscribe([TOPIC])
        with self._lock:
            self._members.setdefault(group, []).extend(made)

    def leave_group(self, group: str) -> None:
        with self._lock:
            for member in self._members.pop(group):
                member.close()

    def run(self) -> None:
        while not self._ending.is_set():
            with self._lock:
                for member in [one for members in self._members.values() for one in members]:
                    member.poll(0.01)
            time.sleep(0.01)

    def end(self) -> None:
        self._ending.set()
        self.join(DEADLINE_S)
        for group in list(self._members):
            self.leave_group(group)


@contextmanager
def members_of(cluster: LocalCluster) -> Iterator[Members]:
    """A topic with records, and members to come."""
    servers = cluster.spec.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(60):
        producer.produce(TOPIC, str(number))
    assert producer.flush(DEADLINE_S) == 0
    members = Members(servers)
    try:
        yield members
    finally:
        members.end()


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """What people do while the run waits; raises afterwards what went wrong there."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(DEADLINE_S)
    assert not failed, failed


def wait_for_gate(home: Path) -> None:
    """Until a run says that it waits for groups."""

    def waits() -> bool:
        events = (json.loads(line) for file in home.glob("runs/*/*/events.jsonl") for line in _lines(file))
        looks = (event for event in events if event.get("kind") == "gate" and event["gate"] == GateKind.GROUPS)
        return any(not condition["holds"] for event in looks for condition in event["conditions"])

    wait_until(waits, "the gate of the groups waits", within_s=5 * DEADLINE_S)


def _lines(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line.endswith("}")]


def stable(cluster: LocalCluster, **members: int) -> bool:
    with KafkaAdmin(cluster.spec) as admin:
        try:
            found = {group.group_id: group for group in admin.groups()}
        except TransientError:  # a coordinator still loads
            return False
    return all(
        name in found and found[name].members == number and found[name].state.lower() == "stable"
        for name, number in members.items()
    )


def looks_at_groups(record: FileRunStore) -> list[dict[str, str]]:
    """What each recorded look at the gate said, by condition."""
    (gate,) = [gate for gate in record.attachment("report.json")["gates"] if gate["kind"] == GateKind.GROUPS]
    assert gate["state"] == "held"
    return [{each["name"]: each["evidence"] for each in look["conditions"]} for look in gate["looks"]]


def test_a_consumer_group_holds_a_lower_group_version_up_until_it_is_converted_and_its_tombstones_are_written(
    runs: ProcessRuns, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(
        "4.3.1",
        name="waits",
        layout="combined",
        size=1,
        extra_config={"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"},
    )
    with members_of(cluster) as members:
        members.join_group("billing", 2, **CONSUMER)
        wait_until(lambda: stable(cluster, billing=2), "the group is there")

        def convert() -> None:
            wait_for_gate(runs.home)
            assert finalized(cluster, cluster.spec.nodes[0])["group.version"] == 1, "nothing fell yet"
            members.leave_group("billing")
            members.join_group("billing", 2, **EAGER)

        with meanwhile(convert):
            state, states, record = runs.run(
                cluster, "kafka_features", action="update", delete=["group.version"], downgrade_type="SAFE"
            )
        assert state == "success", states
        assert "billing (2 members)" in runs.bodies["approve"]
        assert finalized(cluster, cluster.spec.nodes[0]).get("group.version", 0) == 0
        first, *_, last = looks_at_groups(record)
        assert "billing" in first["no consumer group has members"]
        assert "no record of a converted group is alive" in last["the tombstones of their records are written"]
        wait_until(lambda: stable(cluster, billing=2), "its members go on in the classic protocol")


class TestThreeNodes:
    """A cluster of 4.3.1 with a node to spare."""

    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, make_shared_cluster: MakeCluster) -> LocalCluster:
        return make_shared_cluster(
            "4.3.1",
            name="several",
            layout="combined",
            metadata_version="4.2-IV1",
            extra_config={
                **QUICK_SNAPSHOTS,
                "group.initial.rebalance.delay.ms": "0",
                "offsets.topic.num.partitions": "6",
            },
        )

    @pytest.mark.full
    def test_partitions_that_remember_eligible_leaders_are_named_before_their_feature_falls(
        self, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
        monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(cluster.inventory_path.parent))
        admin = KafkaAdminClient(bootstrap_servers=cluster.spec.bootstrap_servers)
        try:
            assert admin.describe_features()["eligible.leader.replicas.version"]["finalized"][1] == 1
        finally:
            admin.close()
        clients = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
        narrow = NewTopic("narrow", 1, 3, config={"min.insync.replicas": "3"})
        clients.create_topics([narrow])["narrow"].result(DEADLINE_S)
        stopped = cluster.spec.nodes[-1]
        cluster.runtime.stop(stopped, deadline_s=60, force=True)
        deletion = parse_requests((), (), ["eligible.leader.replicas.version"])
        order = FeatureOrder(action=FeatureAction.UPDATE, named=deletion)

        def named() -> bool:
            with open_workbench(cluster.spec.name, "elr") as bench:
                found = {finding.code: finding for finding in plan_features(bench, order, unsafe=False).blockers}
            return "narrow-0" in getattr(found.get("ELIGIBLE-LEADERS-LOST"), "sentence", "")

        try:
            wait_until(named, "the partition is named")
        finally:
            cluster.runtime.start(stopped)
            cluster.wait_until_ready()
        clients.delete_topics(["narrow"])["narrow"].result(DEADLINE_S)


@pytest.mark.full
def test_groups_of_a_preview_hold_an_upgrade_up_until_they_are_gone(
    make_cluster: MakeCluster, release_cache: ReleaseCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.9.1 serves consumer groups by configuration; 4.x does so only from group.version 1 on, after the roll."""
    cluster = make_cluster(
        "3.9.1",
        name="preview",
        layout="combined",
        size=1,
        extra_config={
            "group.coordinator.rebalance.protocols": "classic,consumer",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
        },
    )
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(cluster.inventory_path.parent))
    old, new = Release(3, 9, 1), Release(4, 3, 1)
    with (
        members_of(cluster) as members,
        open_workbench(cluster.spec.name, "preview") as bench,
        run_jvm(release_cache.libs(old)) as jvm,
    ):
        early = consumer_of_preview(jvm, cluster.spec.bootstrap_servers, "early")
        wait_until(lambda: early() or stable(cluster, early=1), "the group is there")
        (node,) = cluster.spec.nodes
        turn = NodeTurn(node_id=node.node_id, name=node.name, section=CONTROLLERS)
        plan = Plan(
            cluster=cluster.spec.name,
            cluster_id=bench.admin.cluster_id(),
            direction=Direction.UPGRADE,
            origin=old,
            target=new,
            hops=(Hop(from_release=old, to_release=new, reason="a test", order=(turn,)),),
            feature_changes=(),
            config_changes=(),
            findings=(),
        )
        gate = GateRef(kind=GateKind.GROUPS)
        assert "early" in look(bench, plan, gate).waits_for
        early(leave=True)
        members.join_group("early", 1, **EAGER)
        wait_until(lambda: look(bench, plan, gate).holds, "the gate holds")


def consumer_of_preview(jvm: Jvm, servers: str, group: str) -> Callable[..., bool]:
    """A consumer of the release's own: librdkafka speaks no protocol of a preview. Called, it polls, or leaves."""
    text = "org.apache.kafka.common.serialization.StringDeserializer"
    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.protocol": "consumer",
        "key.deserializer": text,
        "value.deserializer": text,
    }
    properties = jvm.packages.java.util.Properties()
    for key, value in settings.items():
        properties.put(key, value)
    consumer = jvm.packages.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
    topics = jvm.packages.java.util.ArrayList()
    topics.add(TOPIC)
    consumer.subscribe(topics)

    def poll(*, leave: bool = False) -> bool:
        if leave:
            consumer.close()
        else:
            consumer.poll(jvm.packages.java.time.Duration.ofMillis(200))
        return False

    return poll
