"""The dynamic rebalance protocol in groups on real brokers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka import TopicPartition
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener, ConsumerRebalanceListener
from kafka.errors import CommitFailedError
from kafka.structs import MemberState, OffsetAndMetadata

from dynamic_protocol_consumer import DynamicProtocolConsumer
from dynamic_protocol_consumer.protocols import RebalanceProtocol
from kafka_rollout.cli.app import run_main
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.integration.conftest import MakeCluster
from tests.integration.harness.groups.foreign_members import ConfluentMember, ConsoleConsumer
from tests.integration.harness.groups.members import DEADLINE_S, LiveGroup, Worker, wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

JAVA = Release(3, 4, 1)  # its console consumer is part of the broker's jars; from 3.8 on it is not
NAMES = [f"member-{number}" for number in range(6)]
EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


# For tests whose rebalances are those of the other tests, or that do not depend on the release of the brokers.
one_release = pytest.mark.parametrize(
    "cluster",
    ["4.3.1", *(pytest.param(release, marks=pytest.mark.full) for release in ("3.4.1", "3.9.1"))],
    indirect=True,
)


@pytest.fixture(
    scope="module", params=[*(pytest.param(old, marks=pytest.mark.full) for old in ("3.4.1", "3.9.1")), "4.3.1"]
)
def cluster(request: pytest.FixtureRequest, make_shared_cluster: MakeCluster) -> LocalCluster:
    return make_shared_cluster(
        request.param,
        name=f"groups-{request.param.replace('.', '-')}",
        layout="combined",
        size=1,
        extra_config={"group.initial.rebalance.delay.ms": "0"},
    )


def live_group(cluster: LocalCluster, topic: str, partitions: int = 12) -> LiveGroup:
    return LiveGroup(servers=cluster.spec.bootstrap_servers, topic=topic, partitions=partitions)


def test_six_old_members_bounced_once_end_cooperative_and_what_stays_is_never_revoked(cluster: LocalCluster) -> None:
    with live_group(cluster, "bounce") as group:
        for name in NAMES:
            group.old(name)
        group.wait_settled()
        for name in NAMES:
            group.stop(name)
            group.new(name)
            group.wait_settled()
        group.wait_protocol(COOPERATIVE)
        before = {name: group.workers[name].owned for name in NAMES}
        at = time.monotonic()
        group.stop(NAMES[0])
        group.wait_settled()
        group.new(NAMES[0])
        group.wait_settled()
        stayed = {(name, partition) for name in NAMES[1:] for partition in before[name] & group.workers[name].owned}
        assert len(stayed) >= 8
        given_up = {(event.member, event.partition) for event in group.journal.since(at, "revoked")}
        assert not stayed & given_up
        assert not any(worker.failures for worker in group.workers.values())
        group.finish()


@pytest.mark.full
def test_an_old_member_that_comes_back_as_leader_blocks_commits_and_cooperation_returns_after_it(
    cluster: LocalCluster,
) -> None:
    with live_group(cluster, "leader") as group:
        group.old("old")
        group.new("first")
        group.new("second")
        group.wait_settled()
        group.wait_protocol(EAGER)
        group.stop("old")  # the others rebalance without it
        group.wait_settled()
        group.wait_protocol(COOPERATIVE)
        for attempt in range(12):
            came_back_as_leader, witness = come_back(group, lambda: group.old("old"))
            group.new(f"new-{attempt}")
            group.wait_settled()
            group.wait_protocol(COOPERATIVE)
            if came_back_as_leader:
                break
        assert came_back_as_leader
        assert len(witness.failures) == 1
        group.finish()


def come_back(group: LiveGroup, join: Callable[[], object]) -> tuple[bool, Worker]:
    """`join` brings "old" into a cooperative group of two, whose leader leaves. Whether it leads then, and the member
    that saw it happen; the old one is gone in the end."""
    leader = next(name for name, worker in group.workers.items() if leads(worker))
    (stays,) = set(group.workers) - {leader}
    witness = group.workers[stays]
    witness.failures.clear()
    witness.hold_commits()
    wait_until(lambda: witness.has_pending(witness.owned), "it has processed what it will want to commit")
    for worker in group.workers.values():
        worker.paused.set()
    join()
    wait_until(witness.consumer._coordinator.need_rejoin, "the old member joins")
    group.stop(leader)  # Kafka gives the lead to any member that is left
    witness.paused.clear()
    group.wait_settled()
    assert witness.protocol is EAGER
    wait_until(lambda: bool(witness.failures), "its poll tells what was refused")
    assert [type(error) for error in witness.failures] == [CommitFailedError]
    witness.commit_again()
    came_back_as_leader = leads(group.workers["old"])
    group.stop("old")
    return came_back_as_leader, witness


@pytest.mark.full
def test_an_old_member_that_was_thrown_out_for_missing_a_rebalance_comes_back_as_leader(cluster: LocalCluster) -> None:
    """The case of the document: it is not aware that the others have kept their partitions, nor that it was missed."""
    overrides = {"max_poll_interval_ms": 20_000, "session_timeout_ms": 20_000}
    with LiveGroup(servers=cluster.spec.bootstrap_servers, topic="missed", partitions=12, overrides=overrides) as group:
        group.new("first")
        for attempt in range(12):
            group.new(f"second-{attempt}")
            late = group.old("old")
            group.wait_settled()
            group.wait_protocol(EAGER)
            late.paused.set()
            del group.workers["old"]
            group.stop(f"second-{attempt}")
            group.new(f"third-{attempt}")
            group.wait_settled()  # without it, when its time to join is over
            group.wait_protocol(COOPERATIVE)

            def wake(late: Worker = late) -> None:
                group.workers["old"] = late
                late.paused.clear()

            came_back_as_leader, _ = come_back(group, wake)
            group.wait_settled()
            group.wait_protocol(COOPERATIVE)
            if came_back_as_leader:
                break
        assert came_back_as_leader
        group.finish()


def leads(worker: Worker) -> bool:
    return bool(worker.consumer._coordinator._is_leader)


@pytest.mark.full
@one_release
def test_members_through_librdkafka_and_java_share_a_group_with_ours(
    cluster: LocalCluster, release_cache: ReleaseCache
) -> None:
    with live_group(cluster, "mixed") as group:
        group.new("ours")
        others: list[ConsoleConsumer | ConfluentMember] = [
            ConsoleConsumer(group, "java", release_cache.libs(JAVA)),
            ConfluentMember(group, "librdkafka", "range"),
        ]
        try:
            wait_until(lambda: {"java", "librdkafka"} <= group.described.keys(), "the others join")
            group.new("late")
            group.wait_settled(others=group.foreign)
            group.wait_protocol(EAGER)  # librdkafka's member has only range
            others.pop().stop()
            others.append(ConfluentMember(group, "librdkafka", "cooperative-sticky"))
            wait_until(lambda: bool(group.described.get("librdkafka")), "librdkafka's member is back")
            group.wait_settled(others=group.foreign)
            group.wait_protocol(COOPERATIVE)
            before = group.workers["late"].owned
            at = time.monotonic()
            group.stop("ours")  # ours led; now one of the others may, and has to believe what "late" says it owns
            group.wait_settled(others=group.foreign)
            group.new("ours")
            group.wait_settled(others=group.foreign)
            stayed = before & group.workers["late"].owned
            assert stayed
            revoked = {event.partition for event in group.journal.since(at, "revoked") if event.member == "late"}
            assert not stayed & revoked
        finally:
            for other in others:
                other.stop()
        group.wait_settled()
        group.finish()


@pytest.mark.full
@one_release
def test_members_go_back_to_the_old_code_one_by_one_and_nothing_is_lost(cluster: LocalCluster) -> None:
    with live_group(cluster, "downgrade") as group:
        for name in NAMES[:4]:
            group.new(name)
        group.wait_settled()
        group.wait_protocol(COOPERATIVE)
        for name in NAMES[:4]:
            group.stop(name)
            group.old(name)
            group.wait_settled()
            group.wait_protocol(EAGER)
        group.finish()


@one_release
def test_it_is_a_kafka_consumer_with_context_manager_iteration_and_both_commits(cluster: LocalCluster) -> None:
    with live_group(cluster, "drop-in", partitions=2) as group:
        wait_until(lambda: len(group.produced) >= 5, "there are records")
        with DynamicProtocolConsumer(
            group.topic, **{**group.settings, "consumer_timeout_ms": int(1000 * DEADLINE_S)}
        ) as consumer:
            record = next(consumer)
            where = TopicPartition(record.topic, record.partition)
            consumer.commit()
            assert consumer.committed(where) == record.offset + 1
            answers: list[object] = []
            for record in consumer:
                if record.partition == where.partition:
                    break
            offsets = {where: OffsetAndMetadata(record.offset + 1, "", -1)}
            consumer.commit_async(offsets, callback=lambda _, answer: answers.append(answer))
            wait_until(lambda: consumer.poll(10) is not None and bool(answers), "the callback was called")
            assert answers == [None]
            assert consumer.committed(where) == record.offset + 1
            assert consumer.rebalance_protocol is COOPERATIVE


@pytest.mark.full
@one_release
def test_a_leader_that_sees_new_partitions_gets_them_though_its_polls_are_shorter_than_a_join(
    cluster: LocalCluster,
) -> None:
    with live_group(cluster, "short-polls", partitions=2) as group:
        settings = {**group.settings, "metadata_max_age_ms": 200}
        with DynamicProtocolConsumer(group.topic, **settings) as consumer:
            wait_until(lambda: consumer.poll(0) is not None and len(consumer.assignment()) == 2, "it has all")
            admin = AdminClient({"bootstrap.servers": group.servers})
            admin.create_partitions([NewPartitions(group.topic, 4)])[group.topic].result(DEADLINE_S)
            wait_until(lambda: consumer.poll(0) is not None and len(consumer.assignment()) == 4, "it has the new ones")
            assert consumer.group_metadata().state is MemberState.STABLE
            assert consumer.group_metadata().generation_id < 20  # one that throws joins away takes hundreds


class Plain(ConsumerRebalanceListener):  # type: ignore[misc]
    """Commits what is consumed so far, as many applications do."""

    consumer: DynamicProtocolConsumer

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None: ...

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.consumer.commit()


class Coroutine(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    consumer: DynamicProtocolConsumer

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None: ...

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self.consumer.commit_async()


@one_release
@pytest.mark.parametrize("listener", [Plain(), Coroutine()], ids=["plain", "coroutine"])
def test_a_listener_commits_what_it_consumed_of_a_partition_that_is_taken_away(
    cluster: LocalCluster, listener: Plain | Coroutine
) -> None:
    with live_group(cluster, f"listener-{type(listener).__name__}", partitions=2) as group:
        wait_until(lambda: len(group.produced) >= 5, "there are records")
        with DynamicProtocolConsumer(**group.settings) as consumer:
            listener.consumer = consumer
            consumer.subscribe([group.topic], listener=listener)
            consumed: dict[TopicPartition, int] = {}

            def both_are_consumed() -> bool:
                consumed.update({where: records[-1].offset for where, records in consumer.poll(200).items()})
                return len(consumed) == 2

            wait_until(both_are_consumed, "both partitions are consumed")
            assert consumer.rebalance_protocol is COOPERATIVE
            consumer.pause(*consumed)
            group.new("second")
            wait_until(lambda: consumer.poll(50) == {} and len(consumer.assignment()) == 1, "one was taken away")
            (gone,) = consumed.keys() - consumer.assignment()
            wait_until(lambda: consumer.poll(50) == {} and bool(group.journal.processed[gone]), "the other consumes it")
            assert min(group.journal.processed[gone]) == consumed[gone] + 1
            wait_until(
                lambda: consumer.poll(50) == {} and consumer.group_metadata().state is MemberState.STABLE,
                "nothing refuses the commit of close()",
            )


def test_groups_plan_tells_each_groups_type_members_and_bounces(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(cluster.inventory_path.parent))

    def planned(goal: str) -> dict[str, Any]:
        code = run_main(["groups", "list", "--cluster", cluster.spec.name, "--to", goal, "--json"])
        told = json.loads(capsys.readouterr().out)
        assert code == (3 if any(each["finding"] for each in told["groups"]) else 0)
        return {each["group"]["group_id"]: each for each in told["groups"]}

    newer = cluster.spec.name == "groups-4-3-1"
    with live_group(cluster, "planned", partitions=2) as group:
        group.new("cooperates")
        group.wait_settled()
        assert planned("cooperative")["planned"]["bounces"] == 0
        group.old("only-range")
        group.wait_settled()
        plan = planned("cooperative")["planned"]
        assert (plan["group"]["assignor"], plan["bounces"]) == ("range", 2)
        assert {member["client_id"] for member in plan["group"]["members"]} == {"cooperates", "only-range"}
        assert planned("consumer")["planned"]["bounces"] == (1 if newer else None)
        assert planned("classic")["planned"]["steps"] == []
        if newer:
            consumer = Consumer(
                {
                    "bootstrap.servers": group.servers,
                    "group.id": "newer",
                    "client.id": "n",
                    "group.protocol": "consumer",
                }
            )
            consumer.subscribe([group.topic])

            def joined() -> bool:
                consumer.poll(0.1)  # whether there is a record or not
                return bool(consumer.assignment())

            wait_until(joined, "it is in its group")
            back = planned("classic")
            assert next(iter(back)) == "newer"
            assert back["newer"]["bounces"] == 1
            assert [member["uses_classic"] for member in back["newer"]["group"]["members"]] == [False]
            consumer.close()
            wait_until(lambda: planned("classic")["newer"]["bounces"] == 0, "it has left")
