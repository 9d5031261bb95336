"""Events as the report shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, overload

from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Event
from kafka_rollout.run.offline_events import OfflineLogChosen
from kafka_rollout.run.step_events import FeatureResults, SnapshotLoaded


@overload
def event_form(event: Event, *, with_kind: bool = True) -> dict[str, Any]: ...
@overload
def event_form(event: Event | None, *, with_kind: bool = True) -> dict[str, Any] | None: ...
def event_form(event: Event | None, *, with_kind: bool = True) -> dict[str, Any] | None:
    """Return `at`, `kind` and the fields of an event with the keys of the report; None for None."""
    if event is None:
        return None
    data: dict[str, Any] = _form(event)
    match event:
        case SnapshotLoaded():
            data |= data.pop("summary")
        case OfflineLogChosen():
            data |= data.pop("log")
        case FeatureResults():
            outcomes = data.pop("outcomes")
            data["results"] = {one["feature"]: f"{one['result']} {one['sentence']}".strip() for one in outcomes}
    return {**data, "kind": event.kind} if with_kind else data


def _form(value: Any) -> Any:
    match value:
        case Release():
            return str(value)
        case Enum():
            return value.value
        case Mapping():
            return {name: _form(one) for name, one in value.items()}
        case tuple():
            return [_form(one) for one in value]
    if is_dataclass(value):
        return {field.name: _form(getattr(value, field.name)) for field in fields(value)}
    return value
