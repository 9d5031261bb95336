"""Brokers and controllers that answer Kafka's protocol on loopback, in a process of their own, with any number of
partitions.

Partition p of all has the replicas p, p + 1 and p + 2 of the brokers in turn; all are in sync, and the first one leads.
The responses to Metadata are encoded once. Every request is counted with the bytes of its response.
"""

from __future__ import annotations

import io
import multiprocessing
import socket
import struct
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role

PER_TOPIC, REPLICAS, EPOCH = 20, 3, 5000
FIRST_BROKER = 11
_OFFERED = {
    ApiVersionsRequest: 4,
    MetadataRequest: 12,
    DescribeConfigsRequest: 4,
    DescribeClusterRequest: 2,
    DescribeQuorumRequest: 1,
    ListGroupsRequest: 4,
    ListTransactionsRequest: 0,
}
_FLEXIBLE = {ApiVersionsRequest: 3, MetadataRequest: 9, DescribeConfigsRequest: 4, ListGroupsRequest: 3}
_BY_KEY = {request.API_KEY: request for request in _OFFERED}
Counts = Mapping[int, Mapping[str, tuple[int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedBrokers:
    """The running process. `spec`: brokers from FIRST_BROKER on, controllers 1, 2 and 3."""

    spec: ClusterSpec
    _pipe: Connection

    def taken(self) -> Counts:
        """Return node id → request → (number, bytes of the responses) since the last call."""
        self._pipe.send(None)
        counts: Counts = self._pipe.recv()
        return counts


def name_of(topic: int) -> str:
    return f"orders-of-some-service-{topic:05}"


def replicas_of(number: int, brokers: int) -> list[int]:
    return [FIRST_BROKER + (number + step) % brokers for step in range(REPLICAS)]


@contextmanager
def simulated_brokers(brokers: int, partitions: int) -> Iterator[SimulatedBrokers]:
    """Run the process until the end of the block."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve_all, args=(there, brokers, partitions), daemon=True
    )
    process.start()
    try:
        ports: dict[int, int] = here.recv()
        yield SimulatedBrokers(spec=_spec(ports), _pipe=here)
    finally:
        process.terminate()
        process.join()


def _spec(ports: Mapping[int, int]) -> ClusterSpec:
    def node(node_id: int, port: int) -> NodeSpec:
        role = Role.BROKER if node_id >= FIRST_BROKER else Role.CONTROLLER
        address = f"127.0.0.1:{port}"
        return NodeSpec(
            node_id=node_id,
            name=f"{role.value}-{node_id}",
            roles=frozenset({role}),
            broker_address=address if role is Role.BROKER else None,
            controller_address=address if role is Role.CONTROLLER else None,
        )

    return ClusterSpec(
        name="simulated", approvers=("alice",), nodes=tuple(node(node_id, port) for node_id, port in ports.items())
    )


def _serve_all(pipe: Connection, brokers: int, partitions: int) -> None:
    topics = _topics(brokers, partitions)
    nodes = [_Node(node_id, brokers, topics) for node_id in (1, 2, 3, *range(FIRST_BROKER, FIRST_BROKER + brokers))]
    pipe.send({node.node_id: node.port for node in nodes})
    while True:
        pipe.recv()
        pipe.send({node.node_id: node.take() for node in nodes})


def _topics(brokers: int, partitions: int) -> dict[str, bytes]:
    """Return topic → its part of a Metadata response of version 12."""
    kind = MetadataResponse.MetadataResponseTopic
    encoded: dict[str, bytes] = {}
    for topic in range(partitions // PER_TOPIC):
        found = [
            kind.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=replicas_of(topic * PER_TOPIC + number, brokers)[0],
                leader_epoch=1,
                replica_nodes=replicas_of(topic * PER_TOPIC + number, brokers),
                isr_nodes=replicas_of(topic * PER_TOPIC + number, brokers),
                offline_replicas=[],
            )
            for number in range(PER_TOPIC)
        ]
        one = kind(error_code=0, name=name_of(topic), topic_id=uuid.uuid4(), is_internal=False, partitions=found)
        encoded[name_of(topic)] = _part(one)
    return encoded


def _unknown(name: str) -> bytes:
    kind = MetadataResponse.MetadataResponseTopic
    return _part(kind(error_code=3, name=name, topic_id=uuid.UUID(int=0), is_internal=False, partitions=[]))


def _part(topic: Any) -> bytes:
    """Return the topic without the head and the tagged fields of its response."""
    return _metadata([topic])[len(_metadata([])) - 1 : -1]


def _metadata(topics: Sequence[Any]) -> bytes:
    body: bytes = MetadataResponse(
        version=12, throttle_time_ms=0, brokers=[], cluster_id="simulated", controller_id=FIRST_BROKER, topics=topics
    ).encode()
    return body


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


class _Node:
    def __init__(self, node_id: int, brokers: int, topics: Mapping[str, bytes]) -> None:
        self.node_id, self._brokers, self._topics = node_id, brokers, topics
        self._counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._server.getsockname()[1]
        self._all: bytes | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def take(self) -> dict[str, tuple[int, int]]:
        taken, self._counts = self._counts, defaultdict(lambda: [0, 0])
        return {name: (number, size) for name, (number, size) in taken.items()}

    def _accept(self) -> None:
        while True:
            connection, _ = self._server.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                data = stream.read(struct.unpack(">i", size)[0])
                key, version = struct.unpack(">hh", data[:4])
                request = _BY_KEY[key]
                flexible = version >= _FLEXIBLE.get(request, 0)
                body = io.BytesIO(data)
                header = RequestHeader.decode(body, flexible=flexible)
                asked = request.decode(body.read(), version=version)
                answer = self._answer(request, version, asked)
                plain = request is ApiVersionsRequest or not flexible
                head = struct.pack(">i", header.correlation_id) + (b"" if plain else b"\x00")
                connection.sendall(struct.pack(">i", len(head) + len(answer)) + head + answer)
                count = self._counts[request.__name__.removesuffix("Request")]
                count[0] += 1
                count[1] += len(answer)

    def _answer(self, request: Any, version: int, asked: Any) -> bytes:
        encoded: bytes
        if request is MetadataRequest:
            return self._answer_metadata(asked)
        if request is DescribeConfigsRequest:
            encoded = self._answer_configs(version, asked).encode()
        elif request is DescribeClusterRequest:
            encoded = self._answer_cluster(version, asked).encode()
        elif request is DescribeQuorumRequest:
            encoded = self._answer_quorum(version).encode()
        elif request is ListGroupsRequest:
            encoded = ListGroupsResponse(version=version, error_code=0, groups=[]).encode()
        elif request is ListTransactionsRequest:
            encoded = ListTransactionsResponse(version=version, error_code=0, transaction_states=[]).encode()
        else:
            encoded = self._answer_versions(version).encode()
        return encoded

    def _answer_metadata(self, asked: Any) -> bytes:
        if asked.topics is not None:
            return self._joined([self._topics.get(topic.name) or _unknown(topic.name) for topic in asked.topics])
        if self._all is None:
            self._all = self._joined(list(self._topics.values()))
        return self._all

    @staticmethod
    def _joined(topics: Sequence[bytes]) -> bytes:
        empty = _metadata([])
        return empty[:-2] + _varint(len(topics) + 1) + b"".join(topics) + b"\x00"

    @staticmethod
    def _answer_configs(version: int, asked: Any) -> Any:
        result = DescribeConfigsResponse.DescribeConfigsResult
        kind = result.DescribeConfigsResourceResult
        one = kind(
            name="min.insync.replicas",
            value="2",
            read_only=False,
            config_source=5,
            is_sensitive=False,
            synonyms=[],
            config_type=3,
            documentation=None,
        )
        results = [
            result(
                error_code=0,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[one],
            )
            for resource in asked.resources
        ]
        return DescribeConfigsResponse(version=version, throttle_time_ms=0, results=results)

    def _answer_cluster(self, version: int, asked: Any) -> Any:
        kind = DescribeClusterResponse.DescribeClusterBroker
        of_controllers = self.node_id < FIRST_BROKER
        ids = (1, 2, 3) if of_controllers else range(FIRST_BROKER, FIRST_BROKER + self._brokers)
        return DescribeClusterResponse(
            version=version,
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            endpoint_type=2 if of_controllers else 1,
            cluster_id="simulated",
            controller_id=1,
            brokers=[kind(broker_id=one, host="127.0.0.1", port=1, rack=None, is_fenced=False) for one in ids],
        )

    def _answer_quorum(self, version: int) -> Any:
        topic = DescribeQuorumResponse.TopicData
        now = int(time.time() * 1000)

        def replica(node_id: int) -> Any:
            return topic.PartitionData.ReplicaState(
                replica_id=node_id, log_end_offset=EPOCH, last_fetch_timestamp=now, last_caught_up_timestamp=now
            )

        partition = topic.PartitionData(
            partition_index=0,
            error_code=0,
            leader_id=1,
            leader_epoch=1,
            high_watermark=EPOCH,
            current_voters=[replica(node_id) for node_id in (1, 2, 3)],
            observers=[replica(node_id) for node_id in range(FIRST_BROKER, FIRST_BROKER + self._brokers)],
        )
        found = topic(topic_name="__cluster_metadata", partitions=[partition])
        return DescribeQuorumResponse(version=version, error_code=0, topics=[found])

    @staticmethod
    def _answer_versions(version: int) -> Any:
        kind, level = ApiVersionsResponse, 21
        return ApiVersionsResponse(
            version=version,
            error_code=0,
            api_keys=[
                kind.ApiVersion(api_key=request.API_KEY, min_version=0, max_version=highest)
                for request, highest in _OFFERED.items()
            ],
            throttle_time_ms=0,
            supported_features=[kind.SupportedFeatureKey(name="metadata.version", min_version=1, max_version=25)],
            finalized_features_epoch=EPOCH,
            finalized_features=[
                kind.FinalizedFeatureKey(name="metadata.version", max_version_level=level, min_version_level=level)
            ],
        )
