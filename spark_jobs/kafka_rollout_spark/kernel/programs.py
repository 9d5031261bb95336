"""Layouts (wire.layouts) as programs: rows of four integers that walking.py steps through.

What a program takes and refuses is what wire.messages.decode does; tests/contract holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kafka_rollout.domain.model.errors import FatalError
from kafka_rollout.domain.model.releases import FieldRule, RuleKind
from kafka_rollout.wire.field_rules import PROTOCOL, PROTOCOL_TYPE, field_path
from kafka_rollout.wire.layouts import FieldLayout, FieldType, Layout, StructLayout
from kafka_rollout.wire.messages import join
from kafka_rollout_spark.kernel.spec import DecodingSpec, RecordUse

# Operations, and what their three operands mean.
END = 0
FIXED = 1  # bytes to step over
STRING = 2  # compact, nullable, slot of `marks` for start and size (−1: none)
BYTES = 3  # compact, nullable
ARRAY = 4  # compact, nullable, where the elements end
NEXT = 5  # where the element begins
NUMBERS = 6  # compact, nullable, bytes of one: an array of numbers
MARKER = 7  # tagged, where the struct ends
TAGS = 8  # path, the tags' row of `tags`, how many tags are known
TAG = 9  # path, row, how many, as TAGS: reads the next tag
JUMP = 10  # where to
MARK = 11  # slot of `marks` whose size reaches to here
WITHIN = 12  # bytes of a number, the least and the most that it may be
WITHIN_TAGGED = 13  # as above: of several fields with one tag, the last counts
NOT_ZERO = 14  # bytes to step over, of which one is not 0

# Beside 1 for nullable, what else is asked of a STRING or an ARRAY. SUBSCRIPTION is the third operand of BYTES.
FILLED = 2  # a text that is not empty
IS_PROTOCOL_TYPE = 4  # whether a SUBSCRIPTION is read depends on it
IS_PROTOCOL = 8  # as above: not if it is null
NULL_AT_ZERO = 2  # an array that is null only if the number of the last WITHIN is 0
SUBSCRIPTION = 1

OWNER, TOPIC = 0, 2  # slots of `marks`: each a start and a size

DEEPEST = 16  # arrays and tagged structs within each other
KEY_VERSIONS, VALUE_VERSIONS = 64, 16  # greater ones are known to no release
_MOST_LAYOUTS = 14  # of one class: their bits are part of the class's code
_SIZES = {
    FieldType.BOOL: 1,
    FieldType.INT8: 1,
    FieldType.INT16: 2,
    FieldType.UINT16: 2,
    FieldType.INT32: 4,
    FieldType.UINT32: 4,
    FieldType.INT64: 8,
    FieldType.FLOAT64: 8,
    FieldType.UUID: 16,
}
_OWNER_NAMES = ("group", "groupId", "transactionalId")

Numbers = npt.NDArray[np.int64]


class Programs(NamedTuple):
    """What the kernel knows of one log's records. Of keys by key version, of values by key and value version."""

    steps: Numbers  # [step, 4]
    tags: Numbers  # [row, 2]: tag, step
    keys: Numbers  # [key version, 2]: first of `starts`, how many
    values: Numbers  # [key version, value version, 2]: the same
    starts: Numbers  # the programs' first steps
    loaded: Numbers  # [key version, value version + 1]: 1 if every asked release loads it; at 0 tombstones
    state: Numbers  # [key version]: 1 if its newest values are handed on
    commits: Numbers  # [key version]: 1 if the key names a committed topic


