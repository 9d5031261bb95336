"""Raw record batches of live partitions, by Fetch requests: no group, nothing written, read uncommitted.

A coordinator loads aborted records too, so the isolation level is READ_UNCOMMITTED. kafka-python's consumer would
decode every record; its protocol classes alone return the batches as they are in the log.

Each replica can be read, up to its own high watermark: a broker serves a consumer that sends client metadata (Fetch 11,
KIP-392) also as a follower, and ListOffsets for DEBUGGING_REPLICA_ID. Source: FetchParams.fetchOnlyLeader and
KafkaApis.handleListOffsetRequest of 3.3.2, ReplicaManager.fetchOffset of 4.3.1.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import tenacity
from kafka import errors
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_rollout.base.errors import FatalError, TransientError, UserError
from kafka_rollout.base.wording import few
from kafka_rollout.client.connection import NodeConnection
from kafka_rollout.client.requests import (
    ANY_REPLICA,
    AUTHORIZATION_ERRORS,
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    TRANSIENT_ERRORS,
    ResourceType,
    SilentNodes,
    describe_configs,
    error_name,
    host_and_port,
    list_offsets,
)
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.formats.cleaning import CLEANING_SETTINGS, CleaningConfig
from kafka_rollout.formats.log_types import Bytes, LogRange, ReplicaRange, UnreadableOffsetError
from kafka_rollout.formats.record_batch import last_header
from kafka_rollout.releases.facts import NEW_COORDINATOR, REBALANCE_PROTOCOLS, enables_new_group_coordinator

_TOPICS_OWN, _DEFAULT = 1, 5  # ConfigSource of what was set for the topic itself, and of defaults
_LAST_VERSION_BY_NAME = 12  # Fetch names topics up to version 12, by id after it (KIP-516)
_LAST_VERSION_OF_LEADER = 10  # with a later one the leader can refer to another replica (replica.selector.class)
_FETCH_BYTES = 16 * 1024 * 1024
_PATIENCE_S = 60.0  # longer than a broker's restart and the election of its partitions' leaders
_PAUSE_S = 0.5

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBytes:
    """Whole record batches as they are in the log, by the lengths in their headers. The last offset is `end` − 1."""

    topic: str
    partition: int
    fetch_offset: int
    end: int
    data: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadReplica:
    """A replica that no broker returns now."""

    topic: str
    partition: int
    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The replicas of some partitions, those of the leaders first."""

    ranges: tuple[ReplicaRange, ...]
    unread: tuple[UnreadReplica, ...] = ()


