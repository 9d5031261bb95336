"""Reads record batches (format v2, KIP-98) in one pass and fills the tables.

It accepts and refuses the same batches as formats.record_batch, which also provides the sentence for damaged batches.
"""

from __future__ import annotations

import numpy as np

from kafka_rollout_spark.kernel import compiled, inlined
from kafka_rollout_spark.kernel import tables as t
from kafka_rollout_spark.kernel.keys import DONE, FULL_KEYS, insert_queued
from kafka_rollout_spark.kernel.memory import (
    add,
    byte_at,
    call,
    crc32c,
    get_int64,
    int8_at,
    int16_at,
    int32_at,
    int64_at,
    set_int64,
    set_value,
    value,
)
from kafka_rollout_spark.kernel.noting import (
    FAR,
    FULL_CLASSES,
    FULL_PRODUCERS,
    class_of,
    count_in_class,
    note_key,
    note_producer,
    note_record,
    versions_code,
)
from kafka_rollout_spark.kernel.walking import FAILED

# Results of `scan`, in addition to the FULL_… codes of noting. The batch in question begins at POSITION
# and has SIZE bytes.
CUT_OFF = 20  # fewer bytes are left than a batch needs
NO_BATCH = 21  # no batch can begin here
LEGACY = 22  # a message of the formats v0 or v1 begins here
CORRUPT = 23  # wrong CRC, or wrong contents
OTHER_CODEC = 24  # Python must decompress the payload
MORE_SCRATCH = 25  # the payload needs more than SCRATCH_SIZE
_OPEN, _SKIP = 26, 27  # results of _open_batch for `scan`

_HEADER, _PREFIX, _SMALLEST, _LEGACY_SMALLEST = 61, 12, 49, 14
_ATTRIBUTES_AT = 21
_PRODUCER_AT = 43
_MAGIC_AT = 16
_CODEC_MASK, _TRANSACTIONAL, _CONTROL = 0x07, 0x10, 0x20
_LZ4, _ZSTD = 3, 4
_TOO_SMALL = -70  # zstd's error code for a result that is larger than the buffer
_LAST_ERROR = -200  # the error codes of both libraries, as signed numbers, are between this and −1
_GREATEST_OFFSET = 2**63 - 2**32
_NEAR = 2**31  # a record's offset exceeds its batch's base offset by less than this, so offset − BASE has 32 bits


@compiled
def batches_end(at: int, size: int) -> int:
    """Return the number of bytes at `at` that are whole batches, judged by length and magic only."""
    position = 0
    while size - position > _MAGIC_AT:
        length = int32_at(at + position + 8)
        if length < _LEGACY_SMALLEST or length > size - position - _PREFIX or byte_at(at + position + _MAGIC_AT) > 2:
            return position
        position += _PREFIX + length
    return position


@compiled
def scan(control: int) -> int:
    """Continue at POSITION (inside a batch if IN_BATCH) to the end of the chunk.

    Returns DONE, or the code of the reason why it stopped earlier.
    """
    while True:
        if not value(control, t.IN_BATCH):
            if value(control, t.POSITION) == value(control, t.DATA_SIZE):
                return DONE
            opened = _open_batch(control)
            if opened == _SKIP:
                add(control, t.POSITION, value(control, t.SIZE))
                continue
            if opened != _OPEN:
                return opened
            set_value(control, t.IN_BATCH, 1)
        if value(control, t.LIVE) and not 0 <= value(control, t.BATCH_OFFSET) - value(control, t.BASE) < _NEAR:
            return FAR
        status = _note_records(control) if value(control, t.DEEP) else _count_records(control)
        if status != DONE:
            return status
        set_value(control, t.IN_BATCH, 0)
        add(control, t.POSITION, value(control, t.SIZE))


