"""Adds one record to the tables: its class, group or transactional id, committed topic, tags, state and key.

Of transactional batches, only the headers are added (note_producer).

Each step of a record that can find a table full is a stage. STAGE is the number of finished stages of the current
record. Room in the table of keys (keys.py) is ensured before a record begins.
"""

from __future__ import annotations

from kafka_rollout_spark.kernel import compiled, inlined
from kafka_rollout_spark.kernel import programs as p
from kafka_rollout_spark.kernel import tables as t
from kafka_rollout_spark.kernel.hashing import hashes
from kafka_rollout_spark.kernel.keys import DONE, queue_record
from kafka_rollout_spark.kernel.memory import add, copy, hash_at, int16_at, item, set_item, set_value, value
from kafka_rollout_spark.kernel.programs import MOST_GROUPS
from kafka_rollout_spark.kernel.walking import FAILED, KEPT_MARKS, KEY_MARKS, TAGS_AT_ONCE, TAGS_SEEN, VALUE_MARKS, walk

FULL_CLASSES = 1
FULL_NAMES = 2
FULL_STATES = 3
FULL_PRODUCERS = 6
FAR = 5  # the batch is before BASE, or too far after it for the offsets of entries

OWNER_NAME, COMMITS_NAME, TAG_NAME, GROUP_NAME = 0, 1, 2, 3  # kinds of names; GROUP_NAME: a group that commits
_SPREAD = 0x2545F4914F6CDD1D


@inlined
def versions_code(key_at: int, key_size: int, value_at: int, value_size: int) -> int:
    """Return the class code (tables.py) of a record whose key and value parse with all layouts."""
    of_key = int16_at(key_at) & 0xFFFF if key_size >= 2 else t.NO_VERSION
    of_value = t.NO_VERSION
    if value_size >= 0:  # a value below two bytes: formats.coordinator_records.UNREADABLE_VALUE
        of_value = int16_at(value_at) & 0xFFFF if value_size >= 2 else 0xFFFF
    return (of_key << t.VERSION_BITS | of_value) << 2 * t.LAYOUT_BITS


@compiled
def class_of(control: int, code: int, offset: int) -> int:
    """Return the class with this code; adds it with this first offset if it is new. FAILED if the table is full."""
    before = value(control, t.LAST_CLASS)
    if before != FAILED and item(control, t.CLASS_CODE, before) == code:
        return before
    slot = ((code * _SPREAD) >> 40) & (t.SLOTS_OF_CLASSES - 1)
    while item(control, t.CLASS_SLOTS, slot) != 0:
        found = item(control, t.CLASS_SLOTS, slot) - 1
        if item(control, t.CLASS_CODE, found) == code:
            set_value(control, t.LAST_CLASS, found)
            return found
        slot = (slot + 1) & (t.SLOTS_OF_CLASSES - 1)
    new = value(control, t.CLASSES)
    if new == t.MOST_CLASSES:
        return FAILED
    set_item(control, t.CLASS_SLOTS, slot, new + 1)
    set_item(control, t.CLASS_CODE, new, code)
    set_item(control, t.CLASS_COUNT, new, 0)
    set_item(control, t.CLASS_FIRST, new, offset)
    set_item(control, t.CLASS_BATCH, new, value(control, t.POSITION))
    set_value(control, t.CLASSES, new + 1)
    return new


@compiled
def count_in_class(control: int, known: int, records: int) -> None:
    """Add records of the current batch to a class. The class can be FAILED if `records` is 0."""
    if records > 0:
        add_item(control, t.CLASS_COUNT, known, records)
        set_item(control, t.CLASS_LAST, known, value(control, t.BATCH_OFFSET))


@compiled
def add_item(control: int, table: int, index: int, more: int) -> None:
    add(value(control, table), index, more)


@inlined
def _walk_layouts(control: int, table: int, row: int, at: int, end: int, kept: int) -> tuple[int, int]:
    """Walk a key or a value by all layouts of a row of KEYS or VALUES.

    Return the layouts with which it does not parse (one bit each), and the first program that parses it; FAILED if none
    does. The first slots of that program are copied to `kept` of `marks`.
    """
    marks, first = value(control, t.MARKS), item(control, table, row)
    steps, tags_of, seen = value(control, t.STEPS), value(control, t.PROGRAM_TAGS), value(control, t.SEEN)
    broken, parses, walked, after = 0, FAILED, FAILED, FAILED
    for layout in range(item(control, table, row + 1)):
        program = item(control, t.STARTS, first + layout)
        if program != walked:
            walked = program
            set_value(marks, p.OWNER, FAILED)
            set_value(marks, p.TOPIC, FAILED)
            after = walk(steps, tags_of, program, at, end, marks, seen, 0)
        if after == FAILED:
            broken |= 1 << layout
        elif parses == FAILED:
            parses = program
            for slot in range(KEPT_MARKS):
                set_value(marks, kept + slot, value(marks, slot))
    return broken, parses