class FetchSource:
    """Connections to a cluster's brokers; a context manager.

    After leader changes and lost connections it repeats the request for `patience_s` at each offset, then raises
    TransientError with the partition. Raises RefusedError at once for a rejected password or certificate. `silent`: the
    addresses to query last.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        security: ClientSecurity | None = None,
        *,
        fetch_bytes: int = _FETCH_BYTES,
        patience_s: float = _PATIENCE_S,
        timeout_s: float = 20,
        silent: SilentNodes | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._silent = silent or SilentNodes()
        self._servers = bootstrap_servers
        self._security = security or ClientSecurity()
        self._fetch_bytes = fetch_bytes
        self._patience_s = patience_s
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._leaders: dict[tuple[str, int], int] = {}
        self._replicas: dict[tuple[str, int], tuple[int, ...]] = {}
        self._offline: dict[tuple[str, int], frozenset[int]] = {}
        self._addresses: dict[int, str] = {}  # by node id, as the brokers advertise them
        self._connections: dict[str, NodeConnection] = {}
        try:
            self._look_up([])
        except TransientError as error:
            self.close()
            raise TransientError(
                f"No broker of {bootstrap_servers} answered within {timeout_s:g} s.",
                remedy="Check the addresses and that the brokers are running.",
            ) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> FetchSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def partitions(self, topics: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Partitions of the topics that exist; a topic that no broker knows is left out, and is not created."""
        return self._until_answered(f"the metadata of {', '.join(topics)}", lambda: self._look_up(topics))

    def ranges(self, topics: Sequence[str]) -> tuple[LogRange, ...]:
        """The present range of each partition: from the log start offset to the high watermark."""
        names = [(topic, number) for topic, numbers in self.partitions(topics).items() for number in numbers]
        starts = self._offsets(names, EARLIEST)
        ends = self._offsets(names, LATEST)
        return tuple(
            LogRange(topic=topic, partition=partition, start=starts[topic, partition], end=ends[topic, partition])
            for topic, partition in sorted(names)
        )

    def replicas(self, topics: Sequence[str]) -> Replicas:
        """The present range of each replica: up to the leader's high watermark, or to the end of its log before it.

        A replica of a broker that does not run or was silent before, or in a directory that is offline, is `unread`.
        """
        logs = self.ranges(topics)
        leaders = {(log.topic, log.partition): self._leaders[log.topic, log.partition] for log in logs}
        others = {(*place, broker) for place in leaders for broker in self._replicas[place] if broker != leaders[place]}
        starts = self._offsets_of_replicas(others, EARLIEST)
        ends = self._offsets_of_replicas(starts, LATEST)
        ranges: list[ReplicaRange] = []
        unread: list[UnreadReplica] = []
        for log in logs:
            place = log.topic, log.partition
            of_log = partial(ReplicaRange, topic=log.topic, partition=log.partition)
            ranges.append(of_log(start=log.start, end=log.end, copy=0, broker=leaders[place]))
            found = sorted(broker for topic, partition, broker in others if (topic, partition) == place)
            for copy, broker in enumerate(found, start=1):
                if (*place, broker) in ends:
                    end = min(log.end, ends[*place, broker])
                    start = min(starts[*place, broker], end)
                    ranges.append(of_log(start=start, end=end, copy=copy, broker=broker))
                else:
                    unread.append(UnreadReplica(topic=log.topic, partition=log.partition, broker=broker))
        return Replicas(ranges=tuple(sorted(ranges, key=lambda log: (log.copy, log))), unread=tuple(unread))

    def cleaning(self, topics: Sequence[str]) -> dict[str, CleaningConfig]:
        """The cleaning settings of each topic; without topics whose configuration this user cannot read."""
        request = describe_configs([(ResourceType.TOPIC, topic) for topic in topics], list(CLEANING_SETTINGS))
        answer = self._until_answered("the configuration of the coordinator logs", lambda: self._ask(request))
        return {
            result.resource_name: CleaningConfig.from_settings(
                {config.name: config.value for config in result.configs},
                own=[config.name for config in result.configs if config.config_source == _TOPICS_OWN],
            )
            for result in answer.results
            if result.error_code == 0
        }

    def starts_new_group_coordinator(self) -> bool | None:
        """Whether a coordinator has a setting with which 3.8 and 3.9 start their new group coordinator.

        For the brokers with replicas of the logs whose `replicas` were queried: each can become the coordinator. None
        if this user cannot read the settings. The next start can read others: planned_group_coordinator.
        Defaults do not count: those of 4.x do not apply when the node runs 3.9.
        """
        can_read = True
        brokers = {broker for replicas in self._replicas.values() for broker in replicas}
        present = {node for node, address in self._addresses.items() if not self._silent.has(address)}
        for node in sorted(brokers & present):
            request = describe_configs([(ResourceType.BROKER, str(node))], [REBALANCE_PROTOCOLS, NEW_COORDINATOR])
            answer = self._until_answered(f"the settings of broker {node}", partial(self._ask, request, node))
            can_read = can_read and all(result.error_code == 0 for result in answer.results)
            settings = {
                config.name: config.value or ""
                for result in answer.results
                for config in result.configs or ()
                if config.config_source != _DEFAULT
            }
            if enables_new_group_coordinator(settings):
                return True
        return False if can_read else None

    def read(self, what: LogRange) -> Iterator[FetchedBytes]:
        """The batches with the range's offsets, in order; the first and the last can exceed the range.

        Of a ReplicaRange its broker returns them, of another range the leader.
        Records that retention removed during the read are skipped: a coordinator would not find them either. Raises
        UnreadableOffsetError at an offset at which the log has no record batch; no later offset can be read then.
        """
        offset = what.start
        while offset < what.end:
            of = f" of broker {what.broker}" if isinstance(what, ReplicaRange) else ""
            fetched, offset = self._until_answered(
                f"{what.topic}-{what.partition}{of} at offset {offset}", partial(self._fetch, what, offset)
            )
            if fetched is not None:
                yield fetched

    # --- one request each; an error that can pass is raised as TransientError ---

    def _look_up(self, topics: Sequence[str]) -> dict[str, tuple[int, ...]]:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
            max_version=9,  # newer ones ask by topic id
        )
        answer = self._ask(request)
        if _unknown_topics(answer):
            answer = self._confirmed(request, answer)
        self._addresses = _addresses(answer)
        found: dict[str, tuple[int, ...]] = {}
        for topic in answer.topics:
            if topic.error_code == errors.UnknownTopicOrPartitionError.errno:
                continue
            _raise_for(topic.error_code)
            for partition in topic.partitions:
                _raise_for(partition.error_code, but=errors.ReplicaNotAvailableError.errno)
                place = topic.name, partition.partition_index
                self._leaders[place] = partition.leader_id
                self._replicas[place] = tuple(partition.replica_nodes)
                self._offline[place] = frozenset(partition.offline_replicas)
            found[topic.name] = tuple(sorted(partition.partition_index for partition in topic.partitions))
        return found

    def _confirmed(self, request: Any, answer: Any) -> Any:
        """Return the answer that knows most topics, of all brokers in service that respond.

        A broker whose metadata is old does not know a topic either. Those that the answers list are not fenced, so
        their metadata was current. Raises TransientError if a topic is unknown and only one of several has answered.
        """
        asked, confirmed = set[str](), 0
        while left := sorted({*_addresses(answer).values()} - asked):
            for address in left:
                asked.add(address)
                if self._silent.has(address):
                    continue
                try:
                    other = self._connection(address).ask(request, timeout_s=self._timeout_s)
                except TransientError:
                    continue
                confirmed += 1
                if len(_unknown_topics(other)) < len(_unknown_topics(answer)):
                    answer = other
        if (unknown := _unknown_topics(answer)) and confirmed < min(2, len(asked)):
            raise TransientError(
                f"Only {confirmed} of {len(asked)} brokers respond, so it is unknown whether {few(unknown)} exists."
            )
        return answer

    def _offsets(self, names: Iterable[tuple[str, int]], timestamp: int) -> dict[tuple[str, int], int]:
        wanted = set(names)
        found: dict[tuple[str, int], int] = {}

        def query() -> None:
            by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
            for topic, partition in sorted(wanted - found.keys()):
                by_leader[self._leaders[topic, partition]][topic].append(partition)
            for leader, topics in by_leader.items():
                for topic in self._ask(list_offsets(topics, timestamp), leader).topics:
                    for partition in topic.partitions:
                        _raise_for(partition.error_code)
                        found[topic.name, partition.partition_index] = partition.offset

        self._until_answered("the offsets of the coordinator logs", query, topics=sorted({t for t, _ in wanted}))
        return found

    def _offsets_of_replicas(
        self, names: Iterable[tuple[str, int, int]], timestamp: int
    ) -> dict[tuple[str, int, int], int]:
        """Return the offset of each topic, partition and broker; without those that no broker returns now."""
        wanted = set(names)
        found: dict[tuple[str, int, int], int] = {}

        def query() -> None:
            by_broker: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
            for topic, partition, broker in sorted(wanted - found.keys()):
                address = self._addresses.get(broker)
                if broker not in self._offline[topic, partition] and address and not self._silent.has(address):
                    by_broker[broker][topic].append(partition)
            for broker, topics in by_broker.items():
                for topic in self._ask(list_offsets(topics, timestamp, replica_id=ANY_REPLICA), broker).topics:
                    for partition in topic.partitions:
                        _raise_for(partition.error_code)
                        found[topic.name, partition.partition_index, broker] = partition.offset

        topics = sorted({topic for topic, *_ in wanted})
        self._until_answered("the offsets of the coordinator logs' replicas", query, topics=topics)
        return found

    def _fetch(self, what: LogRange, offset: int) -> tuple[FetchedBytes | None, int]:
        """One Fetch: the bytes (None if the log now starts later) and the next offset."""
        leader = self._leader(what)
        broker = what.broker if isinstance(what, ReplicaRange) else leader
        topic = FetchRequest.FetchTopic(
            topic=what.topic,
            partitions=[
                FetchRequest.FetchTopic.FetchPartition(
                    partition=what.partition,
                    current_leader_epoch=-1,
                    fetch_offset=offset,
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    partition_max_bytes=self._fetch_bytes,
                )
            ],
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=READ_UNCOMMITTED,
            session_id=0,
            session_epoch=-1,  # no fetch session (KIP-227): each request is complete
            topics=[topic],
            forgotten_topics_data=[],
            min_version=4,
            max_version=_LAST_VERSION_OF_LEADER if broker == leader else _LAST_VERSION_BY_NAME,
        )
        answer = self._ask(request, broker)
        _raise_for(answer.error_code)
        partition = answer.responses[0].partitions[0]
        if partition.error_code == errors.OffsetOutOfRangeError.errno:
            start = self._start(what)
            if start <= offset:
                raise FatalError(
                    f"{what.topic}-{what.partition} no longer has offset {offset}, which it had when the scan began.",
                    remedy="Scan again. If the log was truncated, check for an unclean leader election.",
                )
            return None, start
        if partition.error_code == errors.CorruptRecordError.errno:
            raise UnreadableOffsetError(
                f"Broker {broker} cannot read its log at offset {offset} (CORRUPT_MESSAGE).", offset=offset
            )
        _raise_for(partition.error_code)
        data = bytes(partition.records or b"")
        if not data:  # the new leader does not have this offset yet, or the follower does not know the high watermark
            raise TransientError("OFFSET_NOT_AVAILABLE.")
        whole, end = whole_batches(data, offset)
        return FetchedBytes(topic=what.topic, partition=what.partition, fetch_offset=offset, end=end, data=whole), end

    def _start(self, what: LogRange) -> int:
        """Return the log start offset. Raises TransientError if the replica is gone."""
        place = what.topic, what.partition
        if not isinstance(what, ReplicaRange):
            return self._offsets([place], EARLIEST)[place]
        found = self._offsets_of_replicas([(*place, what.broker)], EARLIEST)
        if not found:
            raise TransientError("REPLICA_NOT_AVAILABLE.")
        return found[*place, what.broker]

    def _leader(self, what: LogRange) -> int:
        if (what.topic, what.partition) not in self._leaders:
            self._look_up([what.topic])
        try:
            return self._leaders[what.topic, what.partition]
        except KeyError:
            raise UserError(f"Partition {what.topic}-{what.partition} does not exist.", remedy="Scan again.") from None

    def _ask(self, request: Any, node_id: int | None = None) -> Any:
        """The response of one broker, or of the first that responds; all of them share `timeout_s` then."""
        if node_id is not None:
            if node_id not in self._addresses:
                raise TransientError("LEADER_NOT_AVAILABLE.")
            return self._connection(self._addresses[node_id]).ask(request, timeout_s=self._timeout_s)
        addresses = dict.fromkeys([*self._addresses.values(), *self._servers.split(",")])
        last = TransientError("There is no broker to query.")
        for address in sorted(addresses, key=self._silent.has):
            try:
                return self._connection(address).ask(request, timeout_s=self._timeout_s / len(addresses))
            except TransientError as error:
                last = error
        raise last

    def _connection(self, address: str) -> NodeConnection:
        if address not in self._connections:
            self._connections[address] = NodeConnection(address, f"Broker {address}", self._security)
        return self._connections[address]

    def _until_answered(self, what: str, ask: Callable[[], Answer], *, topics: Sequence[str] = ()) -> Answer:
        def pause(seconds: float) -> None:
            self._sleep(seconds)
            self._refresh(topics)

        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(TransientError),
            stop=tenacity.stop_after_delay(self._patience_s),
            wait=tenacity.wait_fixed(_PAUSE_S),
            sleep=pause,
            reraise=True,
        )
        try:
            return again(ask)
        except TransientError as error:
            raise TransientError(
                f"{self._servers} did not return {what} for {self._patience_s:g} s: {error.sentence}",
                remedy="Check that every partition has a leader and all replicas in sync, then scan again.",
            ) from error

    def _refresh(self, topics: Sequence[str]) -> None:
        """Read the leaders again; if no broker responds, the next attempt raises the error."""
        with suppress(TransientError):
            self._look_up(topics or sorted({topic for topic, _ in self._leaders}))


