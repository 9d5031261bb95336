"""Writes messages in Kafka's generated form: voters of a rehearsal, records for the derivation, test data."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, NoReturn

from kafka_rollout.kafka.formats.layouts import FieldLayout, FieldType, Layout, StructLayout
from kafka_rollout.kafka.formats.messages import (
    LONGEST_STRING,
    NUMBERS,
    UNKNOWN_TAGS,
    UUID_BYTES,
    MessageFormatError,
    default_of,
)
from kafka_rollout.kafka.formats.varints import unsigned_varint

_BOOL, _INT8, _INT16, _INT32 = Struct(">?"), Struct(">b"), Struct(">h"), Struct(">i")
_TAGGED_MARKERS = {-1: b"\x00", 1: b"\x01"}  # of a nullable struct in a tagged field


def encode(layout: Layout, value: Mapping[str, Any]) -> bytes:
    """Return a message as bytes; a field that `value` does not have gets its default.

    Raises MessageFormatError for a value or a field name that the layout does not have.
    """
    writer = _Writer(layout)
    writer.write(layout.struct, value, "")
    return bytes(writer.out)


class _Writer:
    __slots__ = ("layout", "out")

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.out = bytearray()

    def write(self, layout: StructLayout, value: Mapping[str, Any], path: str) -> None:
        known = {field.name for field in (*layout.fields, *layout.tagged.values())}
        if extra := [name for name in value if name not in known and name != UNKNOWN_TAGS]:
            self._fail(f"{path or 'the message'} has no field {extra[0]}")
        for field in layout.fields:
            self._field(field, value.get(field.name, default_of(field)), path, tagged=False)
        tagged = self._tagged(layout, value, path)
        if not layout.flexible:
            if tagged:
                self._fail("tagged fields were set, and this version does not have them")
            return
        self.out += unsigned_varint(len(tagged))
        for tag, data in sorted(tagged.items()):
            self.out += unsigned_varint(tag)
            self.out += unsigned_varint(len(data))
            self.out += data

    def _tagged(self, layout: StructLayout, value: Mapping[str, Any], path: str) -> dict[int, bytes]:
        """Return tag → bytes; a field with its default value is not written."""
        tagged = {}
        for tag, field in layout.tagged.items():
            content, default = value.get(field.name, default_of(field)), default_of(field)
            if content != default:
                inner = _Writer(self.layout)
                inner._field(field, content, path, tagged=True)
                tagged[tag] = bytes(inner.out)
        last = -1
        for tag, data in value.get(UNKNOWN_TAGS, ()):
            if tag <= last or tag in layout.tagged:  # RawTaggedFieldWriter refuses these, too
                self._fail(f"tag {tag} of {path or 'the message'} is out of order or was set twice")
            tagged[tag] = data
            last = tag
        return tagged

    def _field(self, field: FieldLayout, value: Any, path: str, *, tagged: bool) -> None:
        here = f"{path}.{field.name}" if path else field.name
        try:
            if field.array:
                self._length(_INT32, field, value, here, nullable=field.nullable)
                for element in value or ():
                    self._one(field, element, f"{here}[]", nullable=False)
                return
            if field.struct is not None and field.nullable:
                marker = -1 if value is None else 1
                self.out += _TAGGED_MARKERS[marker] if tagged else _INT8.pack(marker)
                if value is None:
                    return
            self._one(field, value, here, nullable=field.nullable)
        except (StructError, ValueError, TypeError, AttributeError) as error:
            self._fail(f"field {here} cannot be {value!r:.80} ({error})")

    def _one(self, field: FieldLayout, value: Any, here: str, *, nullable: bool) -> None:
        if field.struct is not None:
            self.write(field.struct, value, here)
        elif number := NUMBERS.get(field.type):
            self.out += number.pack(value)
        elif field.type is FieldType.BOOL:
            self.out += _BOOL.pack(value)
        elif field.type is FieldType.UUID:
            self.out += _uuid(value)
        elif field.type is FieldType.STRING:
            data = None if value is None else value.encode()
            if data is not None and len(data) > LONGEST_STRING:
                self._fail(f"field {here} is too long to be serialized")
            self._length(_INT16, field, data, here, nullable=nullable)
            self.out += data or b""
        else:
            self._length(_INT32, field, value, here, nullable=nullable)
            self.out += value or b""

    def _length(self, plain: Struct, field: FieldLayout, value: Any, here: str, *, nullable: bool) -> None:
        if value is None and not nullable:
            self._fail(f"field {here} is null")
        length = -1 if value is None else len(value)
        if field.compact:
            self.out += unsigned_varint(length + 1)
        else:
            self.out += plain.pack(length)

    def _fail(self, reason: str) -> NoReturn:
        raise MessageFormatError(f"{self.layout.name} version {self.layout.version} cannot be written: {reason}.")


def _uuid(text: str) -> bytes:
    data = base64.b64decode(text + "==", altchars="-_", validate=True)
    if len(data) != UUID_BYTES:
        raise ValueError(f"it has {len(data)} bytes")
    return data
