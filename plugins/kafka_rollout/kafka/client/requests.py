"""Requests to one node of a cluster or to the first that answers; errors by the reaction that they need."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, TypeVar

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import ListOffsetsRequest

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError
from kafka_rollout.base.fence import Fence, unfenced
from kafka_rollout.base.wording import few_failures
from kafka_rollout.kafka.client.connection import Decode, NodeConnection, NotSentError
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.kafka.client.topic_metadata import TopicMetadata, decode_topics, describe_topics
from kafka_rollout.kafka.client.turns import PARTITIONS_PER_S, SMALL_S, RequestTurns
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role

_T = TypeVar("_T")
_AT_ONCE = 16  # nodes; most of the time is waiting for responses
LATEST, EARLIEST = -1, -2  # special timestamps of ListOffsets
READ_UNCOMMITTED = 0


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


def list_offsets(topics: Mapping[str, Sequence[int]], timestamp: int) -> Any:
    """ListOffsets of partitions (topic → numbers) at LATEST or EARLIEST."""
    kind = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
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
        min_version=2,
        max_version=7,
    )


NO_ERROR = "NONE"

# Where kafka-python's name is not (or no longer) Kafka's.
_KAFKA_NAMES = {-1: "UNKNOWN_SERVER_ERROR", 6: "NOT_LEADER_OR_FOLLOWER"}

# The request may succeed later or at another node: what these requests can get of the subclasses of Kafka's
# RetriableException (org.apache.kafka.common.errors), BROKER_NOT_AVAILABLE and UNKNOWN_SERVER_ERROR.
_TRANSIENT = frozenset(
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
    """A node at one of its listeners. `who`: the node's name in errors."""

    node_id: int
    address: str
    who: str
    listener: Role = Role.BROKER


def broker_target(node: NodeSpec) -> Target | None:
    return _target(node, node.broker_address, Role.BROKER)


def controller_target(node: NodeSpec) -> Target | None:
    return _target(node, node.controller_address, Role.CONTROLLER)


def _target(node: NodeSpec, address: str | None, listener: Role) -> Target | None:
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


def raise_for_error(code: int, *, what: str, who: str, right: str, message: str | None = None) -> None:
    """Raise the error that the reaction to an error code needs. `right`: what an ACL must allow.

    RefusedError for a missing right, TransientError where a repeated request can succeed, else FatalError.
    """
    if code == 0:
        return
    name = error_name(code)
    if name in AUTHORIZATION_ERRORS:
        raise RefusedError(
            f"{who} does not allow {what} for this user: {name}.",
            remedy=f"Allow {right} to the user of the Connection.",
        )
    if name in _TRANSIENT:
        raise TransientError(f"{who} cannot answer {what} now: {name}{_and(message)}.")
    raise FatalError(f"{who} answered {what} with {name}{_and(message)}.", remedy="Read the log of the node.")


def _and(message: str | None) -> str:
    return f" ({message.rstrip('.')})" if message else ""


class ClusterConnections:
    """Connections to the nodes of a cluster: opened at the first request, kept, and opened again when lost."""

    def __init__(
        self,
        cluster: ClusterSpec,
        security: ClientSecurity,
        *,
        timeout_s: float,
        turns: RequestTurns | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._turns = turns  # None: of a process that is alone
        self._sleep = sleep
        self.brokers = tuple(t for t in map(broker_target, cluster.brokers) if t)
        self.controllers = tuple(t for t in map(controller_target, cluster.controllers) if t)
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
        `fence` raises, which is called right before the request is sent. `decode`: as there."""
        with self._lock:
            if self._closed:
                raise NotSentError(f"{target.who} was not queried: the connections are closed.")
            connection = self._connections.get(target.address)
            if connection is None:
                security = self._security if target.listener is Role.BROKER else self._security.of_controllers
                connection = NodeConnection(target.address, target.who, security)
                self._connections[target.address] = connection
        try:
            response = connection.ask(
                request, timeout_s=self._timeout_s if timeout_s is None else timeout_s, fence=fence, decode=decode
            )
        except TransientError:
            self._failed_at[target.address] = time.monotonic()
            raise
        self._failed_at.pop(target.address, None)
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
        request: Callable[[], Any],
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
                return accept(self.ask(target, request(), timeout_s=share_s, fence=fence, decode=decode), target)
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

    def any_broker(
        self, request: Callable[[], Any], *, through: Collection[int] = (), fence: Fence = unfenced
    ) -> tuple[Any, Target]:
        """Return the response of the first broker (of `through`, if it has ids) that answers, and the broker."""
        targets = self.brokers_of(through)
        response: tuple[Any, Target] = self.first_answer(targets, request, lambda *response: response, fence=fence)
        return response

    def wait_for_turn(self) -> int | None:
        """Wait for the next turn of a broker to report all topics, and return its id.

        None: any broker, at once; so it is if the turns cannot be read or stored, since they only limit load.
        """
        responding = [target.node_id for target in self.brokers if target.address not in self._failed_at]
        if self._turns is None or not responding:
            return None
        try:
            node_id, wait_s = self._turns.take(responding)
        except RolloutError:
            return None
        self._sleep(wait_s)
        return node_id

    def topics(
        self, *, through: Collection[int] = (), names: Collection[str] | None = None
    ) -> tuple[dict[str, TopicMetadata], Target]:
        """Return topic name → metadata of these topics, and the broker that reported them.

        `names` None: all topics that the user can describe. `through`: as for any_broker. It does not wait for a turn:
        who knows that a broker is current would not know it after the wait.
        """
        targets = self.brokers_of(through)
        request = partial(describe_topics, names)
        described: Sequence[TopicMetadata]
        described, target = self.first_answer(targets, request, lambda *found: found, decode=decode_topics)
        if self._turns is not None and names is None:
            length_s = sum(len(topic.partitions) for topic in described) / PARTITIONS_PER_S
            with suppress(RolloutError):  # as in wait_for_turn
                self._turns.set_length(target.node_id, length_s if length_s >= SMALL_S else 0.0)
        topics = {}
        for topic in described:
            if error_name(topic.error_code) != "UNKNOWN_TOPIC_OR_PARTITION":  # being deleted
                raise_for_error(topic.error_code, what=f"topic {topic.name}", who=target.who, right="DESCRIBE on TOPIC")
                topics[topic.name] = topic
        return topics, target

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connections = list(self._connections.values())
            self._connections.clear()
        for connection in connections:
            connection.close()
