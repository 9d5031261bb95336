"""Where a fetch ends, by the lengths of its batches, and whom it is asked of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from kafka_rollout.base.errors import FatalError, TransientError
from kafka_rollout.client.fetch import FetchSource, Replicas, UnreadReplica, whole_batches
from kafka_rollout.formats.log_types import LogRange, ReplicaRange, UnreadableOffsetError
from kafka_rollout.formats.record_batch import batches
from tests.paths import FIXTURES
from tests.unit.client.kafka_listener import Listener, accepting_plain

FETCHED = FIXTURES / "coordinator-logs-4.3.1" / "__consumer_offsets-0.fetch"


def test_a_fetch_that_was_cut_anywhere_ends_with_its_last_whole_batch() -> None:
    data = FETCHED.read_bytes()
    ends = {batch.position + batch.size: batch.last_offset for batch in batches(data)}
    for cut in range(min(ends), len(data) + 1):
        end = max(end for end in ends if end <= cut)
        assert whole_batches(data[:cut], 0) == (data[:end], ends[end] + 1)


@pytest.mark.parametrize("damage", [b"\xff" * 100, bytes(8) + (200).to_bytes(4) + b"\xff" * 200], ids=["any", "whole"])
def test_a_fetch_ends_before_what_is_no_batch_and_one_that_begins_with_it_names_the_offset(damage: bytes) -> None:
    data = FETCHED.read_bytes()
    first, second, *_ = batches(data)
    before = data[: second.position]
    assert whole_batches(before + damage, 0) == (before, first.last_offset + 1)
    for unreadable in (damage, before[:-1]):
        with pytest.raises(UnreadableOffsetError, match="at offset 7") as raised:
            whole_batches(unreadable, 7)
        assert raised.value.offset == 7


def test_a_fetch_that_ends_before_the_wanted_offset_is_unreadable_there() -> None:
    data = FETCHED.read_bytes()
    with pytest.raises(UnreadableOffsetError):
        whole_batches(data, max(batch.last_offset for batch in batches(data)) + 1)


LOG = "__consumer_offsets"
NOT_LEADER, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC, UNSUPPORTED_VERSION = 6, 29, 3, 35


class Cluster:
    """Two brokers on loopback with one partition.

    As Kafka, a follower serves ListOffsets with replica id -2, and Fetch from version 11 on.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.data = FETCHED.read_bytes()
        self.end = max(batch.last_offset for batch in batches(self.data)) + 1
        self.leader, self.told_leader, self.error = 2, 2, 0
        self.of_follower, self.end_of_follower = self.data, self.end
        self.offline: list[int] = []
        self.unaware: set[int] = set()  # nodes whose metadata is older than the topic
        self.dead: set[int] = set()
        self.looked_up: list[int] = []  # nodes that were asked for topics
        self.asked: list[int] = []  # nodes that were sent a Fetch
        self.brokers = {node: self._broker(stack, node) for node in (1, 2)}

    @property
    def bootstrap(self) -> str:
        return self.brokers[1].address

    def _broker(self, stack: ExitStack, node: int) -> Listener:
        return stack.enter_context(accepting_plain(lambda *request: self.answer(node, *request)))

    def answer(self, node: int, api_key: int, version: int, body: bytes) -> Any:
        if api_key == ApiVersionsRequest.API_KEY:
            key = ApiVersionsResponse.ApiVersion
            offered = [(ApiVersionsRequest, 4), (MetadataRequest, 8), (ListOffsetsRequest, 5), (FetchRequest, 11)]
            keys = [key(api_key=one.API_KEY, min_version=0, max_version=highest) for one, highest in offered]
            return ApiVersionsResponse(version=version, error_code=0, api_keys=keys)
        if api_key == MetadataRequest.API_KEY:
            return self.metadata(node, version, MetadataRequest.decode(body, version=version))
        if api_key == ListOffsetsRequest.API_KEY:
            return self.offsets(node, version, ListOffsetsRequest.decode(body, version=version))
        self.asked.append(node)
        return self.fetch(node, version)

    def metadata(self, node: int, version: int, request: Any) -> Any:
        kind = MetadataResponse
        known = () if node in self.unaware else (LOG,)
        self.looked_up += [node] if request.topics else []
        brokers = [
            kind.MetadataResponseBroker(
                node_id=node,
                host="127.0.0.1",
                port=1 if node in self.dead else int(listener.address.split(":")[1]),
                rack=None,
            )
            for node, listener in self.brokers.items()
        ]
        partition = kind.MetadataResponseTopic.MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=self.told_leader,
            leader_epoch=1,
            replica_nodes=[1, 2],
            isr_nodes=[1, 2],
            offline_replicas=self.offline,
        )
        topics = [
            kind.MetadataResponseTopic(
                error_code=0 if topic.name in known else UNKNOWN_TOPIC,
                name=topic.name,
                is_internal=True,
                partitions=[partition] if topic.name in known else [],
            )
            for topic in request.topics or ()
        ]
        return kind(
            version=version, throttle_time_ms=0, brokers=brokers, cluster_id="c", controller_id=1, topics=topics
        )

    def offsets(self, node: int, version: int, request: Any) -> Any:
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        (topic,) = request.topics
        (partition,) = topic.partitions
        error = 0 if node == self.leader or request.replica_id == -2 else NOT_LEADER
        offset = 0 if partition.timestamp == -2 else self.end if node == self.leader else self.end_of_follower
        held = kind.ListOffsetsPartitionResponse(
            partition_index=0, error_code=error, timestamp=-1, offset=offset, leader_epoch=1
        )
        return ListOffsetsResponse(version=version, throttle_time_ms=0, topics=[kind(name=LOG, partitions=[held])])

    def fetch(self, node: int, version: int) -> Any:
        kind = FetchResponse.FetchableTopicResponse
        error = self.error or (0 if node == self.leader or version >= 11 else NOT_LEADER)
        held = kind.PartitionData(
            partition_index=0,
            error_code=error,
            high_watermark=self.end,
            last_stable_offset=-1,
            log_start_offset=0,
            aborted_transactions=[],
            preferred_read_replica=-1,
            records=None if error else self.data if node == self.leader else self.of_follower,
        )
        return FetchResponse(
            version=version,
            throttle_time_ms=0,
            error_code=0,
            session_id=0,
            responses=[kind(topic=LOG, partitions=[held])],
        )


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack)


