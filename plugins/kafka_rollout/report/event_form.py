"""Events as the report shows them."""

from __future__ import annotations

from typing import Any

from kafka_rollout.base.json_forms import to_json
from kafka_rollout.run.events import Event
from kafka_rollout.run.offline_events import OfflineLogChosen
from kafka_rollout.run.step_events import FeatureResults, SnapshotLoaded


def event_form(event: Event) -> dict[str, Any]:
    """Return `at`, `kind` and the fields of an event with the keys of the report."""
    data: dict[str, Any] = to_json(event)
    match event:
        case SnapshotLoaded():
            data |= data.pop("summary")
        case OfflineLogChosen():
            data |= data.pop("log")
        case FeatureResults():
            data = {"at": event.at, "results": feature_results(event)}
    return {**data, "kind": event.kind}


def feature_results(event: FeatureResults) -> dict[str, str]:
    """Return feature → result and reason."""
    return {one.feature: f"{one.result.value} {one.sentence}".strip() for one in event.outcomes}
