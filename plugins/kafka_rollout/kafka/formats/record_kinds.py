"""Ranges of a log, and kinds of records in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LogRange:
    """Offsets start <= offset < end of one partition."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKind:
    """Records of one partition with the same key version and value version.

    `key_version` None: the key is null or too short to have a version. `value_version` None: tombstones; −1: the value
    is too short to have a version. `live`: number of current records (newest of their key); None: not determined.
    """

    topic: str
    partition: int
    key_version: int | None
    value_version: int | None
    count: int
    first_offset: int
    live: int | None = None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> dict[str, Any]:
        """`live` is left out of the JSON form if it is None, for adapters that use pydantic."""
        return {**handler(source), "serialization": {"type": "function-wrap", "function": _without_unknown_live}}


def _without_unknown_live(kind: RecordKind, serialize: Any) -> dict[str, Any]:
    return {name: value for name, value in serialize(kind).items() if name != "live" or value is not None}