@dataclass(slots=True)
class _Writer:
    steps: list[tuple[int, ...]] = field(default_factory=list)
    tags: list[tuple[int, int]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)  # of fields of the key that is being written
    owner_until: str = ""
    rules: dict[str, FieldRule] = field(default_factory=dict)  # of the layout that is being written, by field
    rules_of_tags: int = 0  # of these

    def program(self, layout: Layout, marks: dict[str, int] | None = None, owner_until: str = "") -> int:
        """Append a layout's program; its first step."""
        self.marks, self.owner_until = marks or {}, owner_until
        self.rules, self.rules_of_tags = {rule.field: rule for rule in layout.rules}, 0
        start = len(self.steps)
        self._struct(layout.struct, "", 0)
        self._add(END)
        return start

    def _add(self, operation: int, *operands: int) -> int:
        self.steps.append((operation, *operands, *[0] * (3 - len(operands))))
        return len(self.steps) - 1

    def _land(self, step: int, operand: int) -> None:
        """Let an operand of an earlier step point behind what was written last."""
        row = list(self.steps[step])
        row[operand] = len(self.steps)
        self.steps[step] = tuple(row)

    def _struct(self, layout: StructLayout, path: str, depth: int) -> None:
        for one in layout.fields:
            self._field(one, path, depth, tagged=False)
            if one.name == self.owner_until and not path:
                self._add(MARK, OWNER)
        if not layout.flexible:
            return
        if path not in self.paths:
            self.paths.append(path)
        row = len(self.tags)
        self.tags += [(tag, -1) for tag in layout.tagged]
        operands = (self.paths.index(path), row, len(layout.tagged))
        self._add(TAGS, *operands)
        again = self._add(TAG, *operands)
        over = self._add(JUMP)
        for place, (tag, one) in enumerate(layout.tagged.items(), start=row):
            self.tags[place] = (tag, len(self.steps))
            self._field(one, path, depth + 1, tagged=True)
            self._add(JUMP, again)
        self._land(over, 1)

    def _field(self, one: FieldLayout, path: str, depth: int, *, tagged: bool) -> None:
        if depth >= DEEPEST - 1:
            raise FatalError(f"Field {one.name} lies deeper than {DEEPEST} structs, which the scan does not read.")
        flags = (int(one.compact), int(one.nullable))
        if one.array and one.type in _SIZES:
            self._add(NUMBERS, *flags, _SIZES[one.type])
        elif one.array:
            array = self._add(ARRAY, flags[0], self._nullable(one, path))
            self._element(one, join(path, one), depth + 1, nullable=False)
            self._add(NEXT, array + 1)
            self._land(array, 3)
        elif one.struct is not None and one.nullable:
            marker = self._add(MARKER, int(tagged))
            self._element(one, join(path, one), depth, nullable=True)
            self._land(marker, 2)
        else:
            slot = self.marks.get(one.name, -1) if not path else -1
            self._one(one, path, depth, slot=slot, tagged=tagged)

    def _one(self, one: FieldLayout, path: str, depth: int, *, slot: int, tagged: bool) -> None:
        """A field that is no array, with its rule."""
        rule = self.rules.get(field_path(path, one))
        match rule.kind if rule else None:
            case RuleKind.BETWEEN:
                assert rule is not None  # noqa: S101 - it has a kind
                if tagged and (path or self.rules_of_tags):
                    raise FatalError(f"The scan checks one tagged field of a message, not {rule.field} as well.")
                self.rules_of_tags += tagged
                self._add(WITHIN_TAGGED if tagged else WITHIN, _SIZES[one.type], rule.least, rule.most)
            case RuleKind.FILLED if one.type is FieldType.UUID:
                self._add(NOT_ZERO, _SIZES[one.type])
            case RuleKind.SUBSCRIPTION:
                self._add(BYTES, int(one.compact), int(one.nullable), SUBSCRIPTION)
            case _ if one.type is FieldType.STRING:
                self._add(STRING, int(one.compact), self._nullable(one, path), slot)
            case _:
                self._element(one, join(path, one), depth, nullable=one.nullable)

    def _nullable(self, one: FieldLayout, path: str) -> int:
        """1 for a field that may be null, and what else is asked of it."""
        rule, flags = self.rules.get(field_path(path, one)), int(one.nullable)
        if rule and rule.kind is RuleKind.FILLED:
            flags |= FILLED
        if rule and rule.kind is RuleKind.SET_UNLESS_ZERO:
            if self.steps[-1][0] != WITHIN:
                raise FatalError(f"The scan checks {rule.field} by the number before it, of which no rule is known.")
            flags |= NULL_AT_ZERO
        if any(rule.kind is RuleKind.SUBSCRIPTION for rule in self.rules.values()) and not path:
            flags |= {PROTOCOL_TYPE: IS_PROTOCOL_TYPE, PROTOCOL: IS_PROTOCOL}.get(one.name, 0)
        return flags

    def _element(self, one: FieldLayout, path: str, depth: int, *, nullable: bool) -> None:
        if one.struct is not None:
            self._struct(one.struct, path, depth)
        elif one.type in _SIZES:
            self._add(FIXED, _SIZES[one.type])
        elif one.type is FieldType.STRING:
            self._add(STRING, int(one.compact), int(nullable), -1)
        else:
            self._add(BYTES, int(one.compact), int(nullable))


