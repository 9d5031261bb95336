"""Table of producer ids: offsets of their transactional batches and of the transaction markers, from batch headers."""

from __future__ import annotations

from kafka_rollout_spark.kernel import tables as t
from kafka_rollout_spark.kernel.compiling import compiled
from kafka_rollout_spark.kernel.memory import add, item, set_item, value

FULL_PRODUCERS = 6
_SPREAD = 0x2545F4914F6CDD1D


@compiled
def note_producer(control: int, producer: int, base: int, last: int, is_marker: int) -> bool:
    """Add a batch to its producer id; a repeated call changes nothing. Return False if the table is full."""
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
