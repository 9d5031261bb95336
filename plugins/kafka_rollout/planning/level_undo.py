"""How a finalized level can be lowered to its previous level: by the controller, live, offline, or not at all.

A level that was not finalized before (0) counts as a level. The methods and their conditions are those of a downgrade.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.features.rules import METADATA_VERSION_FLOOR
from kafka_rollout.model.plan import FeatureChange, Plan, Undo
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.cluster import cluster_findings
from kafka_rollout.planning.lowering import (
    LoweringMethod,
    WhereRefused,
    choose_lowering,
    live_obstacles,
    refused_by_kafka,
)
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release


class UndoMethod(StrEnum):
    CONTROLLER = "by the controller"
    LIVE = "live"
    OFFLINE = "offline"
    NONE = "not possible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelUndo:
    """The least disruptive method that returns a feature to its previous level, and the reason as sentences."""

    feature: str
    method: UndoMethod
    reason: str


_OF_CHANGE = {
    Undo.POSSIBLE: UndoMethod.CONTROLLER,
    Undo.IMPOSSIBLE: UndoMethod.NONE,
    Undo.UNKNOWN: UndoMethod.UNKNOWN,
}


def level_undo(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, plan: Plan, change: FeatureChange
) -> LevelUndo:
    """Return how a change of `plan` can be undone, as the cluster is now.

    `state`: of the cluster on the plan's target release. A live or offline downgrade replaces the binary too, so it
    needs an older release that supports the level.
    """
    if change.feature != METADATA_VERSION or change.undo is Undo.POSSIBLE:
        return LevelUndo(feature=change.feature, method=_OF_CHANGE[change.undo], reason=change.undo_source)
    refused = refused_by_kafka(cluster, catalogue, state, change.target, change.current) or change.undo_source
    older = _older_release(catalogue, plan, change.current)
    why = _not_by_snapshot(catalogue, plan, change.current, older)
    if why or older is None:
        return _of_metadata(UndoMethod.NONE, f"{refused} {why}")
    obstacles = live_obstacles(
        cluster,
        catalogue,
        state,
        change.current,
        cluster_findings(cluster, catalogue, state, target=older, accept_unavailable=plan.accept_unavailable).findings,
    )
    choice = choose_lowering(refused, obstacles, WhereRefused.OFFLINE, lowers_binary=True)
    if choice.method is LoweringMethod.LIVE:
        way = f"kafka_downgrade to {older} lowers it while only the controllers are stopped."
        return _of_metadata(UndoMethod.LIVE, f"{way} Metadata that needs a level above {change.current} is lost.")
    way = f"kafka_downgrade to {older} lowers it while all nodes are stopped. A live downgrade is not possible: "
    lost = f"Metadata that needs a level above {change.current} is lost."
    return _of_metadata(UndoMethod.OFFLINE, f"{way}{choice.not_live}. {lost}")


def _of_metadata(method: UndoMethod, reason: str) -> LevelUndo:
    return LevelUndo(feature=METADATA_VERSION, method=method, reason=reason)


def _not_by_snapshot(catalogue: Catalogue, plan: Plan, level: int, older: Release | None) -> str:
    """Return why no snapshot at `level` can be written and started from; empty if it can."""
    if level < METADATA_VERSION_FLOOR:
        return f"No downgrade goes below {METADATA_VERSION_FLOOR}."
    if level not in catalogue.get(plan.target).features[METADATA_VERSION].supported:
        return f"Release {plan.target} does not support level {level}."
    return "" if older is not None else f"No older release of the catalogue supports level {level}."


def _older_release(catalogue: Catalogue, plan: Plan, level: int) -> Release | None:
    """Return the plan's source release, or the newest one before the target that supports the level."""
    if plan.source < plan.target:
        return plan.source
    older = (release for release in catalogue if release < plan.target)
    return max((r for r in older if level in catalogue.get(r).features[METADATA_VERSION].supported), default=None)
