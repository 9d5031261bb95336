"""The producers' marks of stored records: producer id, epoch and sequence in the headers of their batches."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.kafka.client.fetch import FetchSource
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.kafka.formats.record_batch import batches
from kafka_rollout.kafka.formats.record_kinds import LogRange
from kafka_rollout.traffic.check import Position, ProducerMark

log = logging.getLogger(__name__)
_SEQUENCES = 1 << 31  # a sequence continues at 0 after the highest int32 (DefaultRecordBatch.incrementSequence)


def read_marks(
    bootstrap_servers: str, security: ClientSecurity, positions: Collection[Position]
) -> dict[Position, ProducerMark]:
    """Read the marks by Fetch requests. Positions of a partition that cannot be read are left out."""
    offsets: dict[tuple[str, int], set[int]] = defaultdict(set)
    for position in positions:
        offsets[position.topic, position.partition].add(position.offset)
    found: dict[Position, ProducerMark] = {}
    try:
        with FetchSource(bootstrap_servers, security) as source:
            for (topic, partition), wanted in offsets.items():
                what = LogRange(topic=topic, partition=partition, start=min(wanted), end=max(wanted) + 1)
                for fetched in source.read(what):
                    for batch in batches(fetched.data):
                        for offset in wanted & set(range(batch.base_offset, batch.last_offset + 1)):
                            sequence = (batch.base_sequence + offset - batch.base_offset) % _SEQUENCES
                            mark = ProducerMark(batch.producer_id, batch.producer_epoch, sequence)
                            found[Position(topic, partition, offset)] = mark
    except RolloutError as error:
        log.warning("Not every producer of a record at several positions is known: %s", error)
    return found
