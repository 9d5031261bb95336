"""Raw record batches of live partitions, by Fetch requests: no group, nothing written, read uncommitted.

A coordinator loads aborted records too, so READ_UNCOMMITTED is what it sees. kafka-python's consumer would decode
every record; its protocol classes alone give the batches as they lie in the log.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import tenacity
from kafka import errors
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_rollout.adapters.kafka.connection import NodeConnection
from kafka_rollout.adapters.kafka.requests import AUTHORIZATION_ERRORS, error_name
from kafka_rollout.adapters.kafka.security import ClientSecurity
from kafka_rollout.domain.coordinator_logs.cleaning import CLEANING_SETTINGS, CleaningConfig
from kafka_rollout.domain.coordinator_logs.scan import LogRange
from kafka_rollout.domain.model.errors import FatalError, TransientError, UserError
from kafka_rollout.wire.batch_headers import last_header
from kafka_rollout.wire.record_batch import batches

_LATEST, _EARLIEST = -1, -2  # ListOffsets' special timestamps
_READ_UNCOMMITTED = 0
_TOPIC, _TOPICS_OWN = 2, 1  # DescribeConfigs' resource type, and its source of what was set for the topic itself
_BROKER, _DEFAULT = 4, 5
_PROTOCOLS, _ENABLE = "group.coordinator.rebalance.protocols", "group.coordinator.new.enable"
_LAST_VERSION_BY_NAME = 12  # Fetch names topics up to version 12, by id after it (KIP-516)
_FETCH_BYTES = 16 * 1024 * 1024
_PATIENCE_S = 60.0  # a broker's restart and the election of its partitions' leaders fit into it
_PAUSE_S = 0.5

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBytes:
    """Record batches as they lie in the log; the last one may be cut off, and is fetched again as a whole."""

    topic: str
    partition: int
    fetch_offset: int
    data: bytes


class FetchSource:
    """Connections to a cluster's brokers; a context manager.

    Leader changes and lost connections are tried again for `patience_s` at each offset, then raise TransientError
    naming the partition. Raises RefusedError at once for a password or certificate that a broker does not accept.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        security: ClientSecurity | None = None,
        *,
        fetch_bytes: int = _FETCH_BYTES,
        patience_s: float = _PATIENCE_S,
        timeout_s: float = 20,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._servers = bootstrap_servers
        self._security = security or ClientSecurity()
        self._fetch_bytes = fetch_bytes
        self._patience_s = patience_s
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._leaders: dict[tuple[str, int], int] = {}
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
        """Partitions of the topics that exist; a topic that does not exist is left out, and is not created."""
        return self._until_answered(f"the metadata of {', '.join(topics)}", lambda: self._look_up(topics))

    def ranges(self, topics: Sequence[str]) -> tuple[LogRange, ...]:
        """What each partition holds now: log start offset to the end that a consumer may read (high watermark)."""
        names = [(topic, number) for topic, numbers in self.partitions(topics).items() for number in numbers]
        starts = self._offsets(names, _EARLIEST)
        ends = self._offsets(names, _LATEST)
        return tuple(
            LogRange(topic=topic, partition=partition, start=starts[topic, partition], end=ends[topic, partition])
            for topic, partition in sorted(names)
        )

    def cleaning(self, topics: Sequence[str]) -> dict[str, CleaningConfig]:
        """How each topic is cleaned; a topic whose configuration this user may not see is left out."""
        kind = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(
            resources=[
                kind(resource_type=_TOPIC, resource_name=topic, configuration_keys=list(CLEANING_SETTINGS))
                for topic in topics
            ],
            include_synonyms=False,
            include_documentation=False,
        )
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
        """Whether a coordinator of the logs whose `ranges` were asked for has a setting by which 3.8 and 3.9 start
        their new group coordinator; None if this user may not see it. Defaults do not count: those of 4.x are gone
        when the node runs 3.9.
        """
        kind = DescribeConfigsRequest.DescribeConfigsResource
        may_see = True
        for node in sorted(set(self._leaders.values())):
            resource = kind(resource_type=_BROKER, resource_name=str(node), configuration_keys=[_PROTOCOLS, _ENABLE])
            request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
            answer = self._until_answered(f"the settings of broker {node}", partial(self._ask, request, node))
            may_see = may_see and all(result.error_code == 0 for result in answer.results)
            settings = {
                config.name: config.value or ""
                for result in answer.results
                for config in result.configs or ()
                if config.config_source != _DEFAULT
            }
            protocols = {name.strip().lower() for name in settings.get(_PROTOCOLS, "").split(",")}
            if "consumer" in protocols or settings.get(_ENABLE) == "true":
                return True
        return False if may_see else None

    def read(self, what: LogRange) -> Iterator[FetchedBytes]:
        """The batches that hold the range's offsets, in order; the first and the last may reach beyond it.

        Records that retention removed meanwhile are passed over: a coordinator would not find them either.
        """
        offset = what.start
        while offset < what.end:
            fetched, offset = self._until_answered(
                f"{what.topic}-{what.partition} at offset {offset}", partial(self._fetch, what, offset)
            )
            if fetched is not None:
                yield fetched

    # --- one request each; an error that may pass is raised as TransientError ---

    def _look_up(self, topics: Sequence[str]) -> dict[str, tuple[int, ...]]:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
            max_version=9,  # newer ones ask by topic id
        )
        answer = self._ask(request)
        self._addresses = {broker.node_id: _address(broker.host, broker.port) for broker in answer.brokers}
        found: dict[str, tuple[int, ...]] = {}
        for topic in answer.topics:
            if topic.error_code == errors.UnknownTopicOrPartitionError.errno:
                continue
            _raise_for(topic.error_code)
            for partition in topic.partitions:
                _raise_for(partition.error_code, but=errors.ReplicaNotAvailableError.errno)
                self._leaders[topic.name, partition.partition_index] = partition.leader_id
            found[topic.name] = tuple(sorted(partition.partition_index for partition in topic.partitions))
        return found

    def _offsets(self, names: Iterable[tuple[str, int]], timestamp: int) -> dict[tuple[str, int], int]:
        wanted = set(names)
        found: dict[tuple[str, int], int] = {}

        def look() -> None:
            by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
            for topic, partition in sorted(wanted - found.keys()):
                by_leader[self._leaders[topic, partition]][topic].append(partition)
            for leader, topics in by_leader.items():
                for topic in self._ask(_list_offsets(topics, timestamp), leader).topics:
                    for partition in topic.partitions:
                        _raise_for(partition.error_code)
                        found[topic.name, partition.partition_index] = partition.offset

        self._until_answered("the offsets of the coordinator logs", look, topics=sorted({t for t, _ in wanted}))
        return found

    def _fetch(self, what: LogRange, offset: int) -> tuple[FetchedBytes | None, int]:
        """One Fetch: the bytes (None if the log now starts later) and the offset to go on from."""
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
            isolation_level=_READ_UNCOMMITTED,
            session_id=0,
            session_epoch=-1,  # no fetch session (KIP-227): each request stands for itself
            topics=[topic],
            forgotten_topics_data=[],
            min_version=4,
            max_version=_LAST_VERSION_BY_NAME,
        )
        answer = self._ask(request, self._leader(what))
        _raise_for(answer.error_code)
        partition = answer.responses[0].partitions[0]
        if partition.error_code == errors.OffsetOutOfRangeError.errno:
            start = self._offsets([(what.topic, what.partition)], _EARLIEST)[what.topic, what.partition]
            if start <= offset:
                raise FatalError(
                    f"{what.topic}-{what.partition} no longer has offset {offset}, which it had when the scan began.",
                    remedy="Scan again; if it was truncated, look for an unclean leader election.",
                )
            return None, start
        _raise_for(partition.error_code)
        data = bytes(partition.records or b"")
        last = _last_offset(data)
        if last is None or last < offset:
            # Nothing whole came: the follower that became leader has not got there yet. Asked again as other errors.
            raise TransientError("OFFSET_NOT_AVAILABLE.")
        return FetchedBytes(topic=what.topic, partition=what.partition, fetch_offset=offset, data=data), last + 1

    def _leader(self, what: LogRange) -> int:
        if (what.topic, what.partition) not in self._leaders:
            self._look_up([what.topic])
        try:
            return self._leaders[what.topic, what.partition]
        except KeyError:
            raise UserError(
                f"Partition {what.topic}-{what.partition} does not exist.", remedy="Scan again with what there is now."
            ) from None

    def _ask(self, request: Any, node_id: int | None = None) -> Any:
        """The answer of one broker; of any, in `timeout_s` for all of them together, where none is named."""
        if node_id is not None:
            if node_id not in self._addresses:
                raise TransientError("LEADER_NOT_AVAILABLE.")
            return self._connection(self._addresses[node_id]).ask(request, timeout_s=self._timeout_s)
        addresses = dict.fromkeys([*self._addresses.values(), *self._servers.split(",")])
        last = TransientError("There is no broker to ask.")
        for address in addresses:
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
                f"{self._servers} gave no answer about {what} for {self._patience_s:g} s: {error.sentence}",
                remedy="Check that every partition has a leader, then scan again.",
            ) from error

    def _refresh(self, topics: Sequence[str]) -> None:
        """Leaders may have moved; if nobody answers now, the next attempt will say so."""
        with suppress(TransientError):
            self._look_up(topics or sorted({topic for topic, _ in self._leaders}))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _last_offset(data: bytes) -> int | None:
    """Of the last whole batch, None without one; whole by its length alone, for decoding looks at the rest.

    Raises LogFormatError if the data begins with what can be no batch.
    """
    header = last_header(data)
    if header is None:
        next(batches(data), None)
    return None if header is None else header.last_offset


def _list_offsets(topics: Mapping[str, Sequence[int]], timestamp: int) -> ListOffsetsRequest:
    kind = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=_READ_UNCOMMITTED,
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


def _raise_for(code: int, *, but: int = 0) -> None:
    if code in (0, but):
        return
    name = error_name(code)
    if name in AUTHORIZATION_ERRORS:
        raise FatalError(
            f"The cluster does not let this user read the coordinator logs: {name}.",
            remedy="Allow DESCRIBE and READ on the coordinator logs to the user of the Connection.",
        )
    raise TransientError(f"{name}.")
