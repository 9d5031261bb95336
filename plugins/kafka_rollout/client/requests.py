"""Requests to one node of a cluster or to the first that answers; errors by the reaction that they need."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, TypeVar
from uuid import UUID

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError
from kafka_rollout.base.lease import Fence, unfenced
from kafka_rollout.base.time_limits import RESPONSE_S, SILENT_FOR_S, SILENT_RESPONSE_S
from kafka_rollout.base.wording import few_failures
from kafka_rollout.client.connection import Decode, NodeConnection, NotSentError
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.model.rights import REQUESTS
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role

_T = TypeVar("_T")
_AT_ONCE = 16  # nodes; most of the time is waiting for responses
LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4  # special timestamps of ListOffsets
READ_UNCOMMITTED = 0
TOPICS_VERSION = 12  # of Metadata, in every release in KRaft mode
_INT, _PARTITION = Struct(">i"), Struct(">hiii")
_Nodes = tuple[int, ...]


class ResourceType(IntEnum):
    """org.apache.kafka.common.config.ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


def host_and_port(host: str, port: int) -> str:
    """Return the text of an address; an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def describe_configs(
    resources: Iterable[tuple[int, str]], keys: Sequence[str] | None = None, *, synonyms: bool = False
) -> Any:
    """DescribeConfigs of resources (type, name). `keys`: names of the settings; None: all. `synonyms`: also the values
    that an effective value overrides."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[
            resource(resource_type=int(kind), resource_name=name, configuration_keys=keys) for kind, name in resources
        ],
        include_synonyms=synonyms,
        include_documentation=False,
    )


CONSUMER, ANY_REPLICA = -1, -2  # replica ids of ListOffsetsRequest: CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID


def list_offsets(topics: Mapping[str, Sequence[int]], timestamp: int, *, replica_id: int = CONSUMER) -> Any:
    """ListOffsets of partitions (topic → numbers) at a time (epoch ms), LATEST, EARLIEST or EARLIEST_LOCAL (since 3.6,
    KIP-405).

    `replica_id`: ANY_REPLICA for a broker that need not be the leader; it returns its own log end offset as LATEST.
    """
    kind = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=READ_UNCOMMITTED,
        topics=[
            kind(
                name=topic,
                partitions=[
                    kind.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=timestamp)
                    for number in numbers
                ],
            )
            for topic, numbers in topics.items()
        ],
        min_version=8 if timestamp == EARLIEST_LOCAL else 2,
        max_version=8,
    )


NO_ERROR = "NONE"

# Where kafka-python's name is not (or no longer) Kafka's.
_KAFKA_NAMES = {-1: "UNKNOWN_SERVER_ERROR", 6: "NOT_LEADER_OR_FOLLOWER"}

# The request may succeed later or at another node: what these requests can get of the subclasses of Kafka's
# RetriableException (org.apache.kafka.common.errors), BROKER_NOT_AVAILABLE and UNKNOWN_SERVER_ERROR.
TRANSIENT_ERRORS = frozenset(
    {
        "NOT_CONTROLLER",
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",  # its leader has not replayed the record of the new topic yet
        "UNKNOWN_TOPIC_ID",
        "LEADER_NOT_AVAILABLE",
        "LISTENER_NOT_FOUND",
        "REPLICA_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",  # a directory of the leader failed: another replica becomes the leader
        "BROKER_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
        "UNSTABLE_OFFSET_COMMIT",
        "THROTTLING_QUOTA_EXCEEDED",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "OFFSET_NOT_AVAILABLE",
        "UNKNOWN_SERVER_ERROR",
    }
)

CONTROLLER_ENDPOINTS = 2  # DescribeCluster's endpoint type of controllers (KIP-919)
AUTHORIZATION_ERRORS = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A node at one of its listeners."""

    node_id: int
    address: str
    who: str
    """The node's name in errors."""
    listener: Role = Role.BROKER


def target_of(node: NodeSpec, listener: Role) -> Target | None:
    """Return the node at its broker or controller listener; None without an address."""
    address = node.broker_address if listener is Role.BROKER else node.controller_address
    if not address:
        return None
    # A bootstrap server is a node without an id.
    who = f"Bootstrap server {address}" if node.node_id < 0 else f"Node {node.node_id} ({node.name}) at {address}"
    return Target(node_id=node.node_id, address=address, who=who, listener=listener)


