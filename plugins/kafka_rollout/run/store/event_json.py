"""How an event is stored: its kind, its time and the fields of the dataclass of the kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.run import events as run_events
from kafka_rollout.run import step_events
from kafka_rollout.run.events import Event, Unknown

KINDS: Mapping[str, type[Event]] = {
    found.kind: found
    for module in (run_events, step_events)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Event) and found.kind
}
"""Kind → its dataclass."""


def encode(event: Event) -> tuple[str, dict[str, Any]]:
    """Return (kind, data); data is plain JSON without `at`."""
    if isinstance(event, Unknown):
        return event.recorded_kind, dict(event.data)
    return event.kind, {name: value for name, value in to_json(event).items() if name != "at"}


def decode(kind: str, at: float, data: Mapping[str, Any]) -> Event:
    """Return the event; `Unknown` for a kind of a newer version and for data that do not fit the kind.

    Fields that a newer version added to a known kind are ignored.
    """
    try:
        event: Event = from_json(KINDS[kind], {**data, "at": at})
    except (KeyError, ValueError):
        return Unknown(at=at, recorded_kind=kind, data=dict(data))
    return event
