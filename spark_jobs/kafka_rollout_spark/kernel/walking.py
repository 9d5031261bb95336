"""Runs the program of a layout (programs.py) on one message: finds parse errors, marked fields and tags."""

from __future__ import annotations

from kafka_rollout.formats.coordinator_records import CONSUMER_PROTOCOL
from kafka_rollout_spark.kernel import compiled
from kafka_rollout_spark.kernel import programs as p
from kafka_rollout_spark.kernel.memory import add, byte_at, int8_at, int16_at, int32_at, int64_at, set_value, value

_NULLABLE = 1
_CONSUMER = int.from_bytes(CONSUMER_PROTOCOL.encode(), "big")  # eight bytes: an int64

FAILED = -1
_LONGEST_STRING = 0x7FFF

# The block `marks`: two slots of start and size (programs.OWNER, TOPIC), the number of tags in the message, and a stack
# with the counters of the open arrays and tagged fields.
TAGS_SEEN = 4
_STACK = 5
MARKS = _STACK + p.DEEPEST
TAGS_AT_ONCE = 64


@compiled
def unsigned_varint(at: int, end: int) -> tuple[int, int]:
    """Return an unsigned varint as a Java int, and its end; FAILED if it is too long or cut off.

    Source: ByteUtils.readUnsignedVarint.
    """
    if at >= end:
        return 0, FAILED
    number = byte_at(at)
    at += 1
    if number < 0x80:
        return number, at
    number &= 0x7F
    for shift in range(7, 35, 7):
        if at >= end:
            return 0, FAILED
        byte = byte_at(at)
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return java_int(number), at
    return 0, FAILED


@compiled
def java_int(number: int) -> int:
    return ((number + 0x80000000) & 0xFFFFFFFF) - 0x80000000


@compiled
def _length(at: int, end: int, compact: int, width: int) -> tuple[int, int]:
    """Return a length, and its end. Stored in two or four bytes, or (`compact`) as an unsigned varint of length + 1."""
    if compact:
        number, at = unsigned_varint(at, end)
        return java_int(number - 1), at
    if end - at < width:
        return 0, FAILED
    return (int16_at(at) if width == 2 else int32_at(at)), at + width


@compiled
def is_bad_subscription(at: int, end: int) -> bool:
    """Do the same as formats.coordinator_records.is_bad_subscription, for the bytes from `at` to `end`."""
    at += 2
    if end - at < 4:
        return False
    topics = int32_at(at)
    at += 4
    if topics < 0 or topics > end - at:
        return True
    for _ in range(topics):
        if end - at < 2:
            return False
        size = int16_at(at)
        at += 2
        if size < 0 or size > end - at:
            return True
        at += size
    return end - at >= 4 and int32_at(at) > end - at - 4


@compiled
def walk(steps: int, tags: int, pc: int, at: int, end: int, marks: int, seen: int, skip: int) -> int:
    """Return the end of the message at `at`; FAILED if it does not parse or breaks a rule (coordinator_records).

    `steps`, `tags`, `marks`, `seen`: addresses of blocks of numbers. `pc`: first step of the program. The number of
    tagged fields is written to TAGS_SEEN of `marks`. Path and tag of up to TAGS_AT_ONCE tagged fields, after the first
    `skip`, are written to `seen`.
    """
    top = _STACK - 1
    number, is_refused, reads_subscriptions = 0, False, False
    set_value(marks, TAGS_SEEN, 0)
    while True:
        step = steps + 32 * pc
        operation, first, second, third = value(step, 0), value(step, 1), value(step, 2), value(step, 3)
        pc += 1
        if operation == p.FIXED:
            at += first
            if at > end:
                return FAILED
        elif operation in (p.STRING, p.BYTES):
            size, at = _length(at, end, first, 2 if operation == p.STRING else 4)
            if at == FAILED or size > end - at or (size < 0 and not second & _NULLABLE):
                return FAILED
            if operation == p.STRING:
                if size > _LONGEST_STRING:
                    return FAILED
                if third >= 0:
                    set_value(marks, third, at)
                    set_value(marks, third + 1, max(size, 0))
                if second > _NULLABLE:
                    if second & p.FILLED and size == 0:
                        return FAILED
                    if second & p.IS_PROTOCOL_TYPE:
                        reads_subscriptions = size == 8 and int64_at(at) == _CONSUMER
                    if second & p.IS_PROTOCOL and size < 0:
                        reads_subscriptions = False
            elif third and reads_subscriptions and is_bad_subscription(at, at + size):
                return FAILED
            at += max(size, 0)
        elif operation == p.NUMBERS:
            size, at = _length(at, end, first, 4)
            if at == FAILED or size > end - at or (size < 0 and not second):
                return FAILED
            at += max(size, 0) * third
            if at > end:
                return FAILED
        elif operation == p.ARRAY:
            size, at = _length(at, end, first, 4)
            if at == FAILED or size > end - at or (size < 0 and not second):
                return FAILED
            if size < 0 and second & p.NULL_AT_ZERO and number != 0:
                return FAILED
            if size <= 0:
                pc = third
            else:
                top += 1
                set_value(marks, top, size)
        elif operation == p.NEXT:
            add(marks, top, -1)
            if value(marks, top) > 0:
                pc = first
            else:
                top -= 1
        elif operation == p.MARKER:
            if first:
                size, at = unsigned_varint(at, end)
                if at == FAILED:
                    return FAILED
                size -= 1
            else:
                if at >= end:
                    return FAILED
                size = int8_at(at)
                at += 1
            if size < 0:
                pc = second
        elif operation == p.TAGS:
            size, at = unsigned_varint(at, end)
            if at == FAILED:
                return FAILED
            top += 1
            set_value(marks, top, size)
        elif operation == p.TAG:
            if value(marks, top) <= 0:
                top -= 1
                continue  # the next step jumps over the tags
            add(marks, top, -1)
            tag, at = unsigned_varint(at, end)
            if at == FAILED:
                return FAILED
            size, at = unsigned_varint(at, end)
            if at == FAILED:
                return FAILED
            place = value(marks, TAGS_SEEN) - skip
            if 0 <= place < TAGS_AT_ONCE:
                set_value(seen, 2 * place, first)
                set_value(seen, 2 * place + 1, tag)
            add(marks, TAGS_SEEN, 1)
            known = FAILED
            for row in range(second, second + third):
                if value(tags, 2 * row) == tag:
                    known = value(tags, 2 * row + 1)
            if known != FAILED:
                pc = known
                continue
            if size < 0 or size > end - at:
                return FAILED
            at += size
            pc -= 1
        elif operation == p.JUMP:
            pc = first
        elif operation == p.MARK:
            set_value(marks, first + 1, at - value(marks, first))
        elif operation in (p.WITHIN, p.WITHIN_TAGGED):
            if first > end - at:
                return FAILED
            if first == 1:
                number = int8_at(at)
            elif first == 2:
                number = int16_at(at)
            elif first == 4:
                number = int32_at(at)
            else:
                number = int64_at(at)
            at += first
            is_outside = number < second or number > third
            if operation == p.WITHIN_TAGGED:
                is_refused = is_outside
            elif is_outside:
                return FAILED
        elif operation == p.NOT_ZERO:
            if first > end - at:
                return FAILED
            place = at + first
            while at < place and byte_at(at) == 0:
                at += 1
            if at == place:
                return FAILED
            at = place
        else:
            return FAILED if is_refused else at
