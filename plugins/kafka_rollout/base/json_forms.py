"""JSON forms of domain values, by the types of their fields: enums and releases as text, tuples as lists."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from pydantic import ConfigDict, PlainSerializer, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

T = TypeVar("T")
Form = PlainSerializer
"""Annotation of a field: the function that makes its JSON form."""
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def to_json(value: Any) -> Any:
    """Return a dataclass value as JSON data."""
    return _adapter(type(value)).dump_python(value, mode="json")


def parse_json(text: str | bytes) -> Any:
    """Return the value of a text that others have written. Raises ValueError if it is not JSON, also for one that is
    nested more deeply than this process can read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def from_json(kind: type[T], data: Any) -> T:
    """Return the value of class `kind` for JSON data; unknown keys are ignored.

    Raises ValueError (pydantic.ValidationError) if the data do not fit.
    """
    value: T = _adapter(kind).validate_python(data)
    return value


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of the JSON form of a union of dataclasses, with the docstring of each field.

    No object has keys that the schema does not list.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(kind, config=ConfigDict(use_attribute_docstrings=True))
    return adapter.json_schema(mode="serialization", schema_generator=_Schema)


class _Schema(GenerateJsonSchema):
    def function_plain_schema(self, schema: Any) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"}  # a release, the only type with such a function

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        return {**super().dataclass_schema(schema), "additionalProperties": False}

    def field_title_should_be_set(self, schema: object) -> bool:
        return False  # it repeats the key
