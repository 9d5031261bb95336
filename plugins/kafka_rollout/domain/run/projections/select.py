"""Events of one kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from kafka_rollout.domain.run.events import Event

E = TypeVar("E", bound=Event)


def events_of(events: Iterable[Event], kind: type[E]) -> tuple[E, ...]:
    """In their order."""
    return tuple(event for event in events if isinstance(event, kind))


def newest(events: Sequence[Event], kind: type[E]) -> E | None:
    return next((event for event in reversed(events) if isinstance(event, kind)), None)


def has(events: Iterable[Event], *kinds: type[Event]) -> bool:
    return any(isinstance(event, kinds) for event in events)
