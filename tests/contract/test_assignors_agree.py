"""Both leaders, ours and Java's, read the claims of the other client: a member keeps the partitions that it owns."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.coordinator.assignors import cooperative_sticky
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.structs import TopicPartition

from dynamic_protocol_consumer.assignors import CooperativeStickyAssignor, RangeAssignor
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import Jvm, run_jvm

pytestmark = pytest.mark.jvm

TOPIC, COUNT, GENERATION = "orders", 9, 5
OWNED = {"ours": {0, 1, 2, 3}, "java": {4, 5, 6, 7, 8}}
CONSUMER = "org.apache.kafka.clients.consumer"


@pytest.fixture(scope="module", params=["3.4.0", "3.4.1", "4.3.1"])
def jvm(request: pytest.FixtureRequest, release_cache: ReleaseCache) -> Iterator[Jvm]:
    with run_jvm(release_cache.libs(Release.parse(request.param))) as jvm:
        yield jvm


def our_claim() -> bytes:
    assignor = CooperativeStickyAssignor()
    assignor.claim([TopicPartition(TOPIC, number) for number in OWNED["ours"]], GENERATION)
    return bytes(assignor.metadata({TOPIC}).encode())


def java_partitions(jvm: Jvm, numbers: set[int]) -> Any:
    partitions = jvm.packages.java.util.ArrayList()
    for number in sorted(numbers):
        partitions.add(jvm.static("org.apache.kafka.common.TopicPartition")(TOPIC, number))
    return partitions


def java_claim(jvm: Jvm, *, version: int) -> bytes:
    """As KafkaConsumer.subscribe and a rebalance leave it: the assignor knows the generation of its last assignment."""
    assignor = jvm.static(f"{CONSUMER}.CooperativeStickyAssignor")()
    owned, nothing = java_partitions(jvm, OWNED["java"]), jvm.packages.java.util.Optional.empty()
    assignor.onAssignment(
        jvm.static(f"{CONSUMER}.ConsumerPartitionAssignor.Assignment")(owned),
        jvm.static(f"{CONSUMER}.ConsumerGroupMetadata")("group", GENERATION, "java", nothing),
    )
    topics = jvm.packages.java.util.ArrayList()
    topics.add(TOPIC)
    user_data = assignor.subscriptionUserData(jvm.packages.java.util.HashSet(topics))
    subscription = jvm.static(f"{CONSUMER}.ConsumerPartitionAssignor.Subscription")(
        topics, user_data, owned, GENERATION, nothing
    )
    protocol = jvm.static(f"{CONSUMER}.internals.ConsumerProtocol")
    return bytes(protocol.serializeSubscription(subscription, version).array())


@pytest.mark.parametrize("version", [1, 2, 3])
def test_our_leader_leaves_java_members_what_they_own(jvm: Jvm, version: int) -> None:
    members = [
        SimpleNamespace(member_id=name, group_instance_id=None, metadata=ConsumerProtocolSubscription.decode(claim))
        for name, claim in (("ours", our_claim()), ("java", java_claim(jvm, version=version)))
    ]
    assert CooperativeStickyAssignor.parse_member_metadata(members[1].metadata).generation == GENERATION
    assignment = CooperativeStickyAssignor().assign(FakeCluster(), members)
    assert {name: numbers(given) for name, given in assignment.items()} == OWNED


def test_javas_leader_gives_nobody_what_our_members_still_own(jvm: Jvm) -> None:
    assigned = assigned_by_java(jvm, our_claim())
    assert assigned["ours"] < OWNED["ours"]
    assert not assigned["late"] & OWNED["ours"]


@pytest.mark.parametrize("jvm", ["3.4.0"], indirect=True)
def test_javas_leader_would_give_away_at_once_what_members_of_plain_kafka_python_own(jvm: Jvm) -> None:
    """Why ours say the generation: without it, leaders before KAFKA-14639's fix take the claim for one of long ago."""
    plain = cooperative_sticky.CooperativeStickyAssignor()
    plain.member_assignment = [TopicPartition(TOPIC, number) for number in OWNED["ours"]]
    assigned = assigned_by_java(jvm, bytes(plain.metadata({TOPIC}).encode()))
    assert assigned["late"] & OWNED["ours"]


def assigned_by_java(jvm: Jvm, ours: bytes) -> dict[str, set[int]]:
    """The first round of a group that a third member, which owns nothing, has joined."""
    util, kafka = jvm.packages.java.util, "org.apache.kafka.common"
    late = ConsumerProtocolSubscription(version=2, topics=[TOPIC], user_data=b"", owned_partitions=[], generation_id=-1)
    subscriptions = util.HashMap()
    for name, claim in (("ours", ours), ("java", java_claim(jvm, version=3)), ("late", bytes(late.encode()))):
        buffer = jvm.packages.java.nio.ByteBuffer.wrap(claim)
        subscriptions[name] = jvm.static(f"{CONSUMER}.internals.ConsumerProtocol").deserializeSubscription(buffer)
    node = jvm.static(f"{kafka}.Node")(1, "localhost", 9092)
    nodes = jvm.array(jvm.packages.org.apache.kafka.common.Node, [node])
    infos, listed = util.ArrayList(), util.ArrayList()
    listed.add(node)
    for number in range(COUNT):
        infos.add(jvm.static(f"{kafka}.PartitionInfo")(TOPIC, number, node, nodes, nodes))
    cluster = jvm.static(f"{kafka}.Cluster")("id", listed, infos, util.HashSet(), util.HashSet())
    group = jvm.static(f"{CONSUMER}.ConsumerPartitionAssignor.GroupSubscription")(subscriptions)
    given = jvm.static(f"{CONSUMER}.CooperativeStickyAssignor")().assign(cluster, group).groupAssignment()
    return {name: {each.partition() for each in given[name].partitions()} for name in given}


class FakeCluster:
    def topics(self) -> set[str]:
        return {TOPIC}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(COUNT))


def numbers(assignment: ConsumerProtocolAssignment) -> set[int]:
    return {partition.partition for partition in ConsumerProtocolAssignment.decode(assignment.encode()).partitions()}


def test_the_range_assignor_forgets_no_member_when_static_and_dynamic_ones_take_turns() -> None:
    members = [
        SimpleNamespace(member_id=name, group_instance_id=instance, metadata=RangeAssignor.metadata([TOPIC]))
        for name, instance in (("a", None), ("b", "static"), ("c", None))
    ]
    sizes = {name: len(numbers(given)) for name, given in RangeAssignor.assign(FakeCluster(), members).items()}
    assert sizes == {"a": 3, "b": 3, "c": 3}
