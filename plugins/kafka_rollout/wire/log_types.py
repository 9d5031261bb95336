"""What record batches of all formats (v0, v1, v2) have in common: codecs, a batch, and a record's place in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from kafka_rollout.domain.model.errors import FatalError

Bytes = bytes | memoryview

CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
NO_TIMESTAMP = -1


class LogFormatError(FatalError):
    """The bytes of a log could not be decoded: corrupt, or in a format or codec that is not read."""


class Codec(IntEnum):
    """CompressionType's ids, the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Codecs:
    """What decoding needs beyond the standard library; `decompress` may raise anything on bad input."""

    crc32c: Callable[[Bytes], int]
    decompress: Mapping[Codec, Callable[[Bytes], bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One complete batch; `data` is the whole of it, header included. `position` is where it begins in the buffer.

    A message of the old formats is a batch of its own; if it is compressed, what it wraps is known only when it is
    unpacked: its base offset then is 0, and its record count always −1. Of its attributes only codec and kind of
    timestamp are kept. Timestamps in epoch milliseconds, −1 if there is none.
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

    @property
    def is_control(self) -> bool:
        """A transaction marker: the coordinators skip it, it holds no coordinator record."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def has_log_append_time(self) -> bool:
        """The broker's clock, max_timestamp, holds for all its records."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def codec(self) -> int:
        """A Codec's number, or one that Kafka does not have."""
        return self.attributes & CODEC_MASK

    @property
    def size(self) -> int:
        return len(self.data)

    def __str__(self) -> str:
        return f"batch at offset {self.base_offset}" if self.magic == 2 else f"message at offset {self.last_offset}"


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """Where one record's key and value lie in its batch's (decompressed) payload; a length of −1 is a null."""

    offset: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int
    timestamp: int


def corrupt(batch: Batch, what: str) -> LogFormatError:
    return LogFormatError(f"The {batch} is corrupt: it has {what}.")


def decompressed(batch: Batch, body: Bytes, codecs: Codecs) -> bytes:
    """`body` unpacked by the batch's codec; raises LogFormatError naming the batch."""
    try:
        codec = Codec(batch.codec)
        decompress = codecs.decompress[codec]
    except (KeyError, ValueError):
        raise LogFormatError(f"The {batch} is compressed with codec {batch.codec}, which is not read.") from None
    try:
        return bytes(decompress(body))
    except Exception as error:
        raise LogFormatError(f"The {batch} does not decompress as {codec.name.lower()}: {error}.") from error