@compiled
def _open_batch(control: int) -> int:
    """Check the batch at POSITION, find its payload, and count it."""
    position = value(control, t.POSITION)
    at, left = value(control, t.DATA_AT) + position, value(control, t.DATA_SIZE) - position
    set_value(control, t.SIZE, left)
    if left <= _MAGIC_AT:
        return CUT_OFF
    base, length, magic = int64_at(at), int32_at(at + 8), int8_at(at + _MAGIC_AT)
    smallest = _SMALLEST if magic == 2 else _LEGACY_SMALLEST
    if magic < 0 or magic > 2 or length < smallest or base < 0 or base > _GREATEST_OFFSET:
        return NO_BATCH
    if length > left - _PREFIX:
        return CUT_OFF
    size = length + _PREFIX
    set_value(control, t.SIZE, size)
    if magic != 2:
        return LEGACY
    crc = crc32c(value(control, t.CRC32C), at + _ATTRIBUTES_AT, size - _ATTRIBUTES_AT)
    if crc != (int32_at(at + 17) & 0xFFFFFFFF):
        return CORRUPT
    attributes, last, records = int16_at(at + _ATTRIBUTES_AT), base + int32_at(at + 23), int32_at(at + 57)
    if last < base or records < 0:
        return CORRUPT
    if last < value(control, t.START) or base >= value(control, t.STOP):
        return _SKIP
    # The log cleaner leaves control batches without a record. These are not markers.
    noted = attributes & (_TRANSACTIONAL | _CONTROL) and records > 0 and value(control, t.DEEP)
    if noted and not note_producer(control, int64_at(at + _PRODUCER_AT), base, last, attributes & _CONTROL):
        return FULL_PRODUCERS
    payload, codec = at + _HEADER, attributes & _CODEC_MASK
    set_value(control, t.WANTED, size - _HEADER)
    if codec != 0 and records > 0 and not attributes & _CONTROL:
        status = _decompress(control, codec, payload, size - _HEADER)
        if status != DONE:
            return status
        payload = value(control, t.SCRATCH_AT)
    set_value(control, t.PAYLOAD, payload)
    set_value(control, t.PAYLOAD_AT, payload)
    set_value(control, t.PAYLOAD_END, payload + value(control, t.WANTED))
    set_value(control, t.BATCH_OFFSET, base)
    set_value(control, t.BATCH_LAST, last)
    set_value(control, t.RECORDS_LEFT, records)
    count_batch(control, base, last, int64_at(at + 27), int64_at(at + 35), attributes & _CONTROL)
    return _SKIP if attributes & _CONTROL else _OPEN


@compiled
def count_batch(control: int, base: int, last: int, first_time: int, last_time: int, is_control: int) -> None:
    """Count a batch. It belongs to the offset range that contains its last offset."""
    if last >= value(control, t.STOP):
        return
    add(control, t.BATCHES, 1)
    add(control, t.LOG_BYTES, value(control, t.SIZE))
    if is_control:
        add(control, t.CONTROL_BATCHES, 1)
    set_value(control, t.FIRST_OFFSET, min(value(control, t.FIRST_OFFSET), max(base, value(control, t.START))))
    set_value(control, t.LAST_OFFSET, max(value(control, t.LAST_OFFSET), last))
    if first_time >= 0:
        set_value(control, t.FIRST_TIMESTAMP, min(value(control, t.FIRST_TIMESTAMP), first_time))
    set_value(control, t.LAST_TIMESTAMP, max(value(control, t.LAST_TIMESTAMP), last_time))


@compiled
def _decompress(control: int, codec: int, at: int, size: int) -> int:
    """Decompress into the scratch memory and set WANTED to the size. Uses Python's result if there is one (GIVEN)."""
    if value(control, t.GIVEN) >= 0:
        set_value(control, t.WANTED, value(control, t.GIVEN))
        set_value(control, t.GIVEN, -1)
        return DONE
    if codec == _LZ4 and value(control, t.LZ4_CONTEXT):
        return _lz4(control, at, size)
    if codec == _ZSTD and value(control, t.ZSTD_CONTEXT):
        return _zstd(control, at, size)
    return OTHER_CODEC


@compiled
def _lz4(control: int, at: int, size: int) -> int:
    """Decompress one lz4 frame. Bytes after the frame are ignored, as in Kafka."""
    function, context = value(control, t.LZ4_DECOMPRESS), value(control, t.LZ4_CONTEXT)
    call(value(control, t.LZ4_RESET), (context,))
    io, target, room = value(control, t.IO), value(control, t.SCRATCH_AT), value(control, t.SCRATCH_SIZE)
    taken = made = 0
    while True:
        # Kafka's frames do not contain their decompressed size.
        set_int64(io, room - made)
        set_int64(io + 8, size - taken)
        left = call(function, (context, target + made, io, at + taken, io + 8, np.int64(0)))
        if _LAST_ERROR < left < 0:
            return CORRUPT
        progress, consumed = get_int64(io), get_int64(io + 8)
        made += progress
        taken += consumed
        if left == 0:
            set_value(control, t.WANTED, made)
            return DONE
        if made == room:
            return MORE_SCRATCH
        if progress == 0 and consumed == 0:
            return CORRUPT


@compiled
def _zstd(control: int, at: int, size: int) -> int:
    made = call(
        value(control, t.ZSTD_DECOMPRESS),
        (value(control, t.ZSTD_CONTEXT), value(control, t.SCRATCH_AT), value(control, t.SCRATCH_SIZE), at, size),
    )
    if made == _TOO_SMALL:
        return MORE_SCRATCH
    if _LAST_ERROR < made < 0:
        return CORRUPT
    set_value(control, t.WANTED, made)
    return DONE