@inlined
def _parse(control: int, code: int, key_at: int, key_size: int, value_at: int, value_size: int) -> tuple[int, int, int]:
    """Return the class code with the layouts that fail, and the first programs that parse key and value, or FAILED."""
    key_version, value_version = _key_version(code), _value_version(code)
    if not value(control, t.DEEP) or key_version >= p.KEY_VERSIONS:
        return code, FAILED, FAILED
    broken, of_key = _walk_layouts(control, t.KEYS, 2 * key_version, key_at + 2, key_at + key_size, KEY_MARKS)
    code |= broken << t.LAYOUT_BITS
    if of_key == FAILED or value_version >= p.VALUE_VERSIONS:
        return code, of_key, FAILED
    row = 2 * (p.VALUE_VERSIONS * key_version + value_version)
    broken, of_value = _walk_layouts(control, t.VALUES, row, value_at + 2, value_at + value_size, VALUE_MARKS)
    return code | broken, of_key, of_value


@inlined
def _key_version(code: int) -> int:
    return (code >> (t.VERSION_BITS + 2 * t.LAYOUT_BITS)) & t.VERSION_MASK


@inlined
def _value_version(code: int) -> int:
    return (code >> (2 * t.LAYOUT_BITS)) & t.VERSION_MASK


@compiled
def note_record(control: int, offset: int, key_at: int, key_size: int, value_at: int, value_size: int) -> int:
    """Add one record to the tables. Return DONE, or the code of the table that is full.

    A second call for the same record continues with the first stage that is not finished.
    """
    marks = value(control, t.MARKS)
    code = versions_code(key_at, key_size, value_at, value_size)
    key_version = _key_version(code)
    code, of_key, of_value = _parse(control, code, key_at, key_size, value_at, value_size)
    owner_at = topic_at = FAILED
    owner_size = topic_size = 0
    if of_key != FAILED:
        owner_at, owner_size = value(marks, KEY_MARKS + p.OWNER), value(marks, KEY_MARKS + p.OWNER + 1)
        topic_at, topic_size = value(marks, KEY_MARKS + p.TOPIC), value(marks, KEY_MARKS + p.TOPIC + 1)
    wanted = owner_at != FAILED and not _is_loaded(control, code)

    known = class_of(control, code, offset)
    if not _count_record(control, known, key_at, key_size, value_at, value_size):
        return FULL_CLASSES
    commits = topic_at != FAILED and item(control, t.COMMITS, key_version) != 0
    if not (
        _note_name_at(control, 1, OWNER_NAME, known, owner_at, owner_size, offset, wanted)
        and _note_name_at(control, 2, COMMITS_NAME, known, topic_at, topic_size, offset, commits)
        and _note_name_at(control, 3, GROUP_NAME, known, owner_at, owner_size, offset, commits)
        and _note_tags(control, known, of_value, value_at, value_size, offset)
    ):
        return FULL_NAMES
    keeps_state = of_key != FAILED and item(control, t.STATE, key_version) != 0
    if not _note_newest(control, known, offset, key_at, key_size, value_at, value_size, keeps_state):
        return FULL_STATES
    if value(control, t.LIVE) and key_size >= 0:
        owner = hash_at(owner_at, owner_size) if wanted else 0
        note_key(control, known, offset, key_at, key_size, owner)
    return DONE


@inlined
def _is_loaded(control: int, code: int) -> bool:
    """Return whether all requested releases load the record, and all layouts parse it."""
    key_version, value_version = _key_version(code), _value_version(code)
    row = 0 if value_version == t.NO_VERSION else value_version + 1
    loaded = row <= p.VALUE_VERSIONS and item(control, t.LOADED, (p.VALUE_VERSIONS + 1) * key_version + row) != 0
    return loaded and code & ((1 << 2 * t.LAYOUT_BITS) - 1) == 0


