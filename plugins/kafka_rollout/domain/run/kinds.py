"""Every kind of event that this version records."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_rollout.domain.run import events, feature_events, log_events, node_events, offline_events
from kafka_rollout.domain.run.events import Event

KINDS: Mapping[str, type[Event]] = {
    found.kind: found
    for module in (events, node_events, feature_events, log_events, offline_events)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Event) and found.kind
}
"""Kind → its dataclass."""
