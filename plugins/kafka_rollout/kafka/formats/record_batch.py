"""Record batches of Fetch responses and segment files.

Format v2: KIP-98, org.apache.kafka.common.record.DefaultRecordBatch. Messages of v0 and v1 (message_sets) are returned
as batches too. A batch is decoded, or an error names its offset. CRC32C and decompressors are passed in as `Codecs`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from kafka_rollout.kafka.formats import message_sets
from kafka_rollout.kafka.formats.batch_headers import LEAST_LENGTH, MAGIC_AT, PREFIX
from kafka_rollout.kafka.formats.log_types import (
    Batch,
    Bytes,
    Codec,
    Codecs,
    LogFormatError,
    RecordSpan,
    corrupt,
    decompressed,
)

# baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta, baseTimestamp, maxTimestamp,
# producerId, producerEpoch, baseSequence, recordsCount
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM = 21  # the CRC covers everything from the attributes to the end of the batch
_VARINT_BYTES = 5
_VARLONG_BYTES = 10


def batches(buffer: Bytes) -> Iterator[Batch]:
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
            yield message_sets.message(view, position, base_offset, length)
        position += size


def _batch(view: memoryview, position: int, size: int) -> Batch:
    base_offset, _, _, magic, crc, attributes, last_delta, base_timestamp, max_timestamp, *producer, count = (
        _HEADER.unpack_from(view, position)
    )
    producer_id, producer_epoch, base_sequence = producer
    if last_delta < 0 or count < 0:
        raise LogFormatError(
            f"The batch at offset {base_offset} has an impossible last offset delta {last_delta} or record count "
            f"{count}."
        )
    return Batch(
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


def check_crc(batch: Batch, codecs: Codecs) -> None:
    """Raise LogFormatError if the CRC is wrong. Before this check, the fields of the header are not reliable."""
    found = codecs.crc32c(batch.data[_CRC_FROM:]) if batch.magic == 2 else message_sets.checksum(batch)
    if found != batch.crc:
        raise LogFormatError(f"The {batch} is corrupt: its CRC is {found:08x} and should be {batch.crc:08x}.")


def payload(batch: Batch, codecs: Codecs) -> bytes:
    """Return the decompressed records of a batch whose CRC was checked."""
    if batch.magic != 2:
        return message_sets.payload(batch, codecs)
    body = batch.data[_HEADER.size :]
    return bytes(body) if batch.codec == Codec.NONE else decompressed(batch, body, codecs)


def records(batch: Batch, data: bytes) -> Iterator[RecordSpan]:
    """Yield the records of a payload, without their headers. Raises LogFormatError if they do not fill it exactly."""
    return _records(batch, data) if batch.magic == 2 else message_sets.records(batch, data)


def readable(buffer: Bytes, codecs: Codecs, *, start: int, end: int) -> Iterator[tuple[Batch, bytes]]:
    """Yield the complete batches with start <= offset < end, and their payloads.

    Unreadable batches are skipped: another reader of the log reports them.
    """
    try:
        for batch in batches(buffer):
            if batch.last_offset < start or batch.base_offset >= end:
                continue
            try:
                check_crc(batch, codecs)
                data = payload(batch, codecs)
            except LogFormatError:
                continue
            yield batch, data
    except LogFormatError:
        return  # no batch begins here


def _records(batch: Batch, data: bytes) -> Iterator[RecordSpan]:
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
