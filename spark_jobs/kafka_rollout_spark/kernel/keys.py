"""The newest record of each key of one log: a table with open addressing, which Python makes larger or empties.

A key stands there as two hashes of it by hashing.py. Records wait a little until what they need of the table is there.
"""

from __future__ import annotations

from kafka_rollout_spark.kernel import tables as t
from kafka_rollout_spark.kernel.compiling import compiled, inlined
from kafka_rollout_spark.kernel.hashing import bucket_of
from kafka_rollout_spark.kernel.memory import add, fetch_ahead, set_value, value

DONE = 0
FULL_KEYS = 4

# Numbers of an entry: two hashes of the key (the first one 0: an empty slot), hash of the owner (0: none asked for),
# offset − BASE | class << 32.
FIRST, SECOND, OWNER, PACKED = range(4)
_OFFSET_MASK = 0xFFFFFFFF
_BYTES = 8 * t.ENTRY


@inlined
def remember(control: int, first: int, second: int, owner: int, packed: int) -> None:
    """Note a record of a key; fewer than AHEAD wait."""
    waiting = value(control, t.WAITING)
    entry = value(control, t.QUEUE) + _BYTES * waiting
    set_value(entry, FIRST, first)
    set_value(entry, SECOND, second)
    set_value(entry, OWNER, owner)
    set_value(entry, PACKED, packed)
    set_value(control, t.WAITING, waiting + 1)
    fetch_ahead(value(control, t.KEY_TABLE) + _BYTES * (first & (value(control, t.KEY_SLOTS) - 1)))


@compiled
def settle(control: int) -> int:
    """Put what waits into the table; FULL_KEYS, and nothing done, if there might be too little room."""
    table, slots, used = value(control, t.KEY_TABLE), value(control, t.KEY_SLOTS), value(control, t.KEYS_USED)
    waiting, queue = value(control, t.WAITING), value(control, t.QUEUE)
    if used + waiting > value(control, t.KEY_ROOM):
        return FULL_KEYS
    for place in range(waiting):
        entry = queue + _BYTES * place
        first, second = value(entry, FIRST), value(entry, SECOND)
        slot = _slot(table, slots, first, second)
        if value(slot, FIRST) == 0:
            used += 1
        elif value(slot, PACKED) & _OFFSET_MASK > value(entry, PACKED) & _OFFSET_MASK:
            continue
        _copy(slot, entry)
    set_value(control, t.KEYS_USED, used)
    set_value(control, t.WAITING, 0)
    return DONE


@compiled
def move(table: int, slots: int, larger: int, larger_slots: int) -> None:
    """Put what a table holds into another one, which is empty."""
    for index in range(slots):
        old = table + _BYTES * index
        if value(old, FIRST) != 0:
            _copy(_slot(larger, larger_slots, value(old, FIRST), value(old, SECOND)), old)


@compiled
def count_by_bucket(control: int, counts: int) -> None:
    for index in range(value(control, t.KEY_SLOTS)):
        first = value(value(control, t.KEY_TABLE) + _BYTES * index, FIRST)
        if first != 0:
            add(counts, bucket_of(first, value(control, t.BUCKETS)), 1)


@compiled
def deal_out(control: int, entries: int, starts: int) -> None:
    """Append what the table holds to its buckets in `entries`; `starts`: the number of each bucket's next entry."""
    for index in range(value(control, t.KEY_SLOTS)):
        slot = value(control, t.KEY_TABLE) + _BYTES * index
        if value(slot, FIRST) != 0:
            bucket = bucket_of(value(slot, FIRST), value(control, t.BUCKETS))
            _copy(entries + _BYTES * value(starts, bucket), slot)
            add(starts, bucket, 1)


@inlined
def _slot(table: int, slots: int, first: int, second: int) -> int:
    """Where the key is, or would be."""
    index = first & (slots - 1)
    while True:
        slot = table + _BYTES * index
        if value(slot, FIRST) == 0 or (value(slot, FIRST) == first and value(slot, SECOND) == second):
            return slot
        index = (index + 1) & (slots - 1)


@inlined
def _copy(target: int, source: int) -> None:
    for place in range(t.ENTRY):
        set_value(target, place, value(source, place))
