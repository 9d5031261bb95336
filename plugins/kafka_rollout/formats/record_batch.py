"""Record batches of Fetch responses and segment files, in the formats v0 to v2.

Format v2: KIP-98, org.apache.kafka.common.record.DefaultRecordBatch. Formats v0 and v1 from before Kafka 0.11
(LegacyRecord, AbstractLegacyRecordBatch): the log is a sequence of messages with offsets, each of which is a batch
here. A compressed message contains a message set and has the offset of its last message. A batch is decoded, or an
error names its offset.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from kafka_rollout.formats.codecs import crc32c, decompressed
from kafka_rollout.formats.log_types import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Bytes,
    Codec,
    LogFormatError,
    RecordBatch,
    RecordSpan,
    corrupt,
)

LEAST_LENGTH = (14, 22, 49)  # by magic: the least number of bytes after the length field
MAGIC_AT = 16  # the same in all formats
PREFIX = struct.Struct(">qi")  # base offset (v0, v1: offset), length of the rest
_LENGTH_AT, _EPOCH_AT, _LAST_DELTA_AT = 8, 12, 23
_HEADER_BYTES = _LAST_DELTA_AT + 4
# baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta, baseTimestamp, maxTimestamp,
# producerId, producerEpoch, baseSequence, recordsCount
HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM = 21  # the CRC covers everything from the attributes to the end of the batch
_VARINT_BYTES = 5
_VARLONG_BYTES = 10
# messages of v0 and v1
_MINIMUM = LEAST_LENGTH[:2]  # by magic: crc, magic, attributes, from v1 on the timestamp, key length, value length
_CRC, _LENGTH, _TIMESTAMP = struct.Struct(">I"), struct.Struct(">i"), struct.Struct(">q")
_ATTRIBUTES_AT, _TIMESTAMP_AT = 17, 18  # from the beginning of the entry
_KEY_AT = (18, 26)  # by magic
_U32 = 0xFFFFFFFF


def batches(buffer: Bytes) -> Iterator[RecordBatch]:
    """Yield the complete batches of a buffer, in order.

    An incomplete last batch ends the iteration, because Fetch responses have a byte limit. Raises LogFormatError for an
    impossible header.
    """
    view = memoryview(buffer)
    position, end = 0, len(view)
    while end - position > MAGIC_AT:
        base_offset, length = PREFIX.unpack_from(view, position)
        magic = view[position + MAGIC_AT]
        if magic >= len(LEAST_LENGTH) or length < LEAST_LENGTH[magic] or base_offset < 0:
            raise LogFormatError(
                f"No record batch begins at byte {position} (base offset {base_offset}, length {length}, "
                f"magic {magic})."
            )
        size = PREFIX.size + length
        if size > end - position:
            return
        if magic == 2:
            yield _batch(view, position, size)
        else:
            yield _message(view, position, base_offset, length)
        position += size


def _batch(view: memoryview, position: int, size: int) -> RecordBatch:
    base_offset, _, _, magic, crc, attributes, last_delta, base_timestamp, max_timestamp, *producer, count = (
        HEADER.unpack_from(view, position)
    )
    producer_id, producer_epoch, base_sequence = producer
    if last_delta < 0 or count < 0:
        raise LogFormatError(
            f"The batch at offset {base_offset} has an impossible last offset delta {last_delta} or record count "
            f"{count}."
        )
    return RecordBatch(
        position=position,
        magic=magic,
        base_offset=base_offset,
        last_offset=base_offset + last_delta,
        crc=crc,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=count,
        data=view[position : position + size],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def check_crc(batch: RecordBatch) -> None:
    """Raise LogFormatError if the CRC is wrong. Before this check, the fields of the header are not reliable."""
    found = crc32c(batch.data[_CRC_FROM:]) if batch.magic == 2 else zlib.crc32(batch.data[MAGIC_AT:])
    if found != batch.crc:
        raise LogFormatError(f"The {batch} is corrupt: its CRC is {found:08x} and should be {batch.crc:08x}.")


def payload(batch: RecordBatch) -> bytes:
    """Return the decompressed records of a batch whose CRC was checked."""
    if batch.magic != 2:
        return _message_set(batch)
    body = batch.data[HEADER.size :]
    return bytes(body) if batch.codec == Codec.NONE else decompressed(batch, body)


def records(batch: RecordBatch, data: bytes) -> Iterator[RecordSpan]:
    """Yield the records of a payload, without their headers. Raises LogFormatError if they do not fill it exactly."""
    return _records(batch, data) if batch.magic == 2 else _messages(batch, data)


def readable(buffer: Bytes, *, start: int, end: int) -> Iterator[tuple[RecordBatch, bytes]]:
    """Yield the complete batches with start <= offset < end, and their payloads.

    Unreadable batches are skipped: another reader of the log reports them.
    """
    try:
        for batch in batches(buffer):
            if batch.last_offset < start or batch.base_offset >= end:
                continue
            try:
                check_crc(batch)
                data = payload(batch)
            except LogFormatError:
                continue
            yield batch, data
    except LogFormatError:
        return  # no batch begins here


def _records(batch: RecordBatch, data: bytes) -> Iterator[RecordSpan]:
    position = 0
    try:
        for _ in range(batch.record_count):
            length, at = _varint(data, position, _VARINT_BYTES)
            end = at + length
            if length < 0 or end > len(data):
                raise corrupt(batch, "a record that reaches beyond the batch")
            timestamp_delta, at = _varint(data, at + 1, _VARLONG_BYTES)  # after the attributes: one unused byte
            offset_delta, at = _varint(data, at, _VARINT_BYTES)
            key_length, key_at = _varint(data, at, _VARINT_BYTES)
            value_length, value_at = _varint(data, key_at + max(0, key_length), _VARINT_BYTES)
            if key_length < -1 or value_length < -1 or value_at + max(0, value_length) > end or offset_delta < 0:
                raise corrupt(batch, "a record whose key or value reaches beyond it")
            yield RecordSpan(
                batch.base_offset + offset_delta,
                key_at,
                key_length,
                value_at,
                value_length,
                batch.max_timestamp if batch.has_log_append_time else batch.base_timestamp + timestamp_delta,
            )
            position = end
    except IndexError:
        raise corrupt(batch, "fewer bytes than its records need") from None
    if position != len(data):
        raise corrupt(batch, "more bytes than its records")


def _varint(data: bytes, position: int, most: int) -> tuple[int, int]:
    """Return a zigzag varint of at most `most` bytes and the position after it. Raises IndexError at the end."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    for count in range(1, most):
        byte = data[position + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + count + 1
    raise IndexError("varint too long")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """The header of a batch at byte `position` of a file."""

    position: int
    magic: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    """−1 if the format has none."""


def header_at(block: Bytes, at: int, position: int) -> BatchHeader | None:
    """Return the header at byte `at` of a block, `position` in the file; None if these bytes cannot begin a batch."""
    if at + MAGIC_AT >= len(block):
        return None
    base_offset, length = PREFIX.unpack_from(block, at)
    magic = block[at + MAGIC_AT]
    if base_offset < 0 or magic >= len(LEAST_LENGTH) or length < LEAST_LENGTH[magic]:
        return None
    delta, leader_epoch = 0, -1
    if magic == 2:
        delta = int.from_bytes(block[at + _LAST_DELTA_AT : at + _HEADER_BYTES], signed=True)
        leader_epoch = int.from_bytes(block[at + _EPOCH_AT : at + MAGIC_AT], signed=True)
    if delta < 0:
        return None
    return BatchHeader(
        position=position,
        magic=magic,
        size=PREFIX.size + length,
        base_offset=base_offset,
        last_offset=base_offset + delta,
        leader_epoch=leader_epoch,
    )


def last_header(data: Bytes) -> BatchHeader | None:
    """Return the header of the last complete batch; None without one. Only lengths are read before it.

    If the bytes there cannot begin a batch, every header is read, and the last one before such bytes is returned.
    """
    begin, end, size = -1, 0, len(data)
    while end + PREFIX.size <= size:
        length = int.from_bytes(data[end + _LENGTH_AT : end + PREFIX.size], signed=True)
        after = end + PREFIX.size + length
        if length <= 0 or after > size:
            break
        begin, end = end, after
    if begin < 0:
        return None
    return header_at(data, begin, begin) or _last_before_damage(data)


def _last_before_damage(data: Bytes) -> BatchHeader | None:
    last, position = None, 0
    while (header := header_at(data, position, position)) is not None and position + header.size <= len(data):
        last, position = header, position + header.size
    return last


def _message(view: memoryview, position: int, offset: int, size: int) -> RecordBatch:
    """Return the message at `position`. `size`: number of bytes after the prefix, at least _MINIMUM of the format."""
    magic = view[position + MAGIC_AT]
    attributes = view[position + _ATTRIBUTES_AT] & (CODEC_MASK | (LOG_APPEND_TIME if magic else 0))
    timestamp = _TIMESTAMP.unpack_from(view, position + _TIMESTAMP_AT)[0] if magic else NO_TIMESTAMP
    return RecordBatch(
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


def _message_set(batch: RecordBatch) -> bytes:
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
    return decompressed(batch, body)


def _messages(batch: RecordBatch, data: bytes) -> Iterator[RecordSpan]:
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


def _entries(batch: RecordBatch, data: bytes) -> Iterator[tuple[int, int, int]]:
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


def _span(batch: RecordBatch, data: bytes, start: int, end: int, offset: int) -> RecordSpan:
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


def _sized(batch: RecordBatch, data: bytes, at: int, end: int) -> tuple[int, int]:
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
