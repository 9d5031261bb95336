"""Kafka's message definitions (`common/message/*.json` of a release), and their layout in bytes at one version.

The rules are those of Kafka's own generator (org.apache.kafka.message: MessageSpec, StructSpec, FieldSpec).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from kafka_rollout.base.errors import FatalError
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.releases.facts import FieldRule, VersionRange

Default = bool | int | float | str | bytes | None

ZERO_UUID = "A" * 22
"""Uuid.ZERO_UUID in Kafka's text form: URL-safe base 64 without padding."""

_LATEST = 32767
_NO_VERSIONS = VersionRange(0, -1)
_VERSIONS = re.compile(r"(\d{1,5})(?:(\+)|-(\d{1,5}))?")


class SchemaError(FatalError):
    """A message definition that Kafka's generator rejects too."""


class FieldType(StrEnum):
    """FieldType of Kafka's generator. The type of an array is the type of its elements."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    FLOAT64 = "float64"
    UUID = "uuid"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    STRUCT = "struct"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldLayout:
    """One field at one version."""

    name: str
    """In camel case, as in generated classes and JSON converters."""
    type: FieldType
    array: bool
    nullable: bool
    """Of the array, if it is one, because elements are never null."""
    compact: bool
    """Lengths, also of the elements, are unsigned varints of length + 1. A marker precedes a nullable struct: an int8
    (below 0: null) if it is untagged, an unsigned varint (0: null) if it is tagged."""
    default: Default
    """Value of a tagged field that was not written; for an array or a struct None (null) or ""."""
    struct: StructLayout | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StructLayout:
    """A struct."""

    name: str
    flexible: bool
    fields: tuple[FieldLayout, ...]
    """Untagged fields in byte order."""
    tagged: Mapping[int, FieldLayout] = dataclass_field(hash=False)
    """Tag → field, if the version is flexible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A message at one version, without the int16 prefix of a record."""

    name: str
    version: int
    flexible: bool
    struct: StructLayout
    rules: tuple[FieldRule, ...] = ()
    """Further checks of a coordinator (coordinator_records.py), which are not part of the definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    versions: VersionRange
    type: FieldType
    array: bool
    nullable: VersionRange
    tagged: VersionRange
    tag: int | None
    flexible: VersionRange | None
    default: Default
    struct: str | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MessageSchema:
    """A message definition."""

    name: str
    valid_versions: VersionRange
    flexible_versions: VersionRange | None
    """None if no version is flexible (KIP-482)."""
    _fields: tuple[_Field, ...]
    _structs: Mapping[str, tuple[_Field, ...]]

    @classmethod
    def parse(cls, json_text: str) -> MessageSchema:
        """Read a definition without comments. Raises SchemaError with the reason if it is invalid."""
        try:
            data = parse_json(json_text)
            flexible = _versions(data.get("flexibleVersions"))
            structs: dict[str, tuple[_Field, ...]] = {}
            for struct in data.get("commonStructs", ()):
                structs[struct["name"]] = _fields(struct["fields"], structs)
            schema = cls(
                name=data["name"],
                valid_versions=_versions(data["validVersions"]),
                flexible_versions=None if flexible == _NO_VERSIONS else flexible,
                _fields=_fields(data["fields"], structs),
                _structs=structs,
            )
            for version in range(schema.valid_versions.min, schema.valid_versions.max + 1):
                schema.layout(version)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise SchemaError(
                f"The message definition is not one of Kafka's: {what}.",
                remedy="Derive it again from the jar of the release.",
            ) from error
        return schema

    def layout(self, version: int) -> Layout:
        """Return the layout at a version. Raises SchemaError for an invalid version."""
        return _layout(self, version)

    def _struct(self, name: str, fields: tuple[_Field, ...], version: int, flexible: bool) -> StructLayout:
        untagged: list[FieldLayout] = []
        tagged: dict[int, FieldLayout] = {}
        for field in fields:
            if version not in field.versions:
                continue
            inner = field.struct
            layout = FieldLayout(
                name=field.name,
                type=field.type,
                array=field.array,
                nullable=version in field.nullable,
                compact=flexible if field.flexible is None else version in field.flexible,
                default=field.default,
                struct=None if inner is None else self._struct(inner, self._structs[inner], version, flexible),
            )
            if field.tag is None or version not in field.tagged:
                untagged.append(layout)
            elif not flexible or field.tag in tagged:
                raise ValueError(f"tag {field.tag} of field {field.name} cannot be used at version {version}")
            else:
                tagged[field.tag] = layout
        return StructLayout(name=name, flexible=flexible, fields=tuple(untagged), tagged=dict(sorted(tagged.items())))


