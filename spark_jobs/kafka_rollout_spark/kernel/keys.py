"""The newest record of each key of one log: entries in the order in which the keys came, and a table with open
addressing that says where a key's entry is; Python makes the table larger, or empties both.

A key is two hashes of it by hashing.py. Coordinators write about the same keys in about the same order again and again:
their entries follow each other in memory, and only the table, 8 bytes a slot, is looked up here and there. Records wait
a little until what they need of both is there.
"""

from __future__ import annotations

from kafka_rollout_spark.kernel import tables as t
from kafka_rollout_spark.kernel.compiling import compiled, inlined
from kafka_rollout_spark.kernel.hashing import bucket_of
from kafka_rollout_spark.kernel.memory import add, copy, fetch_ahead, set_value, value
from kafka_rollout_spark.kernel.walking import FAILED

DONE = 0
FULL_KEYS = 4

# Numbers of an entry: two hashes of the key (the first one is never 0), hash of the owner (0: none asked for),
# offset − BASE | class << 32.
FIRST, SECOND, OWNER, PACKED = range(4)
_PLACE = t.ENTRY  # of what waits: a slot
_OFFSET_MASK = 0xFFFFFFFF
_BYTES, _WAITING_BYTES = 8 * t.ENTRY, 8 * t.WAITING_ENTRY
# A slot: number of the entry + 1 (0: an empty slot), and 32 bits of the second hash above it.
_NUMBER, _OF_HASH = 0xFFFFFFFF, -(1 << 32)


@inlined
def remember(control: int, first: int, second: int, owner: int, packed: int) -> None:
    """Note a record of a key; fewer than AHEAD wait."""
    waiting = value(control, t.WAITING)
    entry = value(control, t.QUEUE) + _WAITING_BYTES * waiting
    set_value(entry, FIRST, first)
    set_value(entry, SECOND, second)
    set_value(entry, OWNER, owner)
    set_value(entry, PACKED, packed)
    set_value(control, t.WAITING, waiting + 1)
    fetch_ahead(value(control, t.KEY_TABLE) + 8 * (first & (value(control, t.KEY_SLOTS) - 1)))


@compiled
def settle(control: int) -> int:
    """Put what waits into the table; FULL_KEYS, and nothing done, if there might be too little room."""
    table, mask, used = value(control, t.KEY_TABLE), value(control, t.KEY_SLOTS) - 1, value(control, t.KEYS_USED)
    waiting, queue, entries = value(control, t.WAITING), value(control, t.QUEUE), value(control, t.KEY_ENTRIES)
    if used + waiting > value(control, t.KEY_ROOM):
        return FULL_KEYS
    for place in range(waiting):
        one = queue + _WAITING_BYTES * place
        slot = slot_of(table, mask, value(one, FIRST) & mask, value(one, SECOND))
        set_value(one, _PLACE, slot)
        fetch_ahead(entries + _BYTES * ((value(table, slot) & _NUMBER) - 1))
    for place in range(waiting):
        one = queue + _WAITING_BYTES * place
        first, second, packed = value(one, FIRST), value(one, SECOND), value(one, PACKED)
        slot = value(one, _PLACE)  # what came before in the queue may have taken it if it was empty
        while True:
            slot = slot_of(table, mask, slot, second)
            number = value(table, slot) & _NUMBER
            if number == 0:
                entry = entries + _BYTES * used
                used += 1
                set_value(table, slot, second << 32 | used)
                set_value(entry, FIRST, first)
                set_value(entry, SECOND, second)
                break
            entry = entries + _BYTES * (number - 1)
            if value(entry, FIRST) == first and value(entry, SECOND) == second:
                if value(entry, PACKED) & _OFFSET_MASK > packed & _OFFSET_MASK:
                    entry = FAILED
                break
            slot = (slot + 1) & mask
        if entry != FAILED:
            set_value(entry, OWNER, value(one, OWNER))
            set_value(entry, PACKED, packed)
    set_value(control, t.KEYS_USED, used)
    set_value(control, t.WAITING, 0)
    return DONE


@compiled
def fill_table(control: int) -> None:
    """Say in an empty table where the entries are."""
    table, mask = value(control, t.KEY_TABLE), value(control, t.KEY_SLOTS) - 1
    for number in range(value(control, t.KEYS_USED)):
        entry = value(control, t.KEY_ENTRIES) + _BYTES * number
        slot = value(entry, FIRST) & mask
        while value(table, slot) != 0:
            slot = (slot + 1) & mask
        set_value(table, slot, value(entry, SECOND) << 32 | (number + 1))


@compiled
def count_by_bucket(control: int, counts: int) -> None:
    for number in range(value(control, t.KEYS_USED)):
        first = value(value(control, t.KEY_ENTRIES) + _BYTES * number, FIRST)
        add(counts, bucket_of(first, value(control, t.BUCKETS)), 1)


@compiled
def deal_out(control: int, dealt: int, starts: int) -> None:
    """Copy the entries to their buckets in `dealt`; `starts`: the number of each bucket's next entry."""
    for number in range(value(control, t.KEYS_USED)):
        entry = value(control, t.KEY_ENTRIES) + _BYTES * number
        bucket = bucket_of(value(entry, FIRST), value(control, t.BUCKETS))
        copy(dealt + _BYTES * value(starts, bucket), entry, _BYTES)
        add(starts, bucket, 1)


@inlined
def slot_of(table: int, mask: int, slot: int, second: int) -> int:
    """The first from a slot on that is empty or may be the key's."""
    while value(table, slot) != 0 and (value(table, slot) ^ second << 32) & _OF_HASH != 0:
        slot = (slot + 1) & mask
    return slot
