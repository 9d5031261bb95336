"""Events as the report shows them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, overload

from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.run.events import Event
from kafka_rollout.domain.run.feature_events import FeatureResults, SnapshotLoaded
from kafka_rollout.domain.run.offline_events import OfflineLogChosen


@overload
def event_form(event: Event, *, with_kind: bool = True) -> dict[str, Any]: ...
@overload
def event_form(event: Event | None, *, with_kind: bool = True) -> dict[str, Any] | None: ...
def event_form(event: Event | None, *, with_kind: bool = True) -> dict[str, Any] | None:
    """`at`, `kind` and the fields of an event, with the keys of the report's format; None for None."""
    if event is None:
        return None
    data = asdict(event, dict_factory=_plain)
    match event:
        case SnapshotLoaded():
            data |= data.pop("summary")
        case OfflineLogChosen():
            data |= data.pop("log")
        case FeatureResults():
            outcomes = data.pop("outcomes")
            data["results"] = {one["feature"]: f"{one['result']} {one['sentence']}".strip() for one in outcomes}
    if "release_step" in data:
        data["hop"] = data.pop("release_step")
    return {**data, "kind": event.kind} if with_kind else data


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: _text(value) for name, value in fields}


def _text(value: Any) -> Any:
    if isinstance(value, Release):
        return str(value)
    return [_text(one) for one in value] if isinstance(value, tuple) else value
