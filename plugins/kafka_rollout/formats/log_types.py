"""Types of logs: record batches of all formats (v0, v1, v2), positions and kinds of records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from kafka_rollout.base.errors import FatalError, TransientError

Bytes = bytes | memoryview

CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
NO_TIMESTAMP = -1


class LogFormatError(FatalError):
    """Bytes of a log that cannot be decoded: they are corrupt, or in an unsupported format or codec."""


class UnreadableOffsetError(LogFormatError):
    """A live log returns no record batch at `offset`, so the rest of the range cannot be read."""

    def __init__(self, sentence: str, *, remedy: str = "", offset: int = -1) -> None:
        super().__init__(sentence, remedy=remedy)
        self.offset = offset


class Codec(IntEnum):
    """Ids of CompressionType: the lowest three bits of the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatch:
    """One complete batch.

    Each message of the old formats is one batch with record count −1, and of its attributes only codec and timestamp
    type are kept. The base offset of a compressed message is 0 until it is decompressed. Timestamps: epoch ms; −1:
    none. Producer id, epoch and sequence: −1 without an idempotent producer (KIP-98).
    """

    position: int
    """Its first byte in the buffer."""
    magic: int
    base_offset: int
    last_offset: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    record_count: int
    data: memoryview
    """All bytes with the header."""
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def is_control(self) -> bool:
        """Whether this is a transaction marker. Coordinators skip its records."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def has_log_append_time(self) -> bool:
        """Whether max_timestamp, the time of the broker, applies to all records."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def codec(self) -> int:
        """The number of a Codec, or an unknown number."""
        return self.attributes & CODEC_MASK

    @property
    def size(self) -> int:
        return len(self.data)

    def __str__(self) -> str:
        return f"batch at offset {self.base_offset}" if self.magic == 2 else f"message at offset {self.last_offset}"


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """Positions of key and value of one record in the decompressed payload. A length of −1 is a null."""

    offset: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int
    timestamp: int


def corrupt(batch: RecordBatch, what: str) -> LogFormatError:
    return LogFormatError(f"The {batch} is corrupt: it has {what}.")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LogRange:
    """Offsets start <= offset < end of one partition. Raises TransientError for a range that ends before it begins."""

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise TransientError(
                f"{self.topic}-{self.partition} cannot begin at offset {self.start} and end at {self.end}: it changed "
                "while it was read.",
                remedy="Repeat the command.",
            )


NO_BROKER = -1


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ReplicaRange(LogRange):
    """Offsets of one replica. Each broker cleans its own replica, so replicas with the same end have other records."""

    copy: int = 0
    """0: the leader's, or of copies in directories the first one; then in the order of the replicas."""
    broker: int = NO_BROKER
    """The broker that has it; NO_BROKER: it was read from a directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKind:
    """Records of one partition with the same key version and value version."""

    topic: str
    partition: int
    key_version: int | None
    """None: the key is null or too short to have a version."""
    value_version: int | None
    """None: tombstones; −1: the value is too short to have a version."""
    count: int
    first_offset: int
    live: int | None = None
    """Number of current records (newest of their key); None: not determined."""
    replicas: tuple[str, ...] = ()
    """The replicas that have them, such as `broker 2`; empty if all have them. Counts are those of the replica with
    the most."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> dict[str, Any]:
        """An unknown `live` and empty `replicas` are left out of the JSON form, for adapters that use pydantic."""
        return {**handler(source), "serialization": {"type": "function-wrap", "function": _without_defaults}}


def _without_defaults(kind: RecordKind, serialize: Any) -> dict[str, Any]:
    left_out: dict[str, tuple[object, ...]] = {"live": (None,), "replicas": ((), [])}
    return {name: value for name, value in serialize(kind).items() if value not in left_out.get(name, ())}