@inlined
def _count_record(control: int, known: int, key_at: int, key_size: int, value_at: int, value_size: int) -> bool:
    """Stage 0: count the record in its class; the first one is its example. Return False if the table is full."""
    if value(control, t.STAGE) != 0:
        return True
    if known == FAILED:
        return False
    if item(control, t.CLASS_COUNT, known) == 0:
        set_item(control, t.CLASS_KEY, known, key_at - value(control, t.PAYLOAD_AT))
        set_item(control, t.CLASS_KEY_SIZE, known, key_size)
        set_item(control, t.CLASS_VALUE, known, value_at - value(control, t.PAYLOAD_AT))
        set_item(control, t.CLASS_VALUE_SIZE, known, value_size)
    count_in_class(control, known, 1)
    add(control, t.RECORDS, 1)
    set_value(control, t.STAGE, 1)
    return True


@inlined
def _note_name_at(
    control: int, stage: int, kind: int, known: int, at: int, size: int, offset: int, wanted: bool
) -> bool:
    """Do the stage of a name, if it is wanted and not finished. Return False if the table is full."""
    if value(control, t.STAGE) == stage:
        if wanted and not _note_name(control, kind << 32 | known, at, size, offset):
            return False
        set_value(control, t.STAGE, stage + 1)
    return True


@inlined
def _note_tags(control: int, known: int, program: int, value_at: int, value_size: int, offset: int) -> bool:
    """Stage 4: add the tagged fields of the value, TAGS_AT_ONCE in each walk. Return False if the table is full."""
    if value(control, t.STAGE) != 4:
        return True
    if program == FAILED:
        set_value(control, t.STAGE, 5)
        return True
    marks, steps, tags_of = value(control, t.MARKS), value(control, t.STEPS), value(control, t.PROGRAM_TAGS)
    seen, tags = value(control, t.SEEN), value(marks, VALUE_MARKS + TAGS_SEEN)
    while value(control, t.TAGS_DONE) < tags:
        done = value(control, t.TAGS_DONE)
        walk(steps, tags_of, program, value_at + 2, value_at + value_size, marks, seen, done)
        for place in range(min(tags - done, TAGS_AT_ONCE)):
            path, tag = value(seen, 2 * place), value(seen, 2 * place + 1)
            if not _note_tag(control, TAG_NAME << 32 | known, path, tag, offset):
                return False
            add(control, t.TAGS_DONE, 1)
    set_value(control, t.STAGE, 5)
    return True


@inlined
def _note_newest(
    control: int, known: int, offset: int, key_at: int, key_size: int, value_at: int, value_size: int, wanted: bool
) -> bool:
    """Stage 5: keep the newest value of the key, if it is wanted. Return False if the table is full."""
    if value(control, t.STAGE) == 5:
        if wanted and not _note_state(control, known, offset, key_at, key_size, value_at, value_size):
            return False
        set_value(control, t.STAGE, 6)
    return True


@inlined
def note_key(control: int, known: int, offset: int, key_at: int, key_size: int, owner: int) -> None:
    seed, other_seed = value(control, t.FIRST_SEED), value(control, t.SECOND_SEED)
    first, second = hashes(key_at, key_size, seed, other_seed, value(control, t.HASH_NUMBERS))
    queue_record(control, first, second, owner, (offset - value(control, t.BASE)) | known << 32)


@compiled
def _count_name(control: int, hashed: int, what: int, offset: int) -> int:
    """Count the record if the name is known, and return FAILED. Otherwise return a free slot, or NAME_SLOTS if full."""
    size = value(control, t.NAME_SLOTS)
    slot = (((hashed ^ what * _SPREAD) * _SPREAD) >> 40) & (size - 1)
    while item(control, t.NAME_HASH, slot) != 0:
        if item(control, t.NAME_HASH, slot) == hashed and item(control, t.NAME_WHAT, slot) == what:
            if item(control, t.NAME_LAST, slot) != offset:
                add_item(control, t.NAME_COUNT, slot, 1)
                set_item(control, t.NAME_LAST, slot, offset)
            return FAILED
        slot = (slot + 1) & (size - 1)
    return size if 2 * value(control, t.NAMES) >= size else slot


@compiled
def _new_name(control: int, slot: int, hashed: int, what: int, offset: int) -> None:
    set_item(control, t.NAME_HASH, slot, hashed)
    set_item(control, t.NAME_WHAT, slot, what)
    set_item(control, t.NAME_COUNT, slot, 1)
    set_item(control, t.NAME_FIRST, slot, offset)
    set_item(control, t.NAME_LAST, slot, offset)
    add(control, t.NAMES, 1)