@lru_cache(maxsize=1024)
def _layout(schema: MessageSchema, version: int) -> Layout:
    if version not in schema.valid_versions:
        raise SchemaError(f"{schema.name} has the versions {schema.valid_versions}, not {version}.")
    flexible = schema.flexible_versions is not None and version in schema.flexible_versions
    struct = schema._struct(schema.name, schema._fields, version, flexible)
    return Layout(name=schema.name, version=version, flexible=flexible, struct=struct)


def _fields(data: Any, structs: dict[str, tuple[_Field, ...]]) -> tuple[_Field, ...]:
    """Return the fields of one struct. Structs that are defined in place are added to `structs`."""
    return tuple(_field(field, structs) for field in data)


def _field(data: Mapping[str, Any], structs: dict[str, tuple[_Field, ...]]) -> _Field:
    array = data["type"].startswith("[]")
    kind = data["type"].removeprefix("[]")
    is_struct = kind[:1].isupper()
    if is_struct and "fields" in data:
        if kind in structs:
            raise ValueError(f"struct {kind} is defined twice")
        structs[kind] = _fields(data["fields"], structs)
    tagged = _versions(data.get("taggedVersions"))
    field_type = FieldType.STRUCT if is_struct else FieldType(kind)
    flexible = data.get("flexibleVersions")
    return _Field(
        name=data["name"][:1].lower() + data["name"][1:],
        versions=_versions(data["versions"]) if "versions" in data or tagged == _NO_VERSIONS else tagged,
        type=field_type,
        array=array,
        nullable=_versions(data.get("nullableVersions")),
        tagged=tagged,
        tag=int(data["tag"]) if "tag" in data else None,  # 3.9 writes some as text
        flexible=None if flexible is None else _versions(flexible),
        default=_default(field_type, array, data.get("default")),
        struct=kind if is_struct else None,
    )


def _versions(text: str | None) -> VersionRange:
    """`3`, `0-4`, `2+` or `none` (Versions.parse)."""
    if text is None or text == "none":
        return _NO_VERSIONS
    match = _VERSIONS.fullmatch(text)
    if not match:
        raise ValueError(f"'{text}' is not a range of versions")
    low = int(match[1])
    return VersionRange(low, _LATEST if match[2] else int(match[3] or low))


def _default(kind: FieldType, array: bool, given: object) -> Default:
    """Return the default by the rules of Kafka's generator: the text "null" is null, a JSON null is no default."""
    text = "" if given is None else str(given)
    if array or kind in (FieldType.BYTES, FieldType.STRUCT):
        if text not in ("", "null"):
            raise ValueError(f"'{text}' is not a default of an array, bytes or a struct")
        if text == "null":
            return None
        return b"" if kind is FieldType.BYTES and not array else ""
    match kind:
        case FieldType.STRING:
            return None if text == "null" else text
        case FieldType.RECORDS:
            return None
        case FieldType.BOOL:
            return text.lower() == "true"
        case FieldType.FLOAT64:
            return float(text or 0)
        case FieldType.UUID:
            if text:
                raise ValueError(f"default '{text}' of a uuid is not supported")
            return ZERO_UUID
        case _:
            return int(text or "0", 16 if text.startswith("0x") else 10)
