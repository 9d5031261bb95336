"""Notes of each producer id, from headers of batches alone, where its transactions' data and their markers lie."""

from __future__ import annotations

from kafka_rollout_spark.kernel import tables as t
from kafka_rollout_spark.kernel.compiling import compiled
from kafka_rollout_spark.kernel.memory import add, item, set_item, value

FULL_PRODUCERS = 6
_SPREAD = 0x2545F4914F6CDD1D


@compiled
def note_producer(control: int, producer: int, base: int, last: int, is_marker: int) -> bool:
    """False if there is no room for another producer. Noted twice, a batch is noted once."""
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
    # Offsets by one more than they are, so that 0 is none.
    if is_marker:
        set_item(control, t.PRODUCER_MARKER, slot, max(item(control, t.PRODUCER_MARKER, slot), last + 1))
        return True
    first = item(control, t.PRODUCER_FIRST, slot)
    set_item(control, t.PRODUCER_FIRST, slot, base + 1 if first == 0 else min(first, base + 1))
    set_item(control, t.PRODUCER_LAST, slot, max(item(control, t.PRODUCER_LAST, slot), last + 1))
    return True
