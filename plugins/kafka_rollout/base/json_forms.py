"""JSON forms of domain values, by the types of their fields: enums and releases as text, tuples as lists."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from pydantic import PlainSerializer, TypeAdapter

T = TypeVar("T")
Form = PlainSerializer
"""Annotation of a field: the function that makes its JSON form."""
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def to_json(value: Any) -> Any:
    """Return a dataclass value as JSON data."""
    return _adapter(type(value)).dump_python(value, mode="json")


def from_json(kind: type[T], data: Any) -> T:
    """Return the value of class `kind` for JSON data; unknown keys are ignored.

    Raises ValueError (pydantic.ValidationError) if the data do not fit.
    """
    value: T = _adapter(kind).validate_python(data)
    return value
