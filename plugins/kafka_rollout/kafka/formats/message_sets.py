"""Message sets: the formats v0 and v1 from before Kafka 0.11 (LegacyRecord, AbstractLegacyRecordBatch).

A log in these formats is a sequence of messages with offsets. A compressed message contains a message set and has the
offset of its last message. Only record_batch uses this module, and returns these messages as batches.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from kafka_rollout.kafka.formats.batch_headers import LEAST_LENGTH, MAGIC_AT, PREFIX
from kafka_rollout.kafka.formats.log_types import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Batch,
    Codec,
    Codecs,
    LogFormatError,
    RecordSpan,
    corrupt,
    decompressed,
)

_MINIMUM = LEAST_LENGTH[:2]  # by magic: crc, magic, attributes, from v1 on the timestamp, key length, value length
_CRC, _LENGTH, _TIMESTAMP = struct.Struct(">I"), struct.Struct(">i"), struct.Struct(">q")
_ATTRIBUTES_AT, _TIMESTAMP_AT = 17, 18  # from the beginning of the entry
_KEY_AT = (18, 26)  # by magic
_U32 = 0xFFFFFFFF


def message(view: memoryview, position: int, offset: int, size: int) -> Batch:
    """Return the message at `position`. `size`: number of bytes after the prefix, at least _MINIMUM of the format."""
    magic = view[position + MAGIC_AT]
    attributes = view[position + _ATTRIBUTES_AT] & (CODEC_MASK | (LOG_APPEND_TIME if magic else 0))
    timestamp = _TIMESTAMP.unpack_from(view, position + _TIMESTAMP_AT)[0] if magic else NO_TIMESTAMP
    return Batch(
        position=position,
        magic=magic,
        base_offset=0 if attributes & CODEC_MASK else offset,
        last_offset=offset,
        crc=_CRC.unpack_from(view, position + PREFIX.size)[0],
        attributes=attributes,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        record_count=-1,
        data=view[position : position + PREFIX.size + size],
    )


def checksum(batch: Batch) -> int:
    """Return the CRC32 (not CRC32C) of all bytes from the magic byte on."""
    return zlib.crc32(batch.data[MAGIC_AT:])


def payload(batch: Batch, codecs: Codecs) -> bytes:
    """Return a message set: the message itself, or the decompressed messages in it."""
    whole = bytes(batch.data)
    if batch.codec == Codec.NONE:
        return whole
    if batch.codec == Codec.ZSTD:
        raise LogFormatError(f"The {batch} is compressed with zstd, which the format v{batch.magic} does not have.")
    span = _span(batch, whole, 0, len(whole), batch.last_offset)
    if span.value_length < 0:
        raise corrupt(batch, "a compressed value that is null")
    body = whole[span.value_at : span.value_at + span.value_length]
    if batch.codec == Codec.LZ4 and batch.magic == 0:
        body = _with_right_header_checksum(body)
    return decompressed(batch, body, codecs)


def records(batch: Batch, data: bytes) -> Iterator[RecordSpan]:
    """Yield the messages of a message set. An incomplete message at the end is ignored, as Kafka does."""
    entries = list(_entries(batch, data))
    if not entries:
        raise corrupt(batch, "no message in its compressed value")
    base = 0
    if batch.codec != Codec.NONE and batch.magic == 1 and batch.last_offset:
        # In v1, inner offsets count from 0. With the outer offset 0 (old librdkafka), the inner offsets are absolute.
        base = batch.last_offset - entries[-1][2]
        if base < 0:
            raise corrupt(batch, f"a wrapped message at offset {entries[-1][2]}")
    for start, end, offset in entries:
        if data[start + _ATTRIBUTES_AT] & CODEC_MASK and batch.codec != Codec.NONE:
            raise corrupt(batch, "a compressed message within a compressed message")
        yield _span(batch, data, start, end, base + offset)


def _entries(batch: Batch, data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, offset) of each complete entry."""
    start = 0
    while start + PREFIX.size <= len(data):
        offset, size = PREFIX.unpack_from(data, start)
        end = start + PREFIX.size + size
        if size < _MINIMUM[0]:
            raise corrupt(batch, f"a wrapped message of {size} bytes")
        if end > len(data):
            return
        magic = data[start + MAGIC_AT]
        if magic >= len(_MINIMUM) or size < _MINIMUM[magic]:
            raise corrupt(batch, f"a wrapped message of {size} bytes with magic {magic}")
        yield start, end, offset
        start = end


def _span(batch: Batch, data: bytes, start: int, end: int, offset: int) -> RecordSpan:
    magic = data[start + MAGIC_AT]
    key_at, key_length = _sized(batch, data, start + _KEY_AT[magic], end)
    value_at, value_length = _sized(batch, data, key_at + max(0, key_length), end)
    if magic == 0:
        timestamp = NO_TIMESTAMP
    elif batch.has_log_append_time:
        timestamp = batch.max_timestamp
    else:
        (timestamp,) = _TIMESTAMP.unpack_from(data, start + _TIMESTAMP_AT)
    return RecordSpan(offset, key_at, key_length, value_at, value_length, timestamp)


def _sized(batch: Batch, data: bytes, at: int, end: int) -> tuple[int, int]:
    """Where sized bytes begin, and their length; any negative length is a null."""
    if at + _LENGTH.size > end:
        raise corrupt(batch, "a message whose key reaches beyond it")
    length = max(-1, _LENGTH.unpack_from(data, at)[0])
    if at + _LENGTH.size + length > end:
        raise corrupt(batch, "a message whose key or value reaches beyond it")
    return at + _LENGTH.size, length


def _with_right_header_checksum(frame: bytes) -> bytes:
    """Kafka's v0 writers took the frame's magic into the header checksum (KAFKA-3160), so readers do not look at it.

    LZ4 frame: magic (4), FLG, BD, content size (8, if FLG has bit 3), HC.
    """
    if len(frame) < 7:
        return frame
    at = 6 + (8 if frame[4] & 0x08 else 0)
    return frame[:at] + bytes([_xxh32_of_few(frame[4:at]) >> 8 & 0xFF]) + frame[at + 1 :]


def _xxh32_of_few(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes."""
    prime2, prime3, prime4, prime5, prime1 = 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0x9E3779B1
    value, at = prime5 + len(data), 0
    while at + 4 <= len(data):
        value = value + int.from_bytes(data[at : at + 4], "little") * prime3 & _U32
        value = (value << 17 | value >> 15) * prime4 & _U32
        at += 4
    for byte in data[at:]:
        value = value + byte * prime5 & _U32
        value = (value << 11 | value >> 21) * prime1 & _U32
    value = (value ^ value >> 15) * prime2 & _U32
    value = (value ^ value >> 13) * prime3 & _U32
    return value ^ value >> 16
