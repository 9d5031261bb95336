"""The newest record of each key: of one log, and of a bucket, merged from the entries of all workers.

Each key has an entry; entries are in the order of the keys' first records. A hash table with open addressing maps a key
to its entry. Python enlarges the table, or empties table and entries. Two hashes identify a key (hashing.py).

Coordinators write the same keys in about the same order again and again, so consecutive records use neighbouring
entries. Only the reads of the table, with 8 bytes per slot, are at random places. Records wait in a queue until the
processor has prefetched their slot and entry.

In a bucket, each key has an item (`known`) instead of an entry, and Python enlarges both.
"""

from __future__ import annotations

from kafka_rollout_spark.kernel import compiled, inlined
from kafka_rollout_spark.kernel import tables as t
from kafka_rollout_spark.kernel.hashing import bucket_of
from kafka_rollout_spark.kernel.memory import add, copy, prefetch, set_value, value
from kafka_rollout_spark.kernel.walking import FAILED

DONE = 0
FULL_KEYS = 4

# Fields of an entry: two hashes of the key (the first is never 0), hash of the group or transactional id (0: not
# needed), offset − BASE | class << 32.
FIRST, SECOND, OWNER, PACKED = range(4)
# Fields of an item: as in an entry, but offset and class are separate.
OFFSET, CLASS, KNOWN = 3, 4, 5
_PLACE = t.ENTRY  # additional field in the queue: the slot
_OFFSET_MASK = 0xFFFFFFFF
_BYTES, _WAITING_BYTES, _ITEM_BYTES = 8 * t.ENTRY, 8 * t.WAITING_ENTRY, 8 * KNOWN
# A slot: the lower 32 bits are the number of the entry + 1 (0: empty), the upper 32 bits are from the second hash.
_NUMBER, _OF_HASH = 0xFFFFFFFF, -(1 << 32)


@inlined
def queue_record(control: int, first: int, second: int, owner: int, packed: int) -> None:
    """Add a record of a key to the queue. The caller ensures that the queue has fewer than AHEAD records."""
    waiting = value(control, t.WAITING)
    entry = value(control, t.QUEUE) + _WAITING_BYTES * waiting
    set_value(entry, FIRST, first)
    set_value(entry, SECOND, second)
    set_value(entry, OWNER, owner)
    set_value(entry, PACKED, packed)
    set_value(control, t.WAITING, waiting + 1)
    prefetch(value(control, t.KEY_TABLE) + 8 * (first & (value(control, t.KEY_SLOTS) - 1)))


@compiled
def insert_queued(control: int) -> int:
    """Move the queue into the table. Return DONE, or FULL_KEYS without a change if the table could become too full."""
    table, mask, used = value(control, t.KEY_TABLE), value(control, t.KEY_SLOTS) - 1, value(control, t.KEYS_USED)
    waiting, queue, entries = value(control, t.WAITING), value(control, t.QUEUE), value(control, t.KEY_ENTRIES)
    if used + waiting > value(control, t.KEY_ROOM):
        return FULL_KEYS
    for place in range(waiting):
        one = queue + _WAITING_BYTES * place
        slot = slot_of(table, mask, value(one, FIRST) & mask, value(one, SECOND))
        set_value(one, _PLACE, slot)
        prefetch(entries + _BYTES * ((value(table, slot) & _NUMBER) - 1))
    for place in range(waiting):
        one = queue + _WAITING_BYTES * place
        first, second, packed = value(one, FIRST), value(one, SECOND), value(one, PACKED)
        slot = value(one, _PLACE)  # an earlier record of the queue can have filled this slot
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
def fill_table(table: int, slots: int, entries: int, used: int, entry_size: int) -> None:
    """Insert all entries, or items, into an empty table. `entry_size`: numbers of one."""
    for number in range(used):
        entry = entries + 8 * entry_size * number
        _insert_number(table, slots - 1, value(entry, FIRST), value(entry, SECOND), number + 1)


@compiled
def count_by_bucket(control: int, counts: int) -> None:
    for number in range(value(control, t.KEYS_USED)):
        first = value(value(control, t.KEY_ENTRIES) + _BYTES * number, FIRST)
        add(counts, bucket_of(first, value(control, t.BUCKETS)), 1)


@compiled
def copy_to_buckets(control: int, target: int, starts: int) -> None:
    """Copy the entries, sorted by bucket, to the address `target`.

    `starts`: address of a list: bucket → number of its next entry. The list is updated.
    """
    for number in range(value(control, t.KEYS_USED)):
        entry = value(control, t.KEY_ENTRIES) + _BYTES * number
        bucket = bucket_of(value(entry, FIRST), value(control, t.BUCKETS))
        copy(target + _BYTES * value(starts, bucket), entry, _BYTES)
        add(starts, bucket, 1)


@inlined
def slot_of(table: int, mask: int, slot: int, second: int) -> int:
    """Return the next slot that is empty or can belong to the key, because 32 bits of its second hash are equal."""
    while value(table, slot) != 0 and (value(table, slot) ^ second << 32) & _OF_HASH != 0:
        slot = (slot + 1) & mask
    return slot


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
            prefetch(table + 8 * (value(entries + _BYTES * place, FIRST) & mask))
        for place in range(at, at + some):
            entry = entries + _BYTES * place
            slot = slot_of(table, mask, value(entry, FIRST) & mask, value(entry, SECOND))
            prefetch(known + _ITEM_BYTES * ((value(table, slot) & _NUMBER) - 1))
        for place in range(at, at + some):
            entry = entries + _BYTES * place
            first, second, packed = value(entry, FIRST), value(entry, SECOND), value(entry, PACKED)
            offset = base + (packed & 0xFFFFFFFF)
            one = _find(table, mask, known, first, second)
            if one == 0:
                one = known + _ITEM_BYTES * used
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


@inlined
def _find(table: int, mask: int, known: int, first: int, second: int) -> int:
    """Return the address of a key's item; 0 if there is none."""
    slot = slot_of(table, mask, first & mask, second)
    while value(table, slot) != 0:
        one = known + _ITEM_BYTES * ((value(table, slot) & _NUMBER) - 1)
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
