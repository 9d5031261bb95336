"""The input of a scan's workers, apart from the logs. The driver creates it (scan.py); picklable.

Layouts (formats.layouts) are programs: rows of four integers that walking.py executes.

A program accepts and refuses the same messages as formats.messages.decode; tests/contract compares the two.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kafka_rollout.base.errors import FatalError
from kafka_rollout.formats.coordinator_records import PROTOCOL, PROTOCOL_TYPE
from kafka_rollout.formats.layouts import FieldLayout, FieldType, Layout, StructLayout
from kafka_rollout.formats.messages import field_path, join
from kafka_rollout.releases.facts import FieldRule, Release, RuleKind

# Operations and their operands, at most three. END ends a program. First those that read a field:
END = 0
FIXED = 1  # number of bytes to skip
STRING = 2  # compact, nullable, slot of `marks` for start and size (−1: none)
BYTES = 3  # compact, nullable
NUMBERS = 4  # compact, nullable, bytes of one number: an array of numbers
# Those that check a rule of formats.coordinator_records:
MARK = 5  # slot of `marks` whose size ends here
WITHIN = 6  # bytes of a number, its minimum and its maximum
WITHIN_TAGGED = 7  # as WITHIN: of several fields with one tag, the last counts
NOT_ZERO = 8  # number of bytes to skip; at least one must not be 0
# Those that choose the next step:
ARRAY = 9  # compact, nullable, step after the elements
NEXT = 10  # first step of the element
MARKER = 11  # tagged, step after the struct
TAGS = 12  # path, first row in `tags`, number of known tags
TAG = 13  # same operands as TAGS: reads the next tag
JUMP = 14  # next step

# Flags of a STRING or an ARRAY, in addition to 1 for nullable. SUBSCRIPTION is the third operand of BYTES.
FILLED = 2  # the text must not be empty
IS_PROTOCOL_TYPE = 4  # a SUBSCRIPTION is read only for the protocol type `consumer`
IS_PROTOCOL = 8  # a SUBSCRIPTION is not read if this text is null
NULL_AT_ZERO = 2  # the array can be null only if the number of the last WITHIN is 0
SUBSCRIPTION = 1

OWNER, TOPIC = 0, 2  # slots of `marks`: each a start and a size

DEEPEST = 16  # nested arrays and tagged structs
KEY_VERSIONS, VALUE_VERSIONS = 64, 16  # no release has higher versions
_MOST_LAYOUTS = 14  # per class: each layout has a bit in the class code
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
    """The programs of one log's records: for keys by key version, for values by key version and value version."""

    steps: Numbers  # [step, 4]
    tags: Numbers  # [row, 2]: tag, step
    keys: Numbers  # [key version, 2]: first index in `starts`, number of programs
    values: Numbers  # [key version, value version, 2]: as `keys`
    starts: Numbers  # first step of each program
    loaded: Numbers  # [key version, value version + 1]: 1 if all requested releases load it; index 0: tombstones.
    # Records of all other classes are counted by group or transactional id.
    state: Numbers  # [key version]: 1 if the newest values are returned
    commits: Numbers  # [key version]: 1 if the key names a committed topic


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutUse:
    """A layout, and the releases that read records with it."""

    layout: Layout
    releases: tuple[Release, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordUse:
    """The layouts of one record type of one log in all releases of the catalogue, the newest releases first."""

    topic: str
    key_version: int
    name: str
    keys: tuple[LayoutUse, ...]
    values: Mapping[int, tuple[LayoutUse, ...]]
    """Value version → layouts."""
    state: bool
    """The newest values describe a group or transactional id (rows `state`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPrograms:
    """The programs of one log, and the `records` that they parse, which explain why a record does not parse."""

    programs: Programs
    paths: tuple[str, ...]
    """Of tagged fields: number in the programs → path."""
    records: tuple[RecordUse, ...]


@dataclass(slots=True)
class _Writer:
    steps: list[tuple[int, ...]] = field(default_factory=list)
    tags: list[tuple[int, int]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)  # field of the current key → slot of `marks`
    owner_until: str = ""
    rules: dict[str, FieldRule] = field(default_factory=dict)  # field of the current layout → rule
    rules_of_tags: int = 0  # number of rules of tagged fields in the current layout

    def program(self, layout: Layout, marks: dict[str, int] | None = None, owner_until: str = "") -> int:
        """Append the program of a layout and return its first step."""
        self.marks, self.owner_until = marks or {}, owner_until
        self.rules, self.rules_of_tags = {rule.field: rule for rule in layout.rules}, 0
        start = len(self.steps)
        self._struct(layout.struct, "", 0)
        self._add(END)
        return start

    def _add(self, operation: int, *operands: int) -> int:
        self.steps.append((operation, *operands, *[0] * (3 - len(operands))))
        return len(self.steps) - 1

    def _set_target(self, step: int, operand: int) -> None:
        """Set an operand of an earlier step to the next step."""
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
        self._set_target(over, 1)

    def _field(self, one: FieldLayout, path: str, depth: int, *, tagged: bool) -> None:
        if depth >= DEEPEST - 1:
            raise FatalError(f"Field {one.name} is nested deeper than {DEEPEST} structs. The scan cannot read it.")
        flags = (int(one.compact), int(one.nullable))
        if one.array and one.type in _SIZES:
            self._add(NUMBERS, *flags, _SIZES[one.type])
        elif one.array:
            array = self._add(ARRAY, flags[0], self._nullable(one, path))
            self._element(one, join(path, one), depth + 1, nullable=False)
            self._add(NEXT, array + 1)
            self._set_target(array, 3)
        elif one.struct is not None and one.nullable:
            marker = self._add(MARKER, int(tagged))
            self._element(one, join(path, one), depth, nullable=True)
            self._set_target(marker, 2)
        else:
            slot = self.marks.get(one.name, -1) if not path else -1
            self._one(one, path, depth, slot=slot, tagged=tagged)

    def _one(self, one: FieldLayout, path: str, depth: int, *, slot: int, tagged: bool) -> None:
        """Append a field that is not an array, with its rule."""
        rule = self.rules.get(field_path(path, one))
        match rule.kind if rule else None:
            case RuleKind.BETWEEN:
                assert rule is not None  # noqa: S101 - it has a kind
                if tagged and (path or self.rules_of_tags):
                    raise FatalError(
                        f"The scan can check only one tagged field of a message, so it cannot check {rule.field}."
                    )
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
        """Return the flags of a field: 1 if it can be null, and the flags of its rule."""
        rule, flags = self.rules.get(field_path(path, one)), int(one.nullable)
        if rule and rule.kind is RuleKind.FILLED:
            flags |= FILLED
        if rule and rule.kind is RuleKind.SET_UNLESS_ZERO:
            if self.steps[-1][0] != WITHIN:
                raise FatalError(
                    f"The rule of {rule.field} depends on the number before it, but that number has no rule."
                )
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
    """Return what a key identifies: "group", "transactional_id" or "share_partition"; None if it identifies neither."""
    names = [one.name for one in key.struct.fields]
    if not names or names[0] not in _OWNER_NAMES:
        return None
    if names[0] == "transactionalId":
        return "transactional_id"
    return "share_partition" if names[1:] == ["topicId", "partition"] else "group"


def write_programs(records: Sequence[RecordUse], loaded_by_all: Iterable[tuple[int, int | None]]) -> LogPrograms:
    """Return the programs of one log. `loaded_by_all`: key and value versions that all requested releases load."""
    writer, starts, shapes = _Writer(), list[int](), dict[Any, int]()
    keys = np.zeros((KEY_VERSIONS, 2), dtype=np.int64)
    values = np.zeros((KEY_VERSIONS, VALUE_VERSIONS, 2), dtype=np.int64)
    loaded = np.zeros((KEY_VERSIONS, VALUE_VERSIONS + 1), dtype=np.int64)
    state, commits = np.zeros(KEY_VERSIONS, dtype=np.int64), np.zeros(KEY_VERSIONS, dtype=np.int64)
    for record in records:
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
                # Layouts that differ only in names and defaults share a program, which then runs once.
                shape = _shape(use.layout.struct, ""), tuple(replace(rule, refusal="") for rule in use.layout.rules)
                if shape not in shapes:
                    shapes[shape] = writer.program(use.layout)
                starts.append(shapes[shape])
    for key_version, value_version in loaded_by_all:
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
    return LogPrograms(programs=programs, paths=tuple(writer.paths), records=tuple(records))


def _shape(layout: StructLayout, path: str) -> Any:
    """Return the parts of a struct that determine its program: no names, except in the paths of tagged fields."""
    tagged = (*layout.tagged, path) if layout.flexible else None
    fields = (*layout.fields, *layout.tagged.values())
    return tagged, tuple(
        (f.type, f.array, f.nullable, f.compact, f.struct and _shape(f.struct, join(path, f))) for f in fields
    )


def _check(record: RecordUse) -> None:
    versions = [record.key_version, *record.values]
    most = max(len(record.keys), *(len(uses) for uses in record.values.values()), 0)
    if most > _MOST_LAYOUTS or min(versions) < 0 or record.key_version >= KEY_VERSIONS:
        raise FatalError(f"{record.name} has more versions or layouts than the scan supports.")
    if any(version >= VALUE_VERSIONS for version in record.values):
        raise FatalError(f"{record.name} has a value version above {VALUE_VERSIONS - 1}. The scan cannot read it.")


def _table(rows: Sequence[Sequence[int]], width: int) -> Numbers:
    return np.array(rows or [(0,) * width], dtype=np.int64)


# --- the whole input ---

_BYTES_PER_BUCKET = 288 * 1024 * 1024  # six million keys if every record has a different key: 300 MB of a worker
PRIME = 2**61 - 1
FACTORS = 32  # sixteen products of numbers below 2^61 + 2^56 add up to less than 2^127
MOST_GROUPS = 10_000  # groups with commits per log and Spark task; a result lists as many (contents.LISTED)


def _random_numbers(count: int) -> tuple[int, ...]:
    return tuple(secrets.randbelow(PRIME) for _ in range(count))


@dataclass(frozen=True, slots=True)
class HashNumbers:
    """Random numbers for the two hashes: points and factors, those of the first and the second hash in turn."""

    points: tuple[int, ...] = field(default_factory=lambda: _random_numbers(2))
    factors: tuple[int, ...] = field(default_factory=lambda: _random_numbers(2 * FACTORS))

    def table(self) -> npt.NDArray[np.uint64]:
        """Return the array that the functions of hashing.py read."""
        return np.array([*self.points, *self.factors], dtype=np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingSpec:
    """Input of the decoding."""

    logs: Mapping[str, LogPrograms] = field(default_factory=dict)
    """Topic → programs for its records; empty if records are only counted by key and value version."""
    live: bool = False
    """Also find the newest record of each key."""
    buckets: int = 1
    """Number of parts of the keys for `live`, so that no step needs memory for all keys."""
    hash_numbers: HashNumbers = field(default_factory=HashNumbers)
    """Random numbers for the hashes of keys (kernel/hashing.py)."""

    @property
    def records(self) -> tuple[RecordUse, ...]:
        return tuple(record for log in self.logs.values() for record in log.records)


def buckets_for(log_bytes: int) -> int:
    """Return the number of buckets, so that the keys of one fit into a worker's memory in every case."""
    return max(1, -(-log_bytes // _BYTES_PER_BUCKET))
