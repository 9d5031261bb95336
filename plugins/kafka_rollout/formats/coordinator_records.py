"""Records of the coordinator logs: their kinds, and the layouts with which a release reads them.

Key and value begin with an int16. In the key it is the record type (key version in KIP-915), in the value the schema
version. A null value is a tombstone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any

from kafka_rollout.formats.layouts import ZERO_UUID, Layout, MessageSchema, StructLayout
from kafka_rollout.formats.log_types import Bytes, LogFormatError, RecordBatch, RecordKind, RecordSpan
from kafka_rollout.formats.messages import Decoded, MessageFormatError, decode, field_path, join
from kafka_rollout.formats.record_batch import batches, check_crc, payload, records
from kafka_rollout.releases.facts import FieldRule, RuleKind

VERSION_BYTES = 2
UNREADABLE_VALUE = -1  # a value that is too short to have a version

ClassKey = tuple[int | None, int | None]
OnRecord = Callable[[bytes, RecordSpan, ClassKey], None]  # payload, position of the record in it, its kind
OnBatch = Callable[[RecordBatch, bytes], None]  # batch and payload, before its records
OnDamage = Callable[[RecordBatch, LogFormatError], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLayouts:
    """The layouts of one record type in one release."""

    name: str
    """Of the catalogue, such as OffsetCommit."""
    key: Layout
    value: MessageSchema
    rules: tuple[FieldRule, ...] = ()
    """The checks of its coordinator for fields of a value."""

    def value_layout(self, version: int) -> Layout:
        """Return the layout of the value at a valid version, with the rules."""
        return with_rules(self.value.layout(version), self.rules)


@dataclass(slots=True, kw_only=True)
class KindCounts:
    """Counts by (key version, value version) of one log partition or a range of it.

    Key version None: the key is null or too short to have a version. Value version None: a tombstone. Control batches
    (transaction markers) are counted separately, because coordinators skip their records.
    """

    counts: Counter[ClassKey] = field(default_factory=Counter)
    first_offsets: dict[ClassKey, int] = field(default_factory=dict)
    last_batches: dict[ClassKey, int] = field(default_factory=dict)
    """Base offset of the last batch with such a record."""
    batches: int = 0
    control_batches: int = 0
    log_bytes: int = 0

    def add(
        self,
        buffer: Bytes,
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
                check_crc(batch)
                if batch.last_offset < start or batch.base_offset >= end:
                    continue
                data = payload(batch)
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

    def _add_records(self, batch: RecordBatch, data: bytes, start: int, end: int, on_record: OnRecord | None) -> None:
        for record in records(batch, data):
            if not start <= record.offset < end:
                continue
            if record.offset > batch.last_offset:
                raise LogFormatError(
                    f"The batch at offset {batch.base_offset} is corrupt: it ends at {batch.last_offset} and has a "
                    f"record at {record.offset}."
                )
            what = classify(data, record)
            self.counts[what] += 1
            if what not in self.first_offsets:
                self.first_offsets[what] = record.offset
            self.last_batches[what] = batch.base_offset
            if on_record is not None:
                on_record(data, record, what)


def classify(data: bytes, span: RecordSpan) -> ClassKey:
    """Return (key version, value version) of a record in `data`."""
    at, value_at = span.key_at, span.value_at
    key = int.from_bytes(data[at : at + 2], "big", signed=True) if span.key_length >= 2 else None
    if span.value_length < 0:
        return key, None
    if span.value_length < 2:
        return key, UNREADABLE_VALUE
    return key, int.from_bytes(data[value_at : value_at + 2], "big", signed=True)


CONSUMER_PROTOCOL = "consumer"  # coordinators read the subscriptions of groups with this protocol type
PROTOCOL_TYPE, PROTOCOL = "protocolType", "protocol"  # GroupMetadataValue's fields
_INT16, _INT32 = Struct(">h"), Struct(">i")


def with_rules(layout: Layout, rules: Sequence[FieldRule]) -> Layout:
    """Return the layout with the rules for fields that it has."""
    paths = set(_paths(layout.struct, ""))
    return replace(layout, rules=tuple(rule for rule in rules if rule.field in paths))


def decode_checked(layout: Layout, data: Bytes, at: int = 0) -> Decoded:
    """Decode a message and check its rules. Raises MessageFormatError if it does not parse or breaks a rule."""
    found = decode(layout, data, at)
    for rule in layout.rules:
        for content in _values(rule.field, found.value):
            if _is_broken(rule, content, found.value):
                words = f': "{rule.refusal.replace("{value}", str(content))}"' if rule.refusal else ""
                what = f"{layout.name} version {layout.version}"
                raise MessageFormatError(
                    f"{what} is read and then refused, since {rule.field} is {_format_content(content)}{words}"
                )
    return found


def _format_content(content: Any) -> str:
    if isinstance(content, bytes):
        return "not what consumers write"
    return "null" if content is None else repr(content)


def _is_broken(rule: FieldRule, content: Any, value: Mapping[str, Any]) -> bool:
    match rule.kind:
        case RuleKind.BETWEEN:
            return not rule.least <= content <= rule.most
        case RuleKind.SET_UNLESS_ZERO:
            names = list(value)
            return content is None and value[names[names.index(rule.field) - 1]] != 0
        case RuleKind.FILLED:
            return content in ("", ZERO_UUID)
        case RuleKind.SUBSCRIPTION:
            is_read = value[PROTOCOL_TYPE] == CONSUMER_PROTOCOL and value[PROTOCOL] is not None
            return is_read and is_bad_subscription(content)


def is_bad_subscription(data: bytes) -> bool:
    """Return whether reading the topics of a member's subscription raises an error that the coordinator does not catch.

    Source: ConsumerProtocol.deserializeVersion, then ConsumerProtocolSubscription at version 0. Bytes that end before a
    number raise a SchemaException, which computeSubscribedTopics catches. An impossible length raises another error.
    """
    at, end = _INT16.size, len(data)
    if end < at + _INT32.size:
        return False
    (topics,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    if not 0 <= topics <= end - at:
        return True
    for _ in range(topics):
        if end - at < _INT16.size:
            return False
        (size,) = _INT16.unpack_from(data, at)
        at += _INT16.size
        if not 0 <= size <= end - at:
            return True
        at += size
    return end - at >= _INT32.size and _INT32.unpack_from(data, at)[0] > end - at - _INT32.size


def _values(path: str, value: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the value of the field for each element of the arrays on its path."""
    head, _, rest = path.partition(".")
    if not rest:
        yield value[head]
        return
    for element in value[head.removesuffix("[]")] or ():
        yield from _values(rest, element)


def _paths(struct: StructLayout, path: str) -> Iterator[str]:
    for one in (*struct.fields, *struct.tagged.values()):
        yield field_path(path, one)
        if one.struct is not None:
            yield from _paths(one.struct, join(path, one))
