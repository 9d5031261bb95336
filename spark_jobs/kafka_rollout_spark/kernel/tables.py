"""The memory of one scan: the kernel's input, its progress, and the tables that it fills. The size is bounded.

The memory consists of blocks of 64-bit numbers. The kernel gets one address, that of `control`, which contains the
addresses of the other blocks. Array arguments would be reference-counted in every function. If a table is full, the
kernel returns. Python reads the rows, empties the table, and calls the kernel again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafka_rollout_spark.kernel.programs import Numbers, Programs
from kafka_rollout_spark.kernel.walking import MARKS as _MARKS
from kafka_rollout_spark.kernel.walking import TAGS_AT_ONCE

# --- places in `control` ---
# Set by Python: the chunk, memory for a decompressed batch, the offset range to read, the options.
DATA_AT, DATA_SIZE, SCRATCH_AT, SCRATCH_SIZE, START, STOP, DEEP, LIVE, KEY_ROOM, BUCKETS = range(10)
LZ4_CONTEXT, LZ4_RESET, LZ4_DECOMPRESS, ZSTD_CONTEXT, ZSTD_DECOMPRESS = range(10, 15)
NAMES_AT, NAMES_SIZE, STATES_AT, STATES_SIZE = range(15, 19)  # memory for names, and for keys and values
NAME_SLOTS, STATE_SLOTS, KEY_SLOTS, KEYS_USED = range(19, 23)
BASE = 23  # the offsets of entries are relative to this offset
GIVEN = 24  # bytes in the scratch that Python decompressed; −1: none
# Progress of the kernel: the batch in the chunk, the rest of its payload (if IN_BATCH), the stage of the record.
POSITION, SIZE, IN_BATCH, PAYLOAD, PAYLOAD_END, BATCH_OFFSET, BATCH_LAST, RECORDS_LEFT, STAGE, TAGS_DONE = range(25, 35)
WAITING = 35  # number of records in `queue`
WANTED = 36  # bytes of the payload, or bytes that a full table needs
# Counters.
RECORDS, BATCHES, CONTROL_BATCHES, LOG_BYTES = range(37, 41)
FIRST_OFFSET, LAST_OFFSET, FIRST_TIMESTAMP, LAST_TIMESTAMP = range(41, 45)
CLASSES, NAMES, NAMES_USED, STATES, STATES_USED = range(45, 50)
# Addresses of the tables in Programs and in Tables, in their order.
STEPS, PROGRAM_TAGS, KEYS, VALUES, STARTS, LOADED, STATE, COMMITS = range(50, 58)
IO, MARKS, SEEN = range(58, 61)
CLASS_SLOTS, CLASS_CODE, CLASS_COUNT, CLASS_FIRST, CLASS_LAST, CLASS_BATCH = range(61, 67)
CLASS_KEY, CLASS_KEY_SIZE, CLASS_VALUE, CLASS_VALUE_SIZE = range(67, 71)
NAME_HASH, NAME_WHAT, NAME_COUNT, NAME_FIRST, NAME_LAST, NAME_AT, NAME_SIZE = range(71, 78)
STATE_HASH, STATE_CLASS, STATE_OFFSET, STATE_AT, STATE_ROOM, STATE_KEY, STATE_VALUE = range(78, 85)
KEY_TABLE, KEY_ENTRIES, QUEUE = range(85, 88)
PRODUCER_ID, PRODUCER_FIRST, PRODUCER_LAST, PRODUCER_MARKER = range(88, 92)
PAYLOAD_AT = 92  # where the payload begins
LAST_CLASS = 93  # class of the previous record; −1: none
# Set by Python: the hashes of the log's name, and the address of the random numbers for the keys' hashes.
FIRST_SEED, SECOND_SEED, HASH_NUMBERS = range(94, 97)
GROUPS = 97  # number of stored names of groups that committed in this log
PRODUCER_SLOTS, PRODUCERS = range(98, 100)
CRC32C = 100  # address of the C function; 0: none
_CONTROLS = 101

MOST_CLASSES = 2048
SLOTS_OF_CLASSES = 4 * MOST_CLASSES
_NAME_SLOTS, NAME_BYTES = 1 << 16, 4 << 20
_STATE_SLOTS, STATE_BYTES = 1 << 14, 8 << 20
_PRODUCER_SLOTS = 1 << 12
_FIRST_KEY_SLOTS = 1 << 12
_MOST_KEY_SLOTS = 1 << 21  # 16 MiB, plus 38 MiB of entries
_FULL = 0.6  # largest share of used slots
ENTRY = 4  # numbers of an entry; a cache line of the processor contains two entries
WAITING_ENTRY = ENTRY + 1
AHEAD = 64  # records in the queue
NONE_YET = 2**62

# A class: records with the same two versions that fail with the same layouts. Its code: 17 bits for each version, and
# for key and value 14 bits each, one per layout with which it does not parse.
NO_VERSION = 1 << 16
VERSION_BITS, VERSION_MASK = 17, (1 << 17) - 1
LAYOUT_BITS = 14


class Tables(NamedTuple):
    """The blocks. Arrays with the same prefix have one number per class, name, …; a hash of 0 is an empty slot."""

    control: Numbers
    io: Numbers  # sizes for the C functions to read and write
    marks: Numbers
    seen: Numbers
    class_slots: Numbers  # class + 1; 0: empty
    class_code: Numbers
    class_count: Numbers
    class_first: Numbers  # offset of the first record
    class_last: Numbers  # base offset of the last batch with such a record
    class_batch: Numbers  # position of the first record's batch in the chunk
    class_key: Numbers  # position of the first record's key in that batch's payload
    class_key_size: Numbers
    class_value: Numbers
    class_value_size: Numbers
    name_hash: Numbers
    name_what: Numbers  # kind of name, and class
    name_count: Numbers
    name_first: Numbers
    name_last: Numbers  # offset of the last record; a record counts once
    name_at: Numbers  # position in the memory of names
    name_size: Numbers
    state_hash: Numbers
    state_class: Numbers
    state_offset: Numbers
    state_at: Numbers
    state_room: Numbers
    state_key: Numbers  # bytes of the key
    state_value: Numbers  # bytes of the value; −1: a tombstone
    key_table: Numbers  # slots of the hash table of keys (keys.py)
    key_entries: Numbers  # [key, ENTRY]: the newest record of each key
    queue: Numbers  # [record, WAITING_ENTRY]: records that are not in the table yet
    producer_id: Numbers
    producer_first: Numbers  # base offset of the first transactional batch, plus 1; 0: none
    producer_last: Numbers  # last offset of the last transactional batch, plus 1
    producer_marker: Numbers  # offset of the last marker, plus 1; 0: none


def create_tables(*, deep: bool, live: bool, buckets: int) -> Tables:
    """Return empty tables; tables that the scan does not use have one slot."""
    groups = {
        "class": MOST_CLASSES,
        "name": _NAME_SLOTS if deep else 1,
        "state": _STATE_SLOTS if deep else 1,
        "producer": _PRODUCER_SLOTS if deep else 1,
    }
    shapes: dict[str, tuple[int, ...]] = {
        "control": (_CONTROLS,),
        "io": (2,),
        "marks": (_MARKS,),
        "seen": (2 * TAGS_AT_ONCE,),
        "class_slots": (SLOTS_OF_CLASSES,),
        "key_table": (_FIRST_KEY_SLOTS if live else 1,),
        "queue": (AHEAD, WAITING_ENTRY),
    }
    # Sized for the maximum number of keys. The operating system provides memory only for entries that are written.
    key_entries = np.empty((int(_FULL * _MOST_KEY_SLOTS) if live else 1, ENTRY), dtype=np.int64)
    blocks = {
        name: np.zeros(shapes.get(name) or groups[name.partition("_")[0]], dtype=np.int64)
        for name in Tables._fields
        if name != "key_entries"
    }
    tables = Tables(**blocks, key_entries=key_entries)
    control = tables.control
    for place, table in enumerate(tables[1:], start=IO):
        control[place] = table.ctypes.data
    control[NAME_SLOTS], control[STATE_SLOTS] = groups["name"], groups["state"]
    control[PRODUCER_SLOTS] = groups["producer"]
    _set_key_table(control, tables.key_table)
    control[DEEP], control[LIVE], control[BUCKETS] = deep, live, buckets
    control[GIVEN] = -1
    return tables


def _set_key_table(control: Numbers, table: Numbers) -> None:
    control[KEY_TABLE], control[KEY_SLOTS], control[KEY_ROOM] = table.ctypes.data, len(table), int(_FULL * len(table))


def larger_key_table(tables: Tables) -> Tables:
    """Return the tables with an empty key table of twice the size; unchanged if it has the maximum size."""
    slots = 2 * len(tables.key_table)
    if slots > _MOST_KEY_SLOTS:
        return tables
    tables = tables._replace(key_table=np.zeros(slots, dtype=np.int64))
    _set_key_table(tables.control, tables.key_table)
    return tables


def set_programs(control: Numbers, programs: Programs) -> None:
    for place, table in enumerate(programs, start=STEPS):
        control[place] = table.ctypes.data