def _remedy(silent: Sequence[Target]) -> str:
    of_controllers = any(target.listener is Role.CONTROLLER for target in silent)
    settings = " (for controllers: controller_connection_id in the inventory)" if of_controllers else ""
    what = "it runs, that its address is" if len(silent) == 1 else "they run, that their addresses are"
    return f"Check that {what} right, and that the security settings are those of the listener{settings}."


def error_name(code: int) -> str:
    """Kafka's own name of an error code (org.apache.kafka.common.protocol.Errors)."""
    if code == 0:
        return NO_ERROR
    if code in _KAFKA_NAMES:
        return _KAFKA_NAMES[code]
    known = kafka_errors.kafka_errors.get(code)
    return str(getattr(known, "message", "")) or f"ERROR_{code}"


def raise_for_error(result: Any, what: str, target: Target, right: str = "DESCRIBE on CLUSTER") -> None:
    """Raise the error that the reaction to the error code of a response, or of one result in it, needs.

    RefusedError for a missing right, TransientError where a repeated request can succeed, else FatalError.
    `right`: what an ACL must allow.
    """
    if result.error_code == 0:
        return
    name = error_name(result.error_code)
    if name in AUTHORIZATION_ERRORS:
        raise RefusedError(
            f"{target.who} does not allow {what} for this user: {name}.",
            remedy=f"Allow {right} to the user of the Connection.",
        )
    message = getattr(result, "error_message", None)  # not every response has one
    found = f"{name} ({message.rstrip('.')})" if message else name
    if name in TRANSIENT_ERRORS:
        raise TransientError(f"{target.who} cannot answer {what} now: {found}.")
    raise FatalError(f"{target.who} answered {what} with {found}.", remedy="Read the log of the node.")


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic."""

    error_code: int
    name: str
    topic_id: UUID
    partitions: tuple[tuple[int, int, _Nodes, _Nodes], ...]
    """Number, leader, replicas and ISR of each, by number."""


def describe_topics(names: Collection[str] | None) -> Any:
    """Metadata of these topics; None: of all."""
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=None if names is None else [topic(name=name) for name in sorted(names)],
        allow_auto_topic_creation=False,
        min_version=TOPICS_VERSION,
        max_version=TOPICS_VERSION,
    )


def decode_topics(response: memoryview) -> list[TopicMetadata]:
    """Decode the topics in the body of a response to Metadata, without the fields that are not used.

    kafka-python needs one object with eight fields for each partition, and three lists. Most partitions of a large
    cluster have the replicas of another one, so equal lists are one tuple here. Raises ValueError, IndexError or
    struct.error for other bytes.
    """
    reader = _Reader(bytes(response))
    reader.at = 4  # throttle time
    for _ in range(reader.count()):  # brokers
        reader.at += 4
        reader.skip_text()
        reader.at += 4
        reader.skip_text()
        reader.skip_tags()
    reader.skip_text()  # cluster id
    reader.at += 4  # controller
    topics = [reader.topic() for _ in range(reader.count())]
    reader.skip_tags()
    if reader.at != len(reader.data):
        raise ValueError(f"{len(reader.data) - reader.at} bytes are left")
    return topics


class _Reader:
    """The flexible encoding of KIP-482."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self._known: dict[bytes, _Nodes] = {}

    def topic(self) -> TopicMetadata:
        error_code = int.from_bytes(self.data[self.at : self.at + 2], "big", signed=True)
        self.at += 2
        size = self.count()
        name = self.data[self.at : self.at + size].decode()
        self.at += size
        topic_id = UUID(bytes=self.data[self.at : self.at + 16])
        self.at += 17  # and whether it is internal
        partitions = [self._partition() for _ in range(self.count())]
        self.at += 4  # authorized operations
        self.skip_tags()
        partitions.sort()
        return TopicMetadata(error_code, name, topic_id, tuple(partitions))

    def _partition(self) -> tuple[int, int, _Nodes, _Nodes]:
        _, number, leader, _ = _PARTITION.unpack_from(self.data, self.at)
        self.at += _PARTITION.size
        replicas, isr = self._nodes(), self._nodes()
        self._nodes()  # offline
        if self.data[self.at]:
            self.skip_tags()
        else:
            self.at += 1
        return number, leader, replicas, isr

    def _nodes(self) -> _Nodes:
        at = self.at
        size = self.data[at]
        if 0 < size < 0x80:
            end = at + 4 * size - 3
            found = self._known.get(self.data[at:end])
            if found is not None:
                self.at = end
                return found
        count = self.count()
        found = tuple(_INT.unpack_from(self.data, self.at + 4 * place)[0] for place in range(count))
        self.at += 4 * count
        self._known[self.data[at : self.at]] = found
        return found

    def count(self) -> int:
        """Read the length of an array or a text."""
        length = self._varint() - 1
        if length < 0:
            raise ValueError("a value is null that must not be")
        return length

    def skip_text(self) -> None:
        size = self._varint()
        self.at += max(0, size - 1)  # 0: null

    def skip_tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            size = self._varint()
            self.at += size

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise ValueError("a length has more than five bytes")


