"""The newest record of each key of a bucket: a table with open addressing that Python makes larger when it is full."""

from __future__ import annotations

from kafka_rollout_spark.kernel import tables as t
from kafka_rollout_spark.kernel.compiling import compiled, inlined
from kafka_rollout_spark.kernel.keys import FIRST, OWNER, PACKED, SECOND
from kafka_rollout_spark.kernel.memory import fetch_ahead, set_value, value

# Numbers of one slot: as in an entry, but offset and class apart.
OFFSET, CLASS = 3, 4
SLOT = 5


@compiled
def add_entries(
    table: int, slots: int, used: int, room: int, entries: int, at: int, end: int, base: int, classes: int
) -> tuple[int, int]:
    """Take entries (keys.py) from number `at` on until `end`, or until `room` slots may be used: (next, used).

    `base`: what their offsets count from; `classes`: a block that says as which class each of theirs is kept.
    """
    while at < end:
        some = min(t.AHEAD, end - at)
        if used + some > room:
            break
        for place in range(at, at + some):
            fetch_ahead(table + 8 * SLOT * (value(entries + 8 * t.ENTRY * place, FIRST) & (slots - 1)))
        for place in range(at, at + some):
            entry = entries + 8 * t.ENTRY * place
            first, second, packed = value(entry, FIRST), value(entry, SECOND), value(entry, PACKED)
            offset = base + (packed & 0xFFFFFFFF)
            slot = _slot(table, slots, first, second)
            if value(slot, FIRST) == 0:
                used += 1
            elif value(slot, OFFSET) > offset:
                continue
            set_value(slot, FIRST, first)
            set_value(slot, SECOND, second)
            set_value(slot, OWNER, value(entry, OWNER))
            set_value(slot, OFFSET, offset)
            set_value(slot, CLASS, value(classes, packed >> 32))
        at += some
    return at, used


@compiled
def move(table: int, slots: int, larger: int, larger_slots: int) -> None:
    """Put what a table holds into another one, which is empty."""
    for index in range(slots):
        old = table + 8 * SLOT * index
        if value(old, FIRST) != 0:
            new = _slot(larger, larger_slots, value(old, FIRST), value(old, SECOND))
            for place in range(SLOT):
                set_value(new, place, value(old, place))


@inlined
def _slot(table: int, slots: int, first: int, second: int) -> int:
    """Where the key is, or would be."""
    index = first & (slots - 1)
    while True:
        slot = table + 8 * SLOT * index
        if value(slot, FIRST) == 0 or (value(slot, FIRST) == first and value(slot, SECOND) == second):
            return slot
        index = (index + 1) & (slots - 1)