def _unknown_topics(answer: Any) -> list[str]:
    unknown = errors.UnknownTopicOrPartitionError.errno
    return [topic.name for topic in answer.topics if topic.error_code == unknown]


def _addresses(answer: Any) -> dict[int, str]:
    return {broker.node_id: host_and_port(broker.host, broker.port) for broker in answer.brokers}


def whole_batches(data: bytes, offset: int) -> tuple[memoryview, int]:
    """Return the whole batches of a response, and the offset after the last one. Decoding checks their contents.

    A response ends inside a batch if it reaches its byte limit, but its first batch is whole (KIP-74). Raises
    UnreadableOffsetError without a whole batch that has `offset` or a later one.
    """
    last = last_header(data)
    if last is None or last.last_offset < offset:
        raise UnreadableOffsetError(
            f"No complete record batch begins at offset {offset}. The rest of the partition was not read.",
            offset=offset,
        )
    return memoryview(data)[: last.position + last.size], last.last_offset + 1


def _raise_for(code: int, *, but: int = 0) -> None:
    if code in (0, but):
        return
    name = error_name(code)
    if name in AUTHORIZATION_ERRORS:
        raise FatalError(
            f"The cluster does not allow this user to read the coordinator logs: {name}.",
            remedy="Allow DESCRIBE and READ on the coordinator logs to the user of the Connection.",
        )
    if name not in TRANSIENT_ERRORS:
        raise FatalError(
            f"A broker refuses to return the coordinator logs: {name}.", remedy="Read the log of the broker."
        )
    raise TransientError(f"{name}.")
