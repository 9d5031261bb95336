"""Events as JSON: kind, time and the fields of the kind's dataclass."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kafka_rollout.domain.run.events import Event, Unknown
from kafka_rollout.domain.run.kinds import KINDS


def encode(event: Event) -> tuple[str, dict[str, Any]]:
    """(kind, data); data is plain JSON without `at`."""
    if isinstance(event, Unknown):
        return event.recorded_kind, dict(event.data)
    return event.kind, _adapter(event.kind).dump_python(event, mode="json", exclude={"at"})


def decode(kind: str, at: float, data: Mapping[str, Any]) -> Event:
    """The event; `Unknown` for a kind of a newer version and for data that do not fit the kind.

    Fields that a newer version added to a known kind are ignored.
    """
    if kind not in KINDS:
        return Unknown(at=at, recorded_kind=kind, data=dict(data))
    try:
        event: Event = _adapter(kind).validate_python({**data, "at": at})
    except ValidationError:
        return Unknown(at=at, recorded_kind=kind, data=dict(data))
    return event


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(KINDS[kind])
