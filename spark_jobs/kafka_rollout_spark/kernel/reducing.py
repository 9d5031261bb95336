"""The newest record of each key of a bucket, merged from the entries of all workers.

`known`: one item per key. A hash table with open addressing maps a key to its item, as in keys.py. Python enlarges both
when they are full.
"""

from __future__ import annotations

from kafka_rollout_spark.kernel import tables as t
from kafka_rollout_spark.kernel.compiling import compiled, inlined
from kafka_rollout_spark.kernel.keys import FIRST, OWNER, PACKED, SECOND, slot_of
from kafka_rollout_spark.kernel.memory import prefetch, set_value, value

# Fields of an item: as in an entry, but offset and class are separate.
OFFSET, CLASS = 3, 4
KNOWN = 5
_BYTES, _ENTRY_BYTES = 8 * KNOWN, 8 * t.ENTRY
_NUMBER = 0xFFFFFFFF


@compiled
def add_entries(
    table: int, slots: int, known: int, used: int, room: int, entries: int, at: int, end: int, base: int, classes: int
) -> tuple[int, int]:
    """Merge the entries (keys.py) `at` to `end`. Stops when `room` keys could be exceeded.

    `base`: added to the offsets of the entries. `classes`: address of a list: class of the entries → class of the
    items. Returns (number of the next entry, number of keys).
    """
    mask = slots - 1
    while at < end:
        some = min(t.AHEAD, end - at)
        if used + some > room:
            break
        for place in range(at, at + some):
            prefetch(table + 8 * (value(entries + _ENTRY_BYTES * place, FIRST) & mask))
        for place in range(at, at + some):
            entry = entries + _ENTRY_BYTES * place
            slot = slot_of(table, mask, value(entry, FIRST) & mask, value(entry, SECOND))
            prefetch(known + _BYTES * ((value(table, slot) & _NUMBER) - 1))
        for place in range(at, at + some):
            entry = entries + _ENTRY_BYTES * place
            first, second, packed = value(entry, FIRST), value(entry, SECOND), value(entry, PACKED)
            offset = base + (packed & 0xFFFFFFFF)
            one = _find(table, mask, known, first, second)
            if one == 0:
                one = known + _BYTES * used
                used += 1
                _insert_number(table, mask, first, second, used)
                set_value(one, FIRST, first)
                set_value(one, SECOND, second)
            elif value(one, OFFSET) > offset:
                continue
            set_value(one, OWNER, value(entry, OWNER))
            set_value(one, OFFSET, offset)
            set_value(one, CLASS, value(classes, packed >> 32))
        at += some
    return at, used


@compiled
def fill_table(table: int, slots: int, known: int, used: int) -> None:
    """Insert all items into an empty table."""
    for number in range(used):
        one = known + _BYTES * number
        _insert_number(table, slots - 1, value(one, FIRST), value(one, SECOND), number + 1)


@inlined
def _find(table: int, mask: int, known: int, first: int, second: int) -> int:
    """Return the address of a key's item; 0 if there is none."""
    slot = slot_of(table, mask, first & mask, second)
    while value(table, slot) != 0:
        one = known + _BYTES * ((value(table, slot) & _NUMBER) - 1)
        if value(one, FIRST) == first and value(one, SECOND) == second:
            return one
        slot = slot_of(table, mask, (slot + 1) & mask, second)
    return 0


@inlined
def _insert_number(table: int, mask: int, first: int, second: int, number: int) -> None:
    slot = first & mask
    while value(table, slot) != 0:
        slot = (slot + 1) & mask
    set_value(table, slot, second << 32 | number)
