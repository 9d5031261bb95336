"""Registrations of brokers: the active controller finalizes a level only if every registration has it.

A broker sends the ranges of its features when it registers (BrokerRegistrationRequest), and the controller writes them
into the metadata log. Controllers before 3.9 cannot read ranges with minimum 0, so the broker leaves them out
(version 4 of the request, KAFKA-17011 and KAFKA-17492). All features except metadata.version have minimum 0. Such a
registration stays until the broker restarts. Only where metadata.version rises to 3.7-IV2 or above does a broker
register again by itself, because its registration lacks its directories (BrokerRegistrationTracker).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kafka_rollout.base.wording import nodes
from kafka_rollout.model.log_directories import ASSIGNED_FROM
from kafka_rollout.model.plan import FeatureChange
from kafka_rollout.releases.facts import KRAFT_VERSION, METADATA_VERSION, ReleaseFacts, VersionRange


def drops_zero_ranges(facts: ReleaseFacts) -> bool:
    """Return whether controllers of the release drop ranges with minimum 0 from registrations.

    The release that first had such a feature (kraft.version of 3.9) also has the request that keeps them.
    """
    return all(feature.supported.min > 0 for feature in facts.features.values())


def keeps_registrations(level: int) -> bool:
    """Return whether brokers keep their registrations when metadata.version is raised from `level`."""
    return level >= ASSIGNED_FROM


def renews_registrations(level: int, target: int) -> bool:
    """Return whether brokers register again when metadata.version is raised from `level` to `target`."""
    return level < ASSIGNED_FROM <= target


def registered_levels(changes: Iterable[FeatureChange]) -> dict[str, int]:
    """Return the raised levels that the registrations of all brokers must have, but can lack."""
    return {
        change.feature: change.target
        for change in changes
        if change.target > change.current and change.feature not in {METADATA_VERSION, KRAFT_VERSION}
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRegistrations:
    """What was observed of brokers' registrations, by node id."""

    complete: tuple[int, ...] = ()
    """They have all raised levels."""
    lacking: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Features that a registration lacks."""
    unknown: tuple[int, ...] = ()
    """Neither the controller nor a metadata log showed it."""

    @property
    def incomplete(self) -> frozenset[int]:
        """The brokers whose registration is not seen to be complete."""
        return frozenset((*self.lacking, *self.unknown))

    def __str__(self) -> str:
        parts = [f"complete: {nodes(self.complete)}"] if self.complete else []
        by_features: dict[tuple[str, ...], list[int]] = {}
        for node_id, features in sorted(self.lacking.items()):
            by_features.setdefault(features, []).append(node_id)
        parts += [f"without {', '.join(features)}: {nodes(ids)}" for features, ids in by_features.items()]
        parts += [f"unknown: {nodes(self.unknown)}"] if self.unknown else []
        return "; ".join(parts)


def evaluate_registrations(
    registered: Mapping[int, Mapping[str, VersionRange]] | None, node_ids: Collection[int], levels: Mapping[str, int]
) -> SeenRegistrations:
    """Compare the registrations of brokers with the levels to raise. `registered`: None if they could not be read."""
    complete: list[int] = []
    unknown: list[int] = []
    lacking: dict[int, tuple[str, ...]] = {}
    for node_id in sorted(node_ids):
        ranges = None if registered is None else registered.get(node_id)
        if ranges is None:
            unknown.append(node_id)
        elif missing := [name for name, level in sorted(levels.items()) if level not in ranges.get(name, _NONE)]:
            lacking[node_id] = tuple(missing)
        else:
            complete.append(node_id)
    return SeenRegistrations(complete=tuple(complete), lacking=lacking, unknown=tuple(unknown))


_NONE = VersionRange(0, 0)  # as QuorumFeatures.DISABLED
