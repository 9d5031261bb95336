"""Which feature levels a downgrade needs before the older binary starts, and whether released Kafka sets them."""

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
    """The metadata.version to go to: what was asked for, else the highest that the target knows, never above the
    present one. Raises UserError for a level that the target does not support or that is above the present one."""
    current = state.finalized.get(METADATA_VERSION, 0)
    supported = catalogue.get(target).features[METADATA_VERSION].supported
    if asked is None:
        return min(current, supported.max)
    if asked not in supported:
        raise UserError(
            f"Release {target} supports metadata.version {supported}, not {asked}.",
            remedy="Choose a level that the target release supports, or leave it out.",
        )
    if asked > current:
        raise UserError(
            f"metadata.version is finalized at {current}, and {asked} is above it.",
            remedy=f"Choose {current} or lower, or leave it out. To raise it, use kafka_features or kafka_upgrade.",
        )
    return asked


def downgrade_levels(
    catalogue: Catalogue, state: ClusterState, path: Sequence[Release], level: int
) -> tuple[FeatureChange, ...]:
    """Every feature that must fall: to the highest level that all releases of `path` support, 0 where one does not know
    it, and as low as its dependencies ask for at metadata.version `level`. kraft.version cannot fall and stays."""
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
    """Lower, in place, each feature other than metadata.version and kraft.version that lacks what it needs."""
    while name := next((n for n in sorted(levels) if _lacks(facts, n, levels)), None):
        levels[name] -= 1


def _lacks(facts: Sequence[ReleaseFacts], feature: str, levels: Mapping[str, int]) -> bool:
    if feature in {METADATA_VERSION, KRAFT_VERSION} or levels[feature] <= 0:
        return False
    return any(missing_dependencies(one, feature, levels) for one in facts)


def refused_by_kafka(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, level: int) -> str:
    """Why the controller of the running release does not lower metadata.version to `level`; empty where it does.

    Every release lowers it where no level in between changed metadata; across one that did, nodes that all implement
    KIP-1155.
    """
    current = state.finalized.get(METADATA_VERSION, 0)
    known = [release for release in state.releases if release in catalogue]
    if level >= current or not known or lowers_with_loss(cluster, catalogue, state):
        return ""
    undo, source = undo_of(catalogue.get(max(known)), METADATA_VERSION, level, current)
    return "" if undo is Undo.POSSIBLE else source
