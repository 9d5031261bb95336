"""Finalized levels, with the unknown as a value of its own: no reader takes a missing response for level 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_rollout.base.errors import TransientError


@dataclass(frozen=True, slots=True)
class FinalizedLevels:
    """The finalized levels of a cluster, or that they are unknown.

    It is no mapping: what acts on levels takes `known` or `lacking`, what plans or shows them `reported`.
    """

    reported: Mapping[str, int]
    """Level by feature; the others are at 0. Empty: unknown, because a KRaft cluster always has a metadata.version.
    For plans and pages, which report the unknown themselves (Need.LEVELS)."""

    @property
    def is_known(self) -> bool:
        return bool(self.reported)

    def known(self) -> Mapping[str, int]:
        """Return the level by feature; the others are at 0. Raises TransientError if the levels are unknown."""
        if not self.is_known:
            raise TransientError(
                "No broker that has applied the newest metadata reports the finalized levels.",
                remedy="Check that the brokers reach the active controller.",
            )
        return self.reported

    def lacking(self, levels: Mapping[str, int]) -> dict[str, int]:
        """Return those of `levels` that are not finalized (0: the feature is). Raises as `known`."""
        known = self.known()
        return {feature: level for feature, level in levels.items() if known.get(feature, 0) != level}


UNKNOWN_LEVELS = FinalizedLevels({})
