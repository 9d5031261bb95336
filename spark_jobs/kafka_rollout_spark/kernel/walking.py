"""Runs the program of a layout (programs.py) on one message: finds parse errors, marked fields and tags."""

from __future__ import annotations

from kafka_rollout.formats.coordinator_records import CONSUMER_PROTOCOL
from kafka_rollout_spark.kernel import compiled, inlined
from kafka_rollout_spark.kernel import programs as p
from kafka_rollout_spark.kernel.memory import add, byte_at, int8_at, int16_at, int32_at, int64_at, set_value, value

_NULLABLE = 1
_CONSUMER = int.from_bytes(CONSUMER_PROTOCOL.encode(), "big")  # eight bytes: an int64

FAILED = -1
_LONGEST_STRING = 0x7FFF

# The block `marks`: two slots of start and size (programs.OWNER, TOPIC), the number of tags in the message, the number
# of the last WITHIN, whether a WITHIN_TAGGED is outside, whether the next subscriptions are read, and a stack with the
# counters of the open arrays and tagged fields. Behind it, note_record keeps the first slots of two walks.
TAGS_SEEN = 4
_NUMBER = 5
_IS_REFUSED = 6
_READS_SUBSCRIPTIONS = 7
_STACK = 8
KEPT_MARKS = TAGS_SEEN + 1
KEY_MARKS = _STACK + p.DEEPEST
VALUE_MARKS = KEY_MARKS + KEPT_MARKS
MARKS = VALUE_MARKS + KEPT_MARKS
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
    for slot in range(TAGS_SEEN, _STACK):
        set_value(marks, slot, 0)
    while at != FAILED:
        step = steps + 32 * pc
        operation = value(step, 0)
        pc += 1
        if operation == p.FIXED:
            at = _skip(at, value(step, 1), end)
        elif operation == p.END:
            return FAILED if value(marks, _IS_REFUSED) else at
        elif operation <= p.NUMBERS:
            at = _read_field(operation, step, at, end, marks)
        elif operation <= p.NOT_ZERO:
            at = _check_rule(operation, step, at, end, marks)
        elif operation <= p.NEXT:
            pc, at, top = _repeat(operation, step, pc, at, end, marks, top)
        elif operation == p.TAG:
            pc, at, top = _read_tag(step, tags, pc, at, end, marks, top, seen, skip)
        else:
            pc, at, top = _open(operation, step, pc, at, end, marks, top)
    return FAILED


@inlined
def _skip(at: int, size: int, end: int) -> int:
    return FAILED if size > end - at else at + size


@inlined
def _read_size(step: int, at: int, end: int, width: int) -> tuple[int, int]:
    """Return size and start of a field that can be null: −1 if it is. The start is FAILED if it cannot be."""
    size, at = _length(at, end, value(step, 1), width)
    if at == FAILED or size > end - at or (size < 0 and not value(step, 2) & _NULLABLE):
        return 0, FAILED
    return size, at


@inlined
def _read_field(operation: int, step: int, at: int, end: int, marks: int) -> int:
    """Return the end of a STRING, BYTES or NUMBERS."""
    size, at = _read_size(step, at, end, 2 if operation == p.STRING else 4)
    if at == FAILED:
        return FAILED
    if operation == p.NUMBERS:
        return _skip(at, max(size, 0) * value(step, 3), end)
    if operation == p.STRING:
        if not _note_string(step, at, size, marks):
            return FAILED
    elif value(step, 3) and value(marks, _READS_SUBSCRIPTIONS) and is_bad_subscription(at, at + size):
        return FAILED
    return at + max(size, 0)


@inlined
def _note_string(step: int, at: int, size: int, marks: int) -> bool:
    """Write the place of a string to its slot of `marks`. Return whether its text breaks no rule."""
    flags, slot = value(step, 2), value(step, 3)
    if size > _LONGEST_STRING or (flags & p.FILLED and size == 0):
        return False
    if slot >= 0:
        set_value(marks, slot, at)
        set_value(marks, slot + 1, max(size, 0))
    if flags & p.IS_PROTOCOL_TYPE:
        set_value(marks, _READS_SUBSCRIPTIONS, 1 if size == 8 and int64_at(at) == _CONSUMER else 0)
    if flags & p.IS_PROTOCOL and size < 0:
        set_value(marks, _READS_SUBSCRIPTIONS, 0)
    return True