class SilentNodes:
    """The nodes that did not answer a request within `RESPONSE_S`: the next requests to read wait for a short time.

    Connections that share it pay for a silent node once. A process is silent on each of its listeners, so a node counts
    by its id and by its address: a bootstrap server has no id.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[int | str, float] = {}

    def limit(self, target: Target, timeout_s: float) -> float:
        """Return the time limit for a request to read."""
        until = max(self._until.get(key, 0.0) for key in self._keys(target))
        return min(timeout_s, SILENT_RESPONSE_S) if self._clock() < until else timeout_s

    def has(self, address: str) -> bool:
        return self._clock() < self._until.get(address, 0.0)

    def missed(self, target: Target, waited_s: float) -> None:
        if waited_s >= RESPONSE_S:
            self._until |= dict.fromkeys(self._keys(target), self._clock() + SILENT_FOR_S)

    def answered(self, target: Target) -> None:
        for key in self._keys(target):
            self._until.pop(key, None)

    @staticmethod
    def _keys(target: Target) -> tuple[int | str, ...]:
        return (target.address,) if target.node_id < 0 else (target.address, target.node_id)


class ClusterConnections:
    """Connections to the nodes of a cluster: opened at the first request, kept, and opened again when lost.

    `silent`: shared with other connections to the cluster.
    """

    granted: Mapping[Role, frozenset[str]] | None = REQUESTS
    """Listener → the requests that can be sent; None: every request, for tests."""

    def __init__(
        self,
        cluster: ClusterSpec,
        security: ClientSecurity,
        *,
        timeout_s: float,
        silent: SilentNodes | None = None,
    ) -> None:
        self._silent = SilentNodes() if silent is None else silent
        self.brokers = tuple(t for node in cluster.brokers if (t := target_of(node, Role.BROKER)))
        self.controllers = tuple(t for node in cluster.controllers if (t := target_of(node, Role.CONTROLLER)))
        self._security = security
        self._timeout_s = timeout_s
        self._connections: dict[str, NodeConnection] = {}
        self._failed_at: dict[str, float] = {}
        self._lock = threading.Lock()
        self._closed = False

    def ask(
        self,
        target: Target,
        request: Any,
        *,
        timeout_s: float | None = None,
        fence: Fence = unfenced,
        decode: Decode | None = None,
    ) -> Any:
        """Return the response of this node. Raises TransientError or RefusedError as NodeConnection does, and what
        `fence` raises, which is called right before the request is sent. `decode`: as there. Raises ValueError for a
        request for which model/rights.py grants no right on this listener."""
        name = type(request).__name__.removesuffix("Request")
        if self.granted is not None and name not in self.granted[target.listener]:
            raise ValueError(f"No right is granted for {name} on the listener of a {target.listener}.")
        with self._lock:
            if self._closed:
                raise NotSentError(f"{target.who} was not queried: the connections are closed.")
            connection = self._connections.get(target.address)
            if connection is None:
                security = self._security if target.listener is Role.BROKER else self._security.of_controllers
                connection = NodeConnection(target.address, target.who, security)
                self._connections[target.address] = connection
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        if fence is unfenced:
            limit_s = self._silent.limit(target, limit_s)
        began = time.monotonic()
        try:
            response = connection.ask(request, timeout_s=limit_s, fence=fence, decode=decode)
        except TransientError:
            self._failed_at[target.address] = time.monotonic()
            self._silent.missed(target, time.monotonic() - began)
            raise
        self._failed_at.pop(target.address, None)
        self._silent.answered(target)
        return response

    def from_each(self, targets: Iterable[Target], ask: Callable[[Target], _T]) -> list[_T]:
        """Return `ask` of each node, in their order; at most 16 nodes are queried at the same time.

        Raises the error of the first node, in their order, that has one.
        """
        asked = list(targets)
        if len(asked) < 2:
            return [ask(target) for target in asked]
        with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="nodes") as pool:
            return list(pool.map(ask, asked))

    def first_answer(
        self,
        targets: Sequence[Target],
        request: Any,
        accept: Callable[[Any, Target], Any],
        *,
        only_if_not_sent: bool = False,
        fence: Fence = unfenced,
        decode: Decode | None = None,
    ) -> Any:
        """Return `accept` of the first response for which it raises no error.

        Nodes that failed last time are queried last; the remaining nodes share the time limit. With
        `only_if_not_sent`, which is for changes, the next node is queried only if the request was not sent. `fence` is
        called before each request is sent. `decode`: as for NodeConnection.ask.
        Raises the last RefusedError if there was one, since it has a remedy, else TransientError with every node.
        """
        deadline = time.monotonic() + self._timeout_s
        ordered = sorted(targets, key=lambda t: self._failed_at.get(t.address, 0.0))
        failures: list[RolloutError] = []
        for position, target in enumerate(ordered):
            share_s = max(0.5, (deadline - time.monotonic()) / (len(ordered) - position))
            if only_if_not_sent:
                share_s = max(share_s, deadline - time.monotonic())
            try:
                return accept(self.ask(target, request, timeout_s=share_s, fence=fence, decode=decode), target)
            except NotSentError as error:
                failures.append(error)
            except (TransientError, RefusedError) as error:
                if only_if_not_sent:
                    raise
                failures.append(error)
        refusal = next((error for error in reversed(failures) if isinstance(error, RefusedError)), None)
        if refusal is not None:
            raise refusal
        raise TransientError(
            few_failures((error.sentence for error in failures), "nodes") or "There is no node to query.",
            remedy=" ".join(dict.fromkeys(error.remedy for error in failures if error.remedy)) or _remedy(ordered),
        )

    def brokers_of(self, through: Collection[int]) -> tuple[Target, ...]:
        """Return the brokers with these ids, in this order; all for none."""
        known = {target.node_id: target for target in self.brokers}
        return tuple(known[node_id] for node_id in through if node_id in known) if through else self.brokers

    def narrowed(self, through: Collection[int]) -> ClusterConnections:
        """Return these connections with the brokers that have these ids, in this order; with all for none."""
        view = copy(self)
        view.brokers = self.brokers_of(through)
        return view

    def any_broker(self, request: Any, *, fence: Fence = unfenced) -> tuple[Any, Target]:
        """Return the response of the first broker that answers, and the broker."""
        response: tuple[Any, Target] = self.first_answer(self.brokers, request, lambda *both: both, fence=fence)
        return response

    def topics(
        self, *, through: Collection[int] = (), names: Collection[str] | None = None
    ) -> tuple[dict[str, TopicMetadata], Target]:
        """Return topic name → metadata of these topics, and the broker that reported them.

        `names` None: all topics that the user can describe. `through`: as for brokers_of.
        """
        described: Sequence[TopicMetadata]
        described, target = self.first_answer(
            self.brokers_of(through), describe_topics(names), lambda *both: both, decode=decode_topics
        )
        topics = {}
        for topic in described:
            if error_name(topic.error_code) != "UNKNOWN_TOPIC_OR_PARTITION":  # being deleted
                raise_for_error(topic, f"topic {topic.name}", target, "DESCRIBE on TOPIC")
                topics[topic.name] = topic
        return topics, target

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connections = list(self._connections.values())
            self._connections.clear()
        for connection in connections:
            connection.close()
