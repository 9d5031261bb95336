"""The topics in a response to Metadata, decoded without the fields that are not used.

kafka-python needs one object with eight fields for each partition, and three lists. Most partitions of a large cluster
have the replicas of another one, so equal lists are one tuple here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from struct import Struct
from typing import Any
from uuid import UUID

from kafka.protocol.metadata import MetadataRequest

VERSION = 12  # of every release in KRaft mode
_INT, _PARTITION = Struct(">i"), Struct(">hiii")
_Nodes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic. `partitions`: number, leader, replicas and ISR of each, by number."""

    error_code: int
    name: str
    topic_id: UUID
    partitions: tuple[tuple[int, int, _Nodes, _Nodes], ...]


def describe_topics(names: Collection[str] | None) -> Any:
    """Metadata of these topics; None: of all."""
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=None if names is None else [topic(name=name) for name in sorted(names)],
        allow_auto_topic_creation=False,
        min_version=VERSION,
        max_version=VERSION,
    )


def decode_topics(response: memoryview) -> list[TopicMetadata]:
    """Decode the body of a response in VERSION. Raises ValueError, IndexError or struct.error for other bytes."""
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