@inlined
def _check_rule(operation: int, step: int, at: int, end: int, marks: int) -> int:
    """Return the end of the field of a MARK, WITHIN, WITHIN_TAGGED or NOT_ZERO."""
    size = value(step, 1)
    if operation == p.MARK:
        set_value(marks, size + 1, at - value(marks, size))
        return at
    after = _skip(at, size, end)
    if after == FAILED:
        return FAILED
    if operation == p.NOT_ZERO:
        while at < after and byte_at(at) == 0:
            at += 1
        return FAILED if at == after else after
    number = _number(at, size)
    set_value(marks, _NUMBER, number)
    is_outside = number < value(step, 2) or number > value(step, 3)
    if operation == p.WITHIN_TAGGED:
        set_value(marks, _IS_REFUSED, 1 if is_outside else 0)
    elif is_outside:
        return FAILED
    return after


@inlined
def _number(at: int, size: int) -> int:
    if size == 1:
        return int8_at(at)
    if size == 2:
        return int16_at(at)
    return int32_at(at) if size == 4 else int64_at(at)


@inlined
def _repeat(operation: int, step: int, pc: int, at: int, end: int, marks: int, top: int) -> tuple[int, int, int]:
    """Begin an ARRAY, or go to its NEXT element. Return the next step, the place and the top of the stack."""
    if operation == p.NEXT:
        add(marks, top, -1)
        return (value(step, 1), at, top) if value(marks, top) > 0 else (pc, at, top - 1)
    size, at = _read_size(step, at, end, 4)
    if size < 0 and value(step, 2) & p.NULL_AT_ZERO and value(marks, _NUMBER) != 0:
        at = FAILED
    if size <= 0:
        return value(step, 3), at, top
    set_value(marks, top + 1, size)
    return pc, at, top + 1


@inlined
def _open(operation: int, step: int, pc: int, at: int, end: int, marks: int, top: int) -> tuple[int, int, int]:
    """Do a JUMP, skip a struct whose MARKER says null, or begin the TAGS. Return as _repeat."""
    if operation == p.JUMP:
        return value(step, 1), at, top
    if operation == p.TAGS or value(step, 1):
        size, at = unsigned_varint(at, end)
    else:
        size, at = (int8_at(at), at + 1) if at < end else (0, FAILED)
    if operation == p.TAGS:
        set_value(marks, top + 1, size)
        return pc, at, top + 1
    return (value(step, 2) if size < value(step, 1) else pc), at, top


@compiled
def _read_tag(
    step: int, tags: int, pc: int, at: int, end: int, marks: int, top: int, seen: int, skip: int
) -> tuple[int, int, int]:
    """Begin the next tagged field: that of a known TAG, or skip it. Return as _repeat."""
    if value(marks, top) <= 0:
        return pc, at, top - 1  # the next step jumps over the tags
    add(marks, top, -1)
    tag, at = unsigned_varint(at, end)
    if at == FAILED:
        return pc, FAILED, top
    size, at = unsigned_varint(at, end)
    if at == FAILED:
        return pc, FAILED, top
    place = value(marks, TAGS_SEEN) - skip
    if 0 <= place < TAGS_AT_ONCE:
        set_value(seen, 2 * place, value(step, 1))
        set_value(seen, 2 * place + 1, tag)
    add(marks, TAGS_SEEN, 1)
    first = value(step, 2)
    for row in range(first, first + value(step, 3)):
        if value(tags, 2 * row) == tag:
            return value(tags, 2 * row + 1), at, top
    if size < 0:
        return pc, FAILED, top
    return pc - 1, _skip(at, size, end), top
