"""Single records of the coordinator logs: decoded with the newest layout that reads them, and checked with all layouts.

The compiled kernel of the Spark job does the same checks without making values of the fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_rollout.formats.coordinator_records import VERSION_BYTES, ClassKey, KindCounts, decode_checked
from kafka_rollout.formats.documents.definitions import Schemas
from kafka_rollout.formats.layouts import Layout
from kafka_rollout.formats.log_types import Bytes, LogFormatError, RecordBatch, RecordSpan
from kafka_rollout.formats.messages import Decoded, MessageFormatError
from kafka_rollout.releases.facts import Release

KEY, VALUE = "key", "value"
_MOST_KEYS = 50_000  # committed offsets repeat their keys


@dataclass(frozen=True, slots=True, kw_only=True)
class PartUse:
    """The layout of a key or value, and the releases that read the record with it."""

    part: str
    layout: Layout
    releases: tuple[Release, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindLayouts:
    """The layouts of one record kind in the order of the releases that were asked."""

    name: str | None
    """Of the catalogue, such as OffsetCommit; None if no release knows the key version."""
    uses: tuple[PartUse, ...]


def layouts_of_kind(
    schemas: Schemas, releases: Sequence[Release], topic: str, key: int | None, value: int | None
) -> KindLayouts:
    """Return the layouts with which these releases read records of this kind. `key`, `value`: as in RecordKind."""
    names: list[str] = []
    found: dict[tuple[str, Layout], list[Release]] = {}
    for release in releases:
        known = schemas.layouts(release, topic, key) if key is not None else None
        if known is None:
            continue
        names.append(known.name)
        parts = {KEY: known.key}
        if value is not None and value in known.value.valid_versions:
            parts[VALUE] = known.value_layout(value)
        for use in parts.items():
            found.setdefault(use, []).append(release)
    uses = (PartUse(part=part, layout=layout, releases=tuple(of)) for (part, layout), of in found.items())
    return KindLayouts(name=names[0] if names else None, uses=tuple(uses))


def parse(
    kind: KindLayouts, payload: bytes, record: RecordSpan
) -> Iterator[tuple[PartUse, Decoded | MessageFormatError]]:
    """Yield what each layout makes of a record, or why it does not parse."""
    for use in kind.uses:
        is_key = use.part == KEY
        at, length = (record.key_at, record.key_length) if is_key else (record.value_at, record.value_length)
        try:
            yield use, decode_checked(use.layout, payload[at : at + length], VERSION_BYTES)
        except MessageFormatError as error:
            yield use, error


@dataclass(frozen=True, slots=True)
class BrokenPart:
    """A key or value that `releases` cannot parse, or whose content they reject."""

    part: str
    releases: tuple[Release, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """One record. The fields are those of the newest layout that parses them."""

    offset: int
    batch_offset: int
    """Base offset of its batch."""
    timestamp: int
    """Epoch ms; −1: none."""
    key_version: int | None
    """As in RecordKind."""
    value_version: int | None
    """As in RecordKind."""
    name: str | None
    """As in KindLayouts."""
    key: Mapping[str, Any] | None
    value: Mapping[str, Any] | None
    broken: tuple[BrokenPart, ...] = ()


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    """A batch, or the rest of the bytes, that cannot be read."""

    offset: int
    """Of its first record, as the header names it or as it follows from the batch before it."""
    sentence: str


Kinds = Mapping[ClassKey, KindLayouts]
"""The record kinds of one log. A value version that no release reads has the layouts of its tombstone: of the key."""


def kinds_of_log(schemas: Schemas, releases: Sequence[Release], topic: str) -> Kinds:
    """Return the layouts of all record kinds that one of these releases reads. `releases`: the newest first."""
    found: dict[ClassKey, KindLayouts] = {}
    for release in releases:
        for key, known in schemas.log(release, topic).items():
            versions = known.value.valid_versions
            for value in (None, *range(versions.min, versions.max + 1)):
                if (key, value) not in found:
                    found[key, value] = layouts_of_kind(schemas, releases, topic, key, value)
    return found


_UNKNOWN = KindLayouts(name=None, uses=())


@dataclass(slots=True)
class RecordDecoder:
    """Decodes the records of one log."""

    kinds: Kinds
    _keys: dict[tuple[int | None, bytes], Mapping[str, Any]] = field(default_factory=dict)
    _values: dict[ClassKey, KindLayouts] = field(default_factory=dict)

    def read(self, data: Bytes, *, start: int, end: int) -> list[DecodedRecord | DamagedBatch]:
        """Return the records of whole batches with start <= offset < end, and the batches that cannot be read.

        Transaction markers are left out, because coordinators skip them.
        """
        found: list[DecodedRecord | DamagedBatch] = []
        base, following = -1, start

        def on_batch(batch: RecordBatch, _: bytes) -> None:
            nonlocal base, following
            base, following = batch.base_offset, max(start, batch.last_offset + 1)

        def on_record(payload: bytes, record: RecordSpan, what: ClassKey) -> None:
            found.append(self._decode(payload, record, what, base))

        def on_damage(batch: RecordBatch, error: LogFormatError) -> None:
            found.append(DamagedBatch(batch.base_offset, error.sentence))

        try:
            KindCounts().add(data, start=start, end=end, on_record=on_record, on_batch=on_batch, on_damage=on_damage)
        except LogFormatError as error:  # no batch begins here
            found.append(DamagedBatch(following, error.sentence))
        return found

    def _values_of(self, what: ClassKey, kind: KindLayouts) -> KindLayouts:
        """Return the layouts of the value alone, for a key that was decoded before."""
        if what not in self._values:
            uses = tuple(use for use in kind.uses if use.part == VALUE)
            self._values[what] = KindLayouts(name=kind.name, uses=uses)
        return self._values[what]

    def _decode(self, payload: bytes, record: RecordSpan, what: ClassKey, base: int) -> DecodedRecord:
        key_version, value_version = what
        kind = self.kinds.get(what) or self.kinds.get((key_version, None), _UNKNOWN)
        raw = payload[record.key_at : record.key_at + max(record.key_length, 0)]
        contents: dict[str, Mapping[str, Any]] = {}
        broken: list[BrokenPart] = []
        known_key = self._keys.get((key_version, raw))
        if known_key is not None:
            contents[KEY] = known_key
            kind = self._values_of(what, kind)
        for use, result in parse(kind, payload, record):
            if isinstance(result, Decoded):
                contents.setdefault(use.part, result.value)
            else:
                broken.append(BrokenPart(use.part, use.releases, result.sentence))
        if known_key is None and KEY in contents and not any(part.part == KEY for part in broken):
            if len(self._keys) >= _MOST_KEYS:
                self._keys.clear()
            self._keys[key_version, raw] = contents[KEY]
        return DecodedRecord(
            offset=record.offset,
            batch_offset=base,
            timestamp=record.timestamp,
            key_version=key_version,
            value_version=value_version,
            name=kind.name,
            key=contents.get(KEY),
            value=contents.get(VALUE),
            broken=tuple(broken),
        )
