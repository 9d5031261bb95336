"""Every distinct layout of the definitions in the repository, and values that a layout can say."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

from hypothesis import strategies as st

from kafka_rollout.formats.documents.definitions import load_schemas
from kafka_rollout.formats.layouts import FieldLayout, FieldType, Layout, StructLayout
from kafka_rollout.formats.messages import UNKNOWN_TAGS
from tests.definitions import distinct_definitions, schema
from tests.paths import INCLUDE

_RANGES = {
    FieldType.INT8: (-(1 << 7), (1 << 7) - 1),
    FieldType.INT16: (-(1 << 15), (1 << 15) - 1),
    FieldType.UINT16: (0, (1 << 16) - 1),
    FieldType.INT32: (-(1 << 31), (1 << 31) - 1),
    FieldType.UINT32: (0, (1 << 32) - 1),
    FieldType.INT64: (-(1 << 63), (1 << 63) - 1),
}
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@cache
def distinct_layouts() -> tuple[tuple[str, Layout], ...]:
    """(id, layout) of all definitions, versions and releases; the id names the first release that has it."""
    found: dict[Layout, str] = {}
    for release, name in distinct_definitions().values():
        one = schema(release, name)
        for version in range(one.valid_versions.min, one.valid_versions.max + 1):
            found.setdefault(one.layout(version), f"{one.name}-v{version}-{release}")
    return tuple((name, layout) for layout, name in found.items())


@cache
def layouts_with_rules() -> tuple[tuple[str, Layout], ...]:
    """(id, layout) of all values in which a release's coordinator checks fields."""
    found: dict[Layout, str] = {}
    schemas = load_schemas(INCLUDE)
    for release, topic in sorted(schemas.by_log, reverse=True):
        for record in schemas.log(release, topic).values():
            for version in range(record.value.valid_versions.min, record.value.valid_versions.max + 1):
                layout = record.value_layout(version)
                if layout.rules:
                    found.setdefault(layout, f"{layout.name}-v{version}-{release}-rules")
    return tuple((name, layout) for layout, name in found.items())


def values(layout: Layout) -> st.SearchStrategy[dict[str, Any]]:
    """Messages as `decode` gives them: every field, and now and then unknown tagged fields."""
    return _struct(layout.struct)


def _struct(layout: StructLayout) -> st.SearchStrategy[dict[str, Any]]:
    fields = {field.name: _field(field) for field in (*layout.fields, *layout.tagged.values())}
    if not layout.flexible:
        return st.fixed_dictionaries(fields)
    # Kafka's writer leaves the very last tag, Integer.MAX_VALUE, out.
    unknown = st.integers(0, (1 << 31) - 2).filter(lambda tag: tag not in layout.tagged)
    tags = st.dictionaries(unknown, st.binary(max_size=20), min_size=1, max_size=3).map(
        lambda held: sorted(held.items())
    )
    return st.fixed_dictionaries(fields, optional={UNKNOWN_TAGS: tags})


def _field(field: FieldLayout) -> st.SearchStrategy[Any]:
    one = _one(field)
    held = st.lists(one, max_size=3) if field.array else one
    return st.none() | held if field.nullable else held


def _one(field: FieldLayout) -> st.SearchStrategy[Any]:
    if field.struct is not None:
        return _struct(field.struct)
    match field.type:
        case FieldType.STRING:
            return _text
        case FieldType.BYTES | FieldType.RECORDS:
            return st.binary(max_size=40)
        case FieldType.BOOL:
            return st.booleans()
        case FieldType.FLOAT64:
            return st.floats(allow_nan=False)
        case FieldType.UUID:
            return st.binary(min_size=16, max_size=16).map(lambda raw: base64.urlsafe_b64encode(raw).decode()[:22])
        case _:
            return st.integers(*_RANGES[field.type])