def read(source: FetchSource, log: LogRange) -> bytes:
    return b"".join(fetched.data for fetched in source.read(log))


def test_a_partition_is_fetched_from_its_leader(cluster: Cluster) -> None:
    with FetchSource(f"127.0.0.1:1,{cluster.bootstrap}", timeout_s=60) as source:
        assert source.partitions([LOG, "no-such-topic"]) == {LOG: (0,)}
        (log,) = source.ranges([LOG])
        assert log == LogRange(topic=LOG, partition=0, start=0, end=cluster.end)
        assert read(source, log) == cluster.data
    assert cluster.asked == [2]
    assert cluster.brokers[2].connections == 1


def test_a_topic_is_absent_only_if_all_brokers_in_service_say_so(cluster: Cluster) -> None:
    with FetchSource(cluster.bootstrap, timeout_s=60, sleep=pytest.fail) as source:
        cluster.unaware = {1}
        assert source.partitions([LOG]) == {LOG: (0,)}, "broker 1 does not know it yet"
        assert cluster.looked_up[0] == 1
        assert set(cluster.looked_up) == {1, 2}
        cluster.unaware = {1, 2}
        assert source.partitions([LOG]) == {}


def test_one_broker_of_several_does_not_show_that_a_topic_is_absent(cluster: Cluster) -> None:
    with FetchSource(cluster.bootstrap, timeout_s=5, patience_s=0.2, sleep=lambda _: None) as source:
        cluster.unaware, cluster.dead = {1}, {2}
        with pytest.raises(TransientError, match=f"Only 1 of 2 brokers respond, so it is unknown whether {LOG} exists"):
            source.partitions([LOG])


@pytest.mark.parametrize("lost", [False, True])
def test_a_leader_that_moved_or_hung_up_is_looked_up_again(cluster: Cluster, lost: bool) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        cluster.told_leader = cluster.leader

    with FetchSource(cluster.bootstrap, timeout_s=60, sleep=sleep) as source:
        (log,) = source.ranges([LOG])
        cluster.leader = 1
        if lost:
            cluster.brokers[2].close()
        assert read(source, log) == cluster.data
    assert cluster.asked[-1] == 1
    assert pauses == [0.5]


def test_each_replica_is_fetched_from_its_own_broker_up_to_what_it_has(cluster: Cluster) -> None:
    first, *_ = batches(cluster.data)
    cluster.of_follower, cluster.end_of_follower = cluster.data[: first.size], first.last_offset + 1
    with FetchSource(cluster.bootstrap, timeout_s=60, sleep=pytest.fail) as source:
        found = source.replicas([LOG, "no-such-topic"])
        of_partition = {"topic": LOG, "partition": 0, "start": 0}
        leader = ReplicaRange(**of_partition, end=cluster.end, copy=0, broker=2)
        follower = ReplicaRange(**of_partition, end=cluster.end_of_follower, copy=1, broker=1)
        assert found == Replicas(ranges=(leader, follower))
        assert [read(source, log) for log in found.ranges] == [cluster.data, cluster.of_follower]
        assert cluster.asked == [2, 1]
        cluster.leader = cluster.told_leader = 1
        source.partitions([LOG])
        assert read(source, follower) == cluster.data, "it is the leader now"
        assert cluster.asked == [2, 1, 1]


def test_a_replica_that_no_broker_returns_is_not_read_and_not_left_out(cluster: Cluster) -> None:
    cluster.offline = [1]
    with FetchSource(cluster.bootstrap, timeout_s=60, sleep=pytest.fail) as source:
        found = source.replicas([LOG])
    assert [log.broker for log in found.ranges] == [2]
    assert found.unread == (UnreadReplica(topic=LOG, partition=0, broker=1),)


def test_after_its_patience_a_partition_that_is_not_served_is_named(cluster: Cluster) -> None:
    with FetchSource(cluster.bootstrap, timeout_s=60, patience_s=0.2, sleep=lambda _: None) as source:
        (log,) = source.ranges([LOG])
        cluster.leader = 1
        with pytest.raises(TransientError, match=r"did not return __consumer_offsets-0 at offset 0 .*NOT_LEADER"):
            read(source, log)


def test_a_missing_right_ends_the_reading_at_once(cluster: Cluster) -> None:
    with FetchSource(cluster.bootstrap, timeout_s=60, sleep=pytest.fail) as source:
        (log,) = source.ranges([LOG])
        cluster.error = TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(FatalError, match="does not allow this user to read the coordinator logs"):
            read(source, log)
        cluster.error = UNSUPPORTED_VERSION
        with pytest.raises(FatalError, match="refuses to return the coordinator logs: UNSUPPORTED_VERSION"):
            read(source, log)


def test_brokers_that_do_not_answer_are_named() -> None:
    with pytest.raises(TransientError, match=r"No broker of 127\.0\.0\.1:1 answered within 5 s"):
        FetchSource("127.0.0.1:1", timeout_s=5)
