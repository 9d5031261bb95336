"""Records of the coordinator logs: their kinds, and the layouts with which a release reads them.

Key and value begin with an int16. In the key it is the record type (key version in KIP-915), in the value the schema
version. A null value is a tombstone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_rollout.kafka.formats.field_rules import with_rules
from kafka_rollout.kafka.formats.layouts import Layout, MessageSchema
from kafka_rollout.kafka.formats.log_types import Batch, Bytes, Codecs, LogFormatError, RecordSpan
from kafka_rollout.kafka.formats.record_batch import batches, check_crc, payload, records
from kafka_rollout.kafka.formats.record_kinds import RecordKind
from kafka_rollout.releases.facts import FieldRule

VERSION_BYTES = 2
UNREADABLE_VALUE = -1  # a value that is too short to have a version

ClassKey = tuple[int | None, int | None]
OnRecord = Callable[[bytes, RecordSpan, ClassKey], None]  # payload, position of the record in it, its kind
OnBatch = Callable[[Batch, bytes], None]  # batch and payload, before its records
OnDamage = Callable[[Batch, LogFormatError], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLayouts:
    """The layouts of one record type in one release. `name`: of the catalogue, such as OffsetCommit.

    `rules`: the checks of its coordinator for fields of a value.
    """

    name: str
    key: Layout
    value: MessageSchema
    rules: tuple[FieldRule, ...] = ()

    def value_layout(self, version: int) -> Layout:
        """Return the layout of the value at a valid version, with the rules."""
        return with_rules(self.value.layout(version), self.rules)


@dataclass(slots=True, kw_only=True)
class KindCounts:
    """Counts by (key version, value version) of one log partition or a range of it.

    Key version None: the key is null or too short to have a version. Value version None: a tombstone. Control batches
    (transaction markers) are counted separately, because coordinators skip their records. `last_batches`: base offset
    of the last batch with such a record.
    """

    counts: Counter[ClassKey] = field(default_factory=Counter)
    first_offsets: dict[ClassKey, int] = field(default_factory=dict)
    last_batches: dict[ClassKey, int] = field(default_factory=dict)
    batches: int = 0
    control_batches: int = 0
    log_bytes: int = 0

    def add(
        self,
        buffer: Bytes,
        codecs: Codecs,
        *,
        start: int,
        end: int,
        on_record: OnRecord | None = None,
        on_batch: OnBatch | None = None,
        on_damage: OnDamage | None = None,
    ) -> None:
        """Count the records of complete batches with start <= offset < end.

        `on_record` is called with each record, `on_batch` with each batch, control batches included. `on_damage` gets
        each batch that cannot be read; without it, such a batch raises LogFormatError. Bytes that cannot begin a batch
        always do. A range can begin or end inside a batch.
        """
        for batch in batches(buffer):
            try:
                check_crc(batch, codecs)
                if batch.last_offset < start or batch.base_offset >= end:
                    continue
                data = payload(batch, codecs)
                self.batches += 1
                self.log_bytes += batch.size
                if on_batch is not None:
                    on_batch(batch, data)
                if batch.is_control:
                    self.control_batches += 1
                    continue
                self._add_records(batch, data, start, end, on_record)
            except LogFormatError as error:
                if on_damage is None:
                    raise
                on_damage(batch, error)

    def classes(self, topic: str, partition: int) -> list[RecordKind]:
        """Return the counts as record kinds of a log partition."""
        return [
            RecordKind(
                topic=topic,
                partition=partition,
                key_version=key,
                value_version=value,
                count=count,
                first_offset=self.first_offsets[key, value],
            )
            for (key, value), count in self.counts.items()
        ]

    def _add_records(self, batch: Batch, data: bytes, start: int, end: int, on_record: OnRecord | None) -> None:
        for record in records(batch, data):
            if not start <= record.offset < end:
                continue
            if record.offset > batch.last_offset:
                raise LogFormatError(
                    f"The batch at offset {batch.base_offset} is corrupt: it ends at {batch.last_offset} and has a "
                    f"record at {record.offset}."
                )
            what = classify(data, record.key_at, record.key_length, record.value_at, record.value_length)
            self.counts[what] += 1
            if what not in self.first_offsets:
                self.first_offsets[what] = record.offset
            self.last_batches[what] = batch.base_offset
            if on_record is not None:
                on_record(data, record, what)


def classify(data: bytes, key_at: int, key_length: int, value_at: int, value_length: int) -> ClassKey:
    """Return (key version, value version) of the record with key and value at these positions of `data`."""
    key = int.from_bytes(data[key_at : key_at + 2], "big", signed=True) if key_length >= 2 else None
    if value_length < 0:
        return key, None
    if value_length < 2:
        return key, UNREADABLE_VALUE
    return key, int.from_bytes(data[value_at : value_at + 2], "big", signed=True)
