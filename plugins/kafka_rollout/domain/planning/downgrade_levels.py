"""The feature levels that a downgrade needs before the older binary starts, and whether Kafka can set them online."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.domain.features.checks import feature_change, missing_dependencies, undo_of
from kafka_rollout.domain.features.support import lowers_with_loss
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.plan import FeatureChange, Undo
from kafka_rollout.domain.model.releases import KRAFT_VERSION, METADATA_VERSION, Catalogue, Release, ReleaseFacts
from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.model.topology import ClusterSpec


def target_level(catalogue: Catalogue, state: ClusterState, target: Release, asked: int | None) -> int:
    """Return the metadata.version to set: the requested one, else the highest that the target supports.

    It is never above the current level. Raises UserError for a level that the target does not support or that is above
    the current level.
    """
    current = state.finalized.get(METADATA_VERSION, 0)
    supported = catalogue.get(target).features[METADATA_VERSION].supported
    if asked is None:
        return min(current, supported.max)
    if asked not in supported:
        raise UserError(
            f"Release {target} supports metadata.version {supported}, not {asked}.",
            remedy="Choose a level that the target release supports, or omit the level.",
        )
    if asked > current:
        raise UserError(
            f"metadata.version is finalized at {current}. Level {asked} is higher.",
            remedy=f"Choose {current} or lower, or omit the level. To raise it, use kafka_features or kafka_upgrade.",
        )
    return asked


def downgrade_levels(
    catalogue: Catalogue, state: ClusterState, path: Sequence[Release], level: int
) -> tuple[FeatureChange, ...]:
    """Return every feature that must be lowered.

    The new level is the highest that all releases of `path` support, 0 if one does not support the feature. It is lower
    still if dependencies at metadata.version `level` require that. kraft.version cannot be lowered and stays.
    """
    known = [release for release in state.releases if release in catalogue]
    if not known:
        return ()
    running = catalogue.get(max(known))
    below = [catalogue.get(release) for release in path]
    wanted = {
        feature: current if feature == KRAFT_VERSION else _highest(below, feature, current)
        for feature, current in state.finalized.items()
        if current > 0
    }
    wanted[METADATA_VERSION] = level
    lower_until_met([running, *below], wanted)
    return tuple(
        feature_change(running, feature, state.finalized.get(feature, 0), target)
        for feature, target in sorted(wanted.items(), key=lambda item: (item[0] == METADATA_VERSION, item[0]))
        if target != state.finalized.get(feature, 0)
    )


def _highest(below: Sequence[ReleaseFacts], feature: str, current: int) -> int:
    return min(
        [current, *(facts.features[feature].supported.max if feature in facts.features else 0 for facts in below)]
    )


def lower_until_met(facts: Sequence[ReleaseFacts], levels: dict[str, int]) -> None:
    """Lower, in place, each feature with an unmet dependency. metadata.version and kraft.version stay."""
    while name := next((n for n in sorted(levels) if _lacks(facts, n, levels)), None):
        levels[name] -= 1


def _lacks(facts: Sequence[ReleaseFacts], feature: str, levels: Mapping[str, int]) -> bool:
    if feature in {METADATA_VERSION, KRAFT_VERSION} or levels[feature] <= 0:
        return False
    return any(missing_dependencies(one, feature, levels) for one in facts)


def refused_by_kafka(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, level: int) -> str:
    """Return why the controller of the running release rejects this metadata.version; empty if it accepts it.

    Every release lowers it if no level in between changed metadata. Otherwise all nodes must implement KIP-1155.
    """
    current = state.finalized.get(METADATA_VERSION, 0)
    known = [release for release in state.releases if release in catalogue]
    if level >= current or not known or lowers_with_loss(cluster, catalogue, state):
        return ""
    undo, source = undo_of(catalogue.get(max(known)), METADATA_VERSION, level, current)
    return "" if undo is Undo.POSSIBLE else source