def owner_kind(key: Layout) -> str | None:
    """Whom a key's records belong to: "group", "transactional_id" or "share_partition"; None if it names nobody."""
    names = [one.name for one in key.struct.fields]
    if not names or names[0] not in _OWNER_NAMES:
        return None
    if names[0] == "transactionalId":
        return "transactional_id"
    return "share_partition" if names[1:] == ["topicId", "partition"] else "group"


def write_programs(spec: DecodingSpec, topic: str) -> tuple[Programs, tuple[str, ...]]:
    """The programs for one log, and the paths of tagged fields by their number in them."""
    writer, starts, shapes = _Writer(), list[int](), dict[Any, int]()
    keys = np.zeros((KEY_VERSIONS, 2), dtype=np.int64)
    values = np.zeros((KEY_VERSIONS, VALUE_VERSIONS, 2), dtype=np.int64)
    loaded = np.zeros((KEY_VERSIONS, VALUE_VERSIONS + 1), dtype=np.int64)
    state, commits = np.zeros(KEY_VERSIONS, dtype=np.int64), np.zeros(KEY_VERSIONS, dtype=np.int64)
    for record in spec.records:
        if record.topic != topic:
            continue
        _check(record)
        state[record.key_version] = record.state
        keys[record.key_version] = len(starts), len(record.keys)
        for use in record.keys:
            kind = owner_kind(use.layout)
            names = [one.name for one in use.layout.struct.fields]
            commits[record.key_version] = kind == "group" and "topic" in names
            marks = {name: OWNER for name in names[:1] if kind} | {"topic": TOPIC}
            until = "partition" if kind == "share_partition" else ""
            starts.append(writer.program(use.layout, marks, until))
        for version, uses in record.values.items():
            values[record.key_version, version] = len(starts), len(uses)
            for use in uses:
                # Layouts that differ only in names and defaults share a program, which is then walked once.
                shape = _shape(use.layout.struct, ""), tuple(replace(rule, refusal="") for rule in use.layout.rules)
                if shape not in shapes:
                    shapes[shape] = writer.program(use.layout)
                starts.append(shapes[shape])
    for log, key_version, value_version in spec.loaded_by_all:
        if log == topic:
            loaded[key_version, 0 if value_version is None else value_version + 1] = 1
    programs = Programs(
        steps=_table(writer.steps, 4),
        tags=_table(writer.tags, 2),
        keys=keys,
        values=values,
        starts=np.array(starts or [0], dtype=np.int64),
        loaded=loaded,
        state=state,
        commits=commits,
    )
    return programs, tuple(writer.paths)


def _shape(layout: StructLayout, path: str) -> Any:
    """What of a struct makes a program: not the names, but those in the paths of tagged fields."""
    tagged = (*layout.tagged, path) if layout.flexible else None
    fields = (*layout.fields, *layout.tagged.values())
    return tagged, tuple(
        (f.type, f.array, f.nullable, f.compact, f.struct and _shape(f.struct, join(path, f))) for f in fields
    )


def _check(record: RecordUse) -> None:
    versions = [record.key_version, *record.values]
    most = max(len(record.keys), *(len(uses) for uses in record.values.values()), 0)
    if most > _MOST_LAYOUTS or min(versions) < 0 or record.key_version >= KEY_VERSIONS:
        raise FatalError(f"{record.name} has more versions or layouts than the scan can tell apart.")
    if any(version >= VALUE_VERSIONS for version in record.values):
        raise FatalError(f"{record.name} has a value version above {VALUE_VERSIONS - 1}, which the scan does not read.")


def _table(rows: Sequence[Sequence[int]], width: int) -> Numbers:
    return np.array(rows or [(0,) * width], dtype=np.int64)
