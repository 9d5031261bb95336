"""Messages in Kafka's generated form, decoded and written by the rules of the generated classes.

Source: the readers of MessageDataGenerator over ByteBufferAccessor. Bytes after the message are ignored. A negative
length is a null, or an error if the field is not nullable. The declared size of a tagged field is used only for an
unknown tag. Of two fields with one tag the last one counts.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any, NoReturn

from kafka_rollout.formats.layouts import FieldLayout, FieldType, Layout, StructLayout
from kafka_rollout.formats.log_types import Bytes, LogFormatError

UNKNOWN_TAGS = "_unknownTaggedFields"
"""Key of a decoded struct for tagged fields that its definition does not have: a list of (tag, bytes)."""

NUMBERS = {
    FieldType.INT8: Struct(">b"),
    FieldType.INT16: Struct(">h"),
    FieldType.UINT16: Struct(">H"),
    FieldType.INT32: Struct(">i"),
    FieldType.UINT32: Struct(">I"),
    FieldType.INT64: Struct(">q"),
    FieldType.FLOAT64: Struct(">d"),
}
_BOOL, _INT8, _INT16, _INT32 = Struct(">?"), Struct(">b"), Struct(">h"), Struct(">i")
_LONGEST_STRING = 0x7FFF
_UUID_BYTES = 16
_TAGGED_MARKERS = {-1: b"\x00", 1: b"\x01"}  # of a nullable struct in a tagged field


class MessageFormatError(LogFormatError):
    """A message that does not fit its definition. A coordinator fails on a record with these bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTag:
    """A tagged field in the bytes."""

    path: str
    """"" in the message itself, "topics[].partitions[]" in a nested struct."""
    tag: int
    size: int
    """Declared size in bytes."""
    known: bool
    """Whether the definition has the tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A message."""

    value: dict[str, Any]
    """Field name → value at its version, with defaults for tagged fields that were not written."""
    end: int
    """Position after the message."""
    tags: tuple[SeenTag, ...]
    """Its tagged fields in their order. A UUID is in Kafka's text form."""


def decode(layout: Layout, data: Bytes, at: int = 0) -> Decoded:
    """Decode the message at position `at`. Raises MessageFormatError, which names the field.

    The allocated memory is limited by the number of bytes after `at`.
    """
    reader = _Reader(layout, data, at)
    value = reader.read(layout.struct, "")
    return Decoded(value=value, end=reader.at, tags=tuple(reader.tags))


def default_of(field: FieldLayout) -> Any:
    """Return the value of a field that was not set in a generated class."""
    if field.default is None:
        return None
    if field.array:
        return []
    if field.struct is not None:
        return {inner.name: default_of(inner) for inner in (*field.struct.fields, *field.struct.tagged.values())}
    return field.default


def field_path(path: str, field: FieldLayout) -> str:
    """Return the path of a field in the struct at `path`."""
    return f"{path}.{field.name}" if path else field.name


def join(path: str, field: FieldLayout) -> str:
    """Return the path of the content of a field: `topics[]` for the elements of an array."""
    return field_path(path, field) + ("[]" if field.array else "")


