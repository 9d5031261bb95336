"""Groups that are deleted while a transaction is open, on brokers that complain of them: what they serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.client.fetch import FetchSource
from kafka_rollout.coordinator_logs.remedies import StepKind, find_remedies
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.coordinator_logs.spark.submit import scan_command
from kafka_rollout.groups.reading.live import LiveCoordinatorLogs
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.integration.conftest import MakeCluster
from tests.integration.harness.logs.load_oracle import Outcome, load, watch
from tests.integration.harness.logs.planted_logs import COMMIT, COMMITTED, batch, deleted_while_pending, with_own_groups
from tests.waiting import wait_until
from tools.coordinator_traffic import CONSUMER_OFFSETS, TRANSACTION_STATE
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

ONE_PARTITION = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
TOPIC = "orders"
PATIENCE_S = 180.0
STABLE, EMPTY, DEAD = ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD
NOT_COMMITTED = -1001


@dataclass(frozen=True, slots=True)
class Clients:
    """Of one cluster of one broker of the release."""

    cluster: LocalCluster
    release: Release

    def client(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.cluster.spec.bootstrap_servers, "log_level": 0, **more}

    def admin(self) -> AdminClient:
        """A new one: librdkafka's may wait long for a broker that was restarted."""
        return AdminClient(self.client())

    def consumer(self, group: str) -> Consumer:
        # What the broker's restart takes on a busy machine shall not end a member.
        patient = {"session.timeout.ms": 300_000, "max.poll.interval.ms": 600_000}
        return Consumer(self.client(**{"group.id": group, "enable.auto.commit": False, **patient}))

    @contextmanager
    def joined(self, group: str) -> Iterator[Consumer]:
        consumer = self.consumer(group)
        try:
            consumer.subscribe([TOPIC])
            wait_until(lambda: has_partitions(consumer), PATIENCE_S)
            yield consumer
        finally:
            consumer.close()

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        producer = Producer(self.client(**{"transactional.id": "left-open", "transaction.timeout.ms": 900_000}))
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        yield producer

    def delete(self, group: str) -> None:
        admin = self.admin()

        def is_deleted() -> bool:
            try:
                admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
            except KafkaException:  # its member has not left yet
                return False
            return True

        wait_until(is_deleted, PATIENCE_S)

    def state(self, group: str) -> ConsumerGroupState:
        admin = self.admin()
        state: ConsumerGroupState = admin.describe_consumer_groups([group])[group].result(PATIENCE_S).state
        return state

    def offset(self, group: str, partition: int = 0) -> int:
        admin, asked = self.admin(), [TopicPartition(TOPIC, partition)]
        told = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)], require_stable=False)
        return int(told[group].result(PATIENCE_S).topic_partitions[0].offset)

    def restart(self) -> Outcome:
        """What the broker's log says of its partition of groups."""
        (node,) = self.cluster.spec.nodes
        server_log = Path(str(node.directory)) / "logs" / "server.log"
        self.cluster.runtime.stop(node, deadline_s=PATIENCE_S)
        before = server_log.stat().st_size
        self.cluster.runtime.start(node)
        self.cluster.wait_until_ready()
        places = {(CONSUMER_OFFSETS, 0): None, (TRANSACTION_STATE, 0): None}
        return watch(server_log, before, places)[CONSUMER_OFFSETS, 0]


def started(make_cluster: MakeCluster, release: Release) -> Clients:
    cluster = make_cluster(str(release), layout="combined", size=1, extra_config=ONE_PARTITION)
    clients = Clients(cluster, release)
    admin = clients.admin()
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(PATIENCE_S)
    return clients


def has_partitions(consumer: Consumer) -> bool:
    consumer.poll(0.1)
    return bool(consumer.assignment())


def committed(offset: int, partition: int = 0) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, partition, offset)]


