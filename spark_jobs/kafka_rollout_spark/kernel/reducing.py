"""The newest record of each key of a bucket: a table with open addressing that Python makes larger when it is full."""

from __future__ import annotations

from kafka_rollout_spark.kernel.compiling import compiled
from kafka_rollout_spark.kernel.memory import set_value, value

# Numbers of one slot: hash of the key (0: empty), hash of the owner (0: none asked for), offset, class.
KEY, OWNER, OFFSET, CLASS = range(4)
SLOT = 4


@compiled
def add_entries(
    table: int, slots: int, used: int, room: int, entries: int, at: int, end: int, base: int, classes: int
) -> tuple[int, int]:
    """Take entries (tables.py) from number `at` on until `end`, or until `room` slots are used: (next, used).

    `base`: what their offsets count from; `classes`: a block that says as which class each of theirs is kept.
    """
    while at < end:
        entry = entries + 24 * at
        key, owner, packed = value(entry, 0), value(entry, 1), value(entry, 2)
        offset, kept_class = base + (packed & 0xFFFFFFFF), value(classes, packed >> 32)
        slot = _slot(table, slots, key)
        if value(slot, KEY) == 0:
            if used == room:
                break
            used += 1
            _fill(slot, key, owner, offset, kept_class)
        elif value(slot, OFFSET) < offset:
            _fill(slot, key, owner, offset, kept_class)
        at += 1
    return at, used


@compiled
def move(table: int, slots: int, larger: int, larger_slots: int) -> None:
    """Put what a table holds into another one, which is empty."""
    for index in range(slots):
        old = table + 8 * SLOT * index
        if value(old, KEY) != 0:
            new = _slot(larger, larger_slots, value(old, KEY))
            _fill(new, value(old, KEY), value(old, OWNER), value(old, OFFSET), value(old, CLASS))


@compiled
def _slot(table: int, slots: int, key: int) -> int:
    """Where the key is, or would be."""
    index = key & (slots - 1)
    while True:
        slot = table + 8 * SLOT * index
        if value(slot, KEY) == 0 or value(slot, KEY) == key:
            return slot
        index = (index + 1) & (slots - 1)


@compiled
def _fill(slot: int, key: int, owner: int, offset: int, kept_class: int) -> None:
    set_value(slot, KEY, key)
    set_value(slot, OWNER, owner)
    set_value(slot, OFFSET, offset)
    set_value(slot, CLASS, kept_class)
