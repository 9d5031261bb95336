"""Raw record batches of live partitions, by Fetch requests: no group, nothing written, read uncommitted.

A coordinator loads aborted records too, so READ_UNCOMMITTED is what it sees. kafka-python's consumer would decode
every record; its protocol classes and connections alone give the batches as they lie in the log.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kafka import errors
from kafka.net.compat import KafkaNetClient
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_rollout.domain.coordinator_logs.cleaning import CLEANING_SETTINGS, CleaningConfig
from kafka_rollout.domain.coordinator_logs.scan import LogRange
from kafka_rollout.domain.model.errors import FatalError, TransientError, UserError
from kafka_rollout.wire.record_batch import batches

_LATEST, _EARLIEST = -1, -2  # ListOffsets' special timestamps
_READ_UNCOMMITTED = 0
_TOPIC, _TOPICS_OWN = 2, 1  # DescribeConfigs' resource type, and its source of what was set for the topic itself
_BROKER, _DEFAULT = 4, 5
_PROTOCOLS, _ENABLE = "group.coordinator.rebalance.protocols", "group.coordinator.new.enable"
_LAST_VERSION_BY_NAME = 12  # Fetch names topics up to version 12, by id after it (KIP-516)
_FETCH_BYTES = 16 * 1024 * 1024
_MESSAGE_BYTES = 256 * 1024 * 1024  # a single batch larger than a fetch's limit is sent whole (KIP-74)
_PATIENCE_S = 60.0  # a broker's restart and the election of its partitions' leaders fit into it
_PAUSE_S = 0.5
_LENGTH_FROM, _LENGTH_END = 8, 12  # of a batch's length, which counts what follows it
_FATAL = (errors.AuthorizationError, errors.SaslAuthenticationFailedError, errors.UnsupportedVersionError)

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBytes:
    """Record batches as they lie in the log; the last one may be cut off, and is fetched again as a whole."""

    topic: str
    partition: int
    fetch_offset: int
    data: bytes


class FetchSource:
    """One connection to a cluster; a context manager.

    `client` are kafka-python's connection settings (security included). Leader changes and lost connections are
    tried again for `patience_s` at each offset, then raise TransientError naming the partition.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        client: Mapping[str, Any] | None = None,
        *,
        fetch_bytes: int = _FETCH_BYTES,
        patience_s: float = _PATIENCE_S,
        timeout_s: float = 20,
    ) -> None:
        self._servers = bootstrap_servers
        self._fetch_bytes = fetch_bytes
        self._patience_s = patience_s
        self._leaders: dict[tuple[str, int], int] = {}
        settings = {
            "client_id": "kafka-rollout-scan",
            "receive_message_max_bytes": _MESSAGE_BYTES,
            **(client or {}),
            "bootstrap_servers": bootstrap_servers.split(","),
        }
        try:
            self._net = KafkaNetClient(**settings)
            self._manager = self._net._manager
            self._manager.bootstrap(timeout_s * 1000)
        except _FATAL as error:
            raise self._refused(error) from error
        except (errors.KafkaError, OSError) as error:
            raise TransientError(
                f"No broker of {bootstrap_servers} answered within {timeout_s:g} s.",
                remedy="Check the addresses and that the brokers are running.",
            ) from error

    def __enter__(self) -> FetchSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._net.close()

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

    # --- one request each; an error that may pass is raised as kafka-python's own ---

    def _look_up(self, topics: Sequence[str]) -> dict[str, tuple[int, ...]]:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
            max_version=9,  # newer ones ask by topic id
        )
        answer = self._ask(request)
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
            raise errors.OffsetNotAvailableError
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
        async def ask() -> Any:
            return await self._manager.send(request, node_id=node_id)

        return self._manager.run(ask)

    def _until_answered(self, what: str, ask: Callable[[], Answer], *, topics: Sequence[str] = ()) -> Answer:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return ask()
            except _FATAL as error:
                raise self._refused(error) from error
            except (errors.KafkaError, OSError) as error:
                if time.monotonic() > deadline:
                    raise TransientError(
                        f"{self._servers} gave no answer about {what} for {self._patience_s:g} s: {_text(error)}.",
                        remedy="Check that every partition has a leader, then scan again.",
                    ) from error
            time.sleep(_PAUSE_S)
            self._refresh(topics)

    def _refresh(self, topics: Sequence[str]) -> None:
        """Leaders may have moved; if nobody answers now, the next attempt will say so."""
        try:
            self._look_up(topics or sorted({topic for topic, _ in self._leaders}))
        except (errors.KafkaError, OSError):
            return

    def _refused(self, error: Exception) -> FatalError:
        return FatalError(
            f"{self._servers} refused the scan: {_text(error)}.",
            remedy="Check the credentials; the scan needs DESCRIBE and READ on the coordinator logs.",
        )


def _last_offset(data: bytes) -> int | None:
    """Of the last whole batch, None without one; whole by its length alone, for decoding looks at the rest.

    Raises LogFormatError if the data begins with what can be no batch.
    """
    begin = end = 0
    while end + _LENGTH_END <= len(data):
        after = end + _LENGTH_END + int.from_bytes(data[end + _LENGTH_FROM : end + _LENGTH_END], signed=True)
        if not end + _LENGTH_END < after <= len(data):
            break
        begin, end = end, after
    batch = next(batches(data[begin:end] if end else data), None)
    return None if batch is None else batch.last_offset


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


def _text(error: Exception) -> str:
    return f"{type(error).__name__} {error}".rstrip().rstrip(".")


def _raise_for(code: int, *, but: int = 0) -> None:
    if code not in (0, but):
        raise errors.for_code(code)