@pytest.mark.parametrize(
    ("release", "end", "left_with"),
    [
        (Release(3, 4, 0), Producer.abort_transaction, NOT_COMMITTED),
        (Release(3, 9, 1), Producer.commit_transaction, 7),
    ],
)
def test_the_partition_is_served_all_the_same_and_loads_again_when_the_transaction_has_ended(
    make_cluster: MakeCluster, release: Release, end: Callable[[Producer, float], None], left_with: int
) -> None:
    """The release itself leaves such a log: the deletion ends no offset of a transaction that is open."""
    clients = started(make_cluster, release)
    for group in ("left", "rejoined"):
        with clients.joined(group):
            pass
    with clients.joined("other") as member, clients.transaction() as producer:
        member.commit(offsets=committed(5), asynchronous=False)
        for group in ("left", "rejoined"):
            metadata = clients.consumer(group).consumer_group_metadata()
            producer.send_offsets_to_transaction(committed(7), metadata, PATIENCE_S)
        for group in ("left", "rejoined"):
            clients.delete(group)
        assert (clients.state("left"), refused(clients)) == (DEAD, {"left", "rejoined"})

        for _ in range(2):  # it says so every time it loads the partition
            assert "Unexpected unload of active group" in clients.restart().words
            assert (clients.state("other"), clients.offset("other")) == (STABLE, 5)
            assert (clients.state("left"), clients.offset("left")) == (EMPTY, NOT_COMMITTED)
        member.commit(offsets=committed(6), asynchronous=False)
        with clients.joined("new") as newcomer:
            newcomer.commit(offsets=committed(1), asynchronous=False)
        assert (clients.offset("other"), clients.offset("new")) == (6, 1)
        with clients.joined("rejoined") as rejoined:
            rejoined.commit(offsets=committed(3, partition=1), asynchronous=False)
            assert refused(clients) == {"left"}, "a group that has members again is deleted no more"

        end(producer, PATIENCE_S)
        wait_until(lambda: refused(clients) == set(), PATIENCE_S)  # the marker comes behind the answer to the producer
        outcome = clients.restart()
        assert (outcome.ended, outcome.words) == (True, "")
        assert (clients.state("other"), clients.offset("other")) == (STABLE, 6)
        assert clients.offset("left") == left_with, "a commit undoes the deletion"
        assert [clients.offset("rejoined", partition) for partition in (0, 1)] == [left_with, 3]


def refused(clients: Clients) -> set[str]:
    """The groups at which the cluster's own release would fail, by a scan in this process."""
    settings = Settings.from_environment()
    verdict = ReleaseVerdict(release=clients.release, topic=CONSUMER_OFFSETS, partition=0, verdict=LoadVerdict.LOADS)
    nothing = ScanResult(cluster="anew", scanned_at=1.0, logs=(), classes=(), verdicts=(verdict,))
    logs = LiveCoordinatorLogs(
        cluster=clients.cluster.spec, catalogue=load_catalogue(settings.include), settings=settings
    )
    scan = logs.scan_new_records(nothing, planned=None)
    groups = {found.group for found in scan.deleted_while_pending}
    assert bool(scan.failing(clients.release)) is bool(groups)
    assert all(scan.is_served(verdict) for verdict in scan.failing(clients.release))
    return groups


def test_a_group_that_members_convert_while_a_transaction_is_open_counts_as_deleted(
    make_cluster: MakeCluster, tmp_path: Path, release_cache: ReleaseCache
) -> None:
    """By a scan that tells live records from dead ones, and by a real 3.9.1, to which the group's tombstone is its end.

    3.9.1 is started on the log as it was then, on the log with the commit's marker, and on one that has another fault.
    """
    release, settings, group = Release(3, 9, 1), Settings.from_environment(), "deleted-p00"
    clients = started(make_cluster, Release(4, 3, 1))
    with clients.joined(group) as member, clients.transaction() as producer:
        producer.send_offsets_to_transaction(committed(7), member.consumer_group_metadata(), PATIENCE_S)
        newer = Consumer(clients.client(**{"group.id": group, "group.protocol": "consumer"}))
        try:
            newer.subscribe([TOPIC])
            wait_until(lambda: all([has_partitions(newer), has_partitions(member)]), PATIENCE_S)
            _, scan = scan_command(
                clients.cluster.spec,
                settings,
                new_group_coordinator=None,
                topics=(CONSUMER_OFFSETS,),
                releases=(release,),
                live=True,
            )
            while_open = held(clients)
            producer.commit_transaction(PATIENCE_S)
            wait_until(lambda: clients.offset(group) == 7, PATIENCE_S)
            after_it = held(clients)
        finally:
            newer.close()
    assert [found.group for found in scan.deleted_while_pending] == [group]
    (failing,) = scan.failing(release)
    assert scan.is_served(failing)
    (remedy,) = find_remedies(scan, load_catalogue(settings.include))
    assert remedy.waiting_is_enough is False
    assert {step.kind for step in remedy.steps} == {StepKind.END}, "do not need to wait for the log cleaner"
    assert remedy.steps[-1].title.startswith("End the transactions")

    with_broken_end = next(deleted_while_pending()).data + batch(4, [(4, (COMMIT, COMMITTED[:-5]))])
    logs = [while_open, *(with_own_groups(data, number) for number, data in enumerate((after_it, with_broken_end), 1))]
    places = {(CONSUMER_OFFSETS, number): (data, False) for number, data in enumerate(logs)}
    opened, ended, broken = load(release, places, tmp_path / "older", release_cache).values()
    assert f"Unexpected unload of active group {group} while" in opened.words
    assert failing.ignored == opened.ignored > 0
    assert (ended.ended, ended.words) == (True, "")
    assert broken.failed
    assert "unload" not in broken.words, "a record that stops the load comes before it, wherever it lies"


def held(clients: Clients) -> bytes:
    with FetchSource(clients.cluster.spec.bootstrap_servers) as source:
        (log,) = source.ranges([CONSUMER_OFFSETS])
        return b"".join(bytes(fetched.data) for fetched in source.read(log))
