"""Records of a coordinator log that a release cannot parse although it knows their type and version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kafka_rollout.coordinator_logs.scan import BrokenRecords
from kafka_rollout.kafka.documents.definitions import Schemas
from kafka_rollout.kafka.formats.coordinator_records import VERSION_BYTES, ClassKey
from kafka_rollout.kafka.formats.field_rules import decode_checked
from kafka_rollout.kafka.formats.layouts import Layout
from kafka_rollout.kafka.formats.log_types import RecordSpan
from kafka_rollout.kafka.formats.messages import MessageFormatError
from kafka_rollout.kafka.formats.record_kinds import LogRange
from kafka_rollout.releases.facts import Release


@dataclass(frozen=True, slots=True)
class _Use:
    """A layout of a key or value, and the releases that use it."""

    part: str
    layout: Layout
    releases: list[Release]


@dataclass(slots=True, kw_only=True)
class ParsingChecks:
    """The broken records of one partition."""

    log: LogRange
    schemas: Schemas
    releases: Sequence[Release]
    broken: dict[tuple[ClassKey, str, int], BrokenRecords] = field(default_factory=dict)
    uses: dict[ClassKey, list[_Use]] = field(default_factory=dict)

    def found(self) -> tuple[BrokenRecords, ...]:
        return tuple(self.broken.values())

    def check(self, payload: bytes, record: RecordSpan, what: ClassKey) -> None:
        """Count a record that a release cannot parse."""
        uses = self.uses.get(what)
        if uses is None:
            uses = self.uses[what] = self._uses_of(*what)
        for number, use in enumerate(uses):
            at, length = (
                (record.key_at, record.key_length) if use.part == "key" else (record.value_at, record.value_length)
            )
            try:
                decode_checked(use.layout, payload[at : at + length], VERSION_BYTES)
            except MessageFormatError as error:
                self._note(what, number, use, record.offset, error.sentence)

    def _note(self, what: ClassKey, number: int, use: _Use, offset: int, reason: str) -> None:
        known = self.broken.get((what, use.part, number))
        key, value = what
        assert key is not None  # noqa: S101 - a key without a version has no layout
        self.broken[what, use.part, number] = (
            replace(known, count=known.count + 1)
            if known
            else BrokenRecords(
                topic=self.log.topic,
                partition=self.log.partition,
                key_version=key,
                value_version=value,
                part=use.part,
                releases=tuple(use.releases),
                count=1,
                first_offset=offset,
                reason=reason,
            )
        )

    def _uses_of(self, key: int | None, value: int | None) -> list[_Use]:
        uses: list[_Use] = []
        for release in self.releases:
            known = self.schemas.layouts(release, self.log.topic, key) if key is not None else None
            if known is None:
                continue
            parts = {"key": known.key}
            if value is not None and value in known.value.valid_versions:
                parts["value"] = known.value_layout(value)
            for part, layout in parts.items():
                same = next((use for use in uses if (use.part, use.layout) == (part, layout)), None)
                if same is None:
                    uses.append(_Use(part, layout, [release]))
                else:
                    same.releases.append(release)
        return uses