class _Reader:
    __slots__ = ("at", "data", "end", "layout", "tags")

    def __init__(self, layout: Layout, data: Bytes, at: int) -> None:
        self.layout, self.data, self.at, self.end = layout, data, at, len(data)
        self.tags: list[SeenTag] = []

    def read(self, layout: StructLayout, path: str) -> dict[str, Any]:
        value = {field.name: self._field(field, path, tagged=False) for field in layout.fields}
        if layout.flexible:
            for field in layout.tagged.values():
                value[field.name] = default_of(field)
            self._tagged(layout, path, value)
        return value

    def _tagged(self, layout: StructLayout, path: str, value: dict[str, Any]) -> None:
        place = f"{path}'s tagged fields" if path else "its tagged fields"
        for _ in range(self._varint(place)):
            tag, size = self._varint(place), self._varint(place)
            field = layout.tagged.get(tag)
            self.tags.append(SeenTag(path=path, tag=tag, size=size, known=field is not None))
            if field is None:
                value.setdefault(UNKNOWN_TAGS, []).append((tag, self._take(size, f"tag {tag} of {path or 'it'}")))
            else:
                value[field.name] = self._field(field, path, tagged=True)

    def _field(self, field: FieldLayout, path: str, *, tagged: bool) -> Any:
        here = field_path(path, field)
        if field.array:
            return self._array(field, here)
        if field.struct is not None and field.nullable:
            marker = self._varint(here) - 1 if tagged else self._number(_INT8, here)
            if marker < 0:
                return None
        return self._one(field, here, nullable=field.nullable)

    def _array(self, field: FieldLayout, here: str) -> list[Any] | None:
        length = self._length(_INT32, field, here, nullable=field.nullable)
        if length < 0:
            return None
        if length > self.end - self.at:
            self._fail(
                f"Tried to allocate a collection of size {length} for field {here}, but there are only "
                f"{self.end - self.at} bytes remaining"
            )
        path = f"{here}[]"
        return [self._one(field, path, nullable=False) for _ in range(length)]

    def _one(self, field: FieldLayout, here: str, *, nullable: bool) -> Any:
        """Return a value that is not an array: of a field or of an element."""
        if field.struct is not None:
            return self.read(field.struct, here)
        if number := NUMBERS.get(field.type):
            return self._number(number, here)
        match field.type:
            case FieldType.BOOL:
                return self._number(_INT8, here) != 0
            case FieldType.UUID:
                return base64.urlsafe_b64encode(self._take(_UUID_BYTES, f"field {here}")).decode()[:-2]
            case FieldType.STRING:
                length = self._length(_INT16, field, here, nullable=nullable)
                if length > _LONGEST_STRING:
                    self._fail(f"string field {here} had invalid length {length}")
                return None if length < 0 else self._take(length, f"field {here}").decode("utf-8", "replace")
            case _:
                length = self._length(_INT32, field, here, nullable=nullable)
                return None if length < 0 else self._take(length, f"field {here}")

    def _length(self, plain: Struct, field: FieldLayout, here: str, *, nullable: bool) -> int:
        length = _java_int(self._varint(here) - 1) if field.compact else int(self._number(plain, here))
        if length < 0 and not nullable:
            self._fail(f"non-nullable field {here} was serialized as null")
        return length

    def _number(self, number: Struct, here: str) -> Any:
        if number.size > self.end - self.at:
            self._fail(f"it ends within field {here}")
        (value,) = number.unpack_from(self.data, self.at)
        self.at += number.size
        return value

    def _take(self, size: int, what: str) -> bytes:
        if not 0 <= size <= self.end - self.at:
            self._fail(f"it ends within {what}: {size} bytes are announced and {self.end - self.at} remain")
        taken = bytes(self.data[self.at : self.at + size])
        self.at += size
        return taken

    def _varint(self, here: str) -> int:
        """Return an unsigned varint of at most five bytes as a Java int (ByteUtils.readUnsignedVarint)."""
        value = 0
        for shift in range(0, 35, 7):
            if self.at >= self.end:
                self._fail(f"it ends within {here}")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return _java_int(value)
        self._fail(f"Varint is too long in {here}")

    def _fail(self, reason: str) -> NoReturn:
        raise MessageFormatError(f"{self.layout.name} version {self.layout.version} does not parse: {reason}.")


def _java_int(value: int) -> int:
    """Return the lower 32 bits as a Java int."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def unsigned_varint(value: int) -> bytes:
    """Return a number of at least 0 as an unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag_varint(value: int) -> bytes:
    """Return a number as a signed varint, as in records of batches."""
    return unsigned_varint((value << 1) ^ (value >> 63))


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
        here = field_path(path, field)
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
            if data is not None and len(data) > _LONGEST_STRING:
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
    if len(data) != _UUID_BYTES:
        raise ValueError(f"it has {len(data)} bytes")
    return data