@compiled
def _note_name(control: int, what: int, at: int, size: int, offset: int) -> bool:
    hashed, used = hash_at(at, size), value(control, t.NAMES_USED)
    slot = _count_name(control, hashed, what, offset)
    if slot == FAILED:
        return True
    if what >> 32 == GROUP_NAME and value(control, t.GROUPS) == MOST_GROUPS:
        return True
    if slot == value(control, t.NAME_SLOTS) or used + size > value(control, t.NAMES_SIZE):
        return False
    add(control, t.GROUPS, 1 if what >> 32 == GROUP_NAME else 0)
    _new_name(control, slot, hashed, what, offset)
    set_item(control, t.NAME_AT, slot, used)
    set_item(control, t.NAME_SIZE, slot, size)
    copy(value(control, t.NAMES_AT) + used, at, size)
    add(control, t.NAMES_USED, size)
    return True


@compiled
def _note_tag(control: int, what: int, path: int, tag: int, offset: int) -> bool:
    hashed = (path << 33 | (tag & 0xFFFFFFFF)) + 1  # path and tag themselves, and never 0
    slot = _count_name(control, hashed, what, offset)
    if slot == FAILED:
        return True
    if slot == value(control, t.NAME_SLOTS):
        return False
    _new_name(control, slot, hashed, what, offset)
    return True


@compiled
def _note_state(
    control: int, known: int, offset: int, key_at: int, key_size: int, value_at: int, value_size: int
) -> bool:
    """Store key and value. A newer value of the same key replaces the older one if it fits. Return False if full."""
    slots, used = value(control, t.STATE_SLOTS), value(control, t.STATES_USED)
    hashed, needed = hash_at(key_at, key_size), key_size + max(value_size, 0)
    slot = (hashed >> 20) & (slots - 1)
    while item(control, t.STATE_HASH, slot) != 0 and item(control, t.STATE_HASH, slot) != hashed:
        slot = (slot + 1) & (slots - 1)
    is_new = item(control, t.STATE_HASH, slot) == 0
    if is_new or item(control, t.STATE_ROOM, slot) < needed:
        set_value(control, t.WANTED, needed)
        if used + needed > value(control, t.STATES_SIZE) or (is_new and 2 * value(control, t.STATES) >= slots):
            return False
        set_item(control, t.STATE_AT, slot, used)
        set_item(control, t.STATE_ROOM, slot, needed)
        add(control, t.STATES_USED, needed)
        add(control, t.STATES, 1 if is_new else 0)
    set_item(control, t.STATE_HASH, slot, hashed)
    set_item(control, t.STATE_CLASS, slot, known)
    set_item(control, t.STATE_OFFSET, slot, offset)
    set_item(control, t.STATE_KEY, slot, key_size)
    set_item(control, t.STATE_VALUE, slot, value_size)
    at = value(control, t.STATES_AT) + item(control, t.STATE_AT, slot)
    copy(at, key_at, key_size)
    copy(at + key_size, value_at, max(value_size, 0))
    return True


@compiled
def note_producer(control: int, producer: int, base: int, last: int, is_marker: int) -> bool:
    """Add a batch or a marker to its producer id, also if it was added before. Return False if the table is full."""
    slots = value(control, t.PRODUCER_SLOTS)
    slot = ((producer * _SPREAD) >> 40) & (slots - 1)
    while item(control, t.PRODUCER_FIRST, slot) != 0 or item(control, t.PRODUCER_MARKER, slot) != 0:
        if item(control, t.PRODUCER_ID, slot) == producer:
            break
        slot = (slot + 1) & (slots - 1)
    else:
        if 2 * value(control, t.PRODUCERS) >= slots:
            return False
        add(control, t.PRODUCERS, 1)
        set_item(control, t.PRODUCER_ID, slot, producer)
    # Offsets are stored plus 1, so that 0 means none.
    if is_marker:
        set_item(control, t.PRODUCER_MARKER, slot, max(item(control, t.PRODUCER_MARKER, slot), last + 1))
        return True
    first = item(control, t.PRODUCER_FIRST, slot)
    set_item(control, t.PRODUCER_FIRST, slot, base + 1 if first == 0 else min(first, base + 1))
    set_item(control, t.PRODUCER_LAST, slot, max(item(control, t.PRODUCER_LAST, slot), last + 1))
    return True
