"""Types for record batches of all formats (v0, v1, v2): codecs, batches, positions of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from kafka_rollout.base.errors import FatalError

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
class Codecs:
    """Functions that are not in the standard library. `decompress` can raise any error for bad input."""

    crc32c: Callable[[Bytes], int]
    decompress: Mapping[Codec, Callable[[Bytes], bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One complete batch. `data`: all bytes with the header; `position`: its first byte in the buffer.

    Each message of the old formats is one batch with record count −1, and of its attributes only codec and timestamp
    type are kept. The base offset of a compressed message is 0 until it is decompressed. Timestamps: epoch ms; −1:
    none. Producer id, epoch and sequence: −1 without an idempotent producer (KIP-98).
    """

    position: int
    magic: int
    base_offset: int
    last_offset: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    record_count: int
    data: memoryview
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


def corrupt(batch: Batch, what: str) -> LogFormatError:
    return LogFormatError(f"The {batch} is corrupt: it has {what}.")


def decompressed(batch: Batch, body: Bytes, codecs: Codecs) -> bytes:
    """Return `body` decompressed with the codec of the batch. Raises LogFormatError, which names the batch."""
    try:
        codec = Codec(batch.codec)
        decompress = codecs.decompress[codec]
    except (KeyError, ValueError):
        raise LogFormatError(f"The {batch} is compressed with codec {batch.codec}, which is not supported.") from None
    try:
        return bytes(decompress(body))
    except Exception as error:
        raise LogFormatError(f"The {batch} does not decompress as {codec.name.lower()}: {error}.") from error