@inlined
def _varint(at: int, end: int) -> tuple[int, int]:
    """Return a zigzag varint of at most five bytes, and its end (FAILED if it is longer or cut off)."""
    if at >= end:
        return 0, FAILED
    number = byte_at(at)
    at += 1
    if number >= 0x80:
        number &= 0x7F
        shift = 7
        while True:
            if at >= end or shift > 28:
                return 0, FAILED
            byte = byte_at(at)
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    return (number >> 1) ^ -(number & 1), at


@inlined
def _end_of_varlong(at: int, end: int) -> int:
    """Return the end of a varint of at most ten bytes; FAILED if it is longer or cut off."""
    for place in range(at, min(at + 10, end)):
        if byte_at(place) < 0x80:
            return place + 1
    return FAILED


@inlined
def _record(at: int, end: int) -> tuple[int, int, int, int, int, int]:
    """Return the end of the record at `at` (FAILED if it is corrupt), its offset delta, key start and size, value
    start and size.
    """
    corrupt = (FAILED, 0, 0, 0, 0, 0)
    length, at = _varint(at, end)
    if at == FAILED or length < 0 or length > end - at:
        return corrupt
    record_end = at + length
    at = _end_of_varlong(at + 1, end)  # attributes (one byte, unused), timestamp delta
    if at == FAILED:
        return corrupt
    delta, at = _varint(at, end)
    if at == FAILED or delta < 0:
        return corrupt
    key_size, key_at = _varint(at, end)
    if key_at == FAILED or key_size < -1:
        return corrupt
    value_size, value_at = _varint(key_at + max(key_size, 0), end)
    if value_at == FAILED or value_size < -1 or value_at + max(value_size, 0) > record_end:
        return corrupt
    return record_end, delta, key_at, key_size, value_at, value_size


@compiled
def _count_records(control: int) -> int:
    """Count the batch's records by class. With LIVE, also add their keys."""
    at, end, left = value(control, t.PAYLOAD), value(control, t.PAYLOAD_END), value(control, t.RECORDS_LEFT)
    base, last = value(control, t.BATCH_OFFSET), value(control, t.BATCH_LAST)
    start, stop = value(control, t.START), value(control, t.STOP)
    live, code, known = value(control, t.LIVE), FAILED, FAILED
    status, alike, counted = DONE, 0, 0  # `alike`: records that are not added to the class `known` yet
    while left > 0:
        if live and value(control, t.WAITING) == t.AHEAD:
            status = insert_queued(control)
            if status != DONE:
                break
        record_end, delta, key_at, key_size, value_at, value_size = _record(at, end)
        offset = base + delta
        if record_end == FAILED:
            status = CORRUPT
            break
        if start <= offset < stop:
            if offset > last:
                status = CORRUPT
                break
            code_of_this = versions_code(key_at, key_size, value_at, value_size)
            if code_of_this != code:
                count_in_class(control, known, alike)
                counted += alike
                alike, code = 0, code_of_this
                known = class_of(control, code, offset)
                if known == FAILED:
                    status = FULL_CLASSES
                    break
            alike += 1
            if live and key_size >= 0:
                note_key(control, known, offset, key_at, key_size, 0)
        at = record_end
        left -= 1
    count_in_class(control, known, alike)
    set_value(control, t.PAYLOAD, at)
    set_value(control, t.RECORDS_LEFT, left)
    add(control, t.RECORDS, counted + alike)
    return CORRUPT if status == DONE and at != end else status


@compiled
def _note_records(control: int) -> int:
    """Parse the batch's records and add them to the tables."""
    base, last = value(control, t.BATCH_OFFSET), value(control, t.BATCH_LAST)
    start, stop = value(control, t.START), value(control, t.STOP)
    while value(control, t.RECORDS_LEFT) > 0:
        if value(control, t.WAITING) == t.AHEAD and insert_queued(control) != DONE:
            return FULL_KEYS
        at, end = value(control, t.PAYLOAD), value(control, t.PAYLOAD_END)
        record_end, delta, key_at, key_size, value_at, value_size = _record(at, end)
        offset = base + delta
        if record_end == FAILED:
            return CORRUPT
        if start <= offset < stop:
            if offset > last:
                return CORRUPT
            status = note_record(control, offset, key_at, key_size, value_at, value_size)
            if status != DONE:
                return status
        set_value(control, t.STAGE, 0)
        set_value(control, t.TAGS_DONE, 0)
        set_value(control, t.PAYLOAD, record_end)
        add(control, t.RECORDS_LEFT, -1)
    return DONE if value(control, t.PAYLOAD) == value(control, t.PAYLOAD_END) else CORRUPT
