"""How metadata.version is lowered, in the least disruptive way, and how a finalized level can be lowered again.

The controller lowers it online where no level in between changed metadata. A live downgrade stops only the controllers;
an offline downgrade stops all nodes. Both replace the metadata log by a snapshot at the lower level.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_rollout.base.findings import Finding, Severity, all_findings
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.features.requests import undo_of
from kafka_rollout.features.rules import METADATA_VERSION_FLOOR
from kafka_rollout.features.support import find_lossy_downgrade_gap
from kafka_rollout.model.plan import FeatureChange, Lowering, Plan, Undo
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.cluster_state import (
    MIN_ISR_EQUALS_RF,
    PARTITIONS_CHECK,
    QUORUM_CHECK,
    QUORUM_NO_SPARE,
    RF_ONE_TOPIC,
    check_cluster,
)
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release

OF_ROLLS = {one.code: one for one in (RF_ONE_TOPIC, MIN_ISR_EQUALS_RF, QUORUM_NO_SPARE)}
"""Codes of findings that apply only to rolling changes. During an offline downgrade no node serves requests."""
CHECKS_OF_ROLLS = frozenset(check.id for check in (PARTITIONS_CHECK, QUORUM_CHECK))
"""Ids of the checks that have these codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringChoice:
    """The chosen way."""

    lowering: Lowering
    refused: str = ""
    """Why the controller rejects the level."""
    not_live: str = ""
    """Why a live downgrade is not possible. Both are empty if the method is possible or was not needed."""


def refused_by_kafka(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, current: int, level: int) -> str:
    """Return why the controller of the running release rejects to lower metadata.version from `current` to `level`;
    empty if it accepts it.

    Every release lowers it if no level in between changed metadata. Otherwise all nodes must implement KIP-1155.
    """
    known = [release for release in state.releases if release in catalogue]
    gap = find_lossy_downgrade_gap(cluster, catalogue, state)
    if level >= current or not known or not gap:
        return ""
    undo, source = undo_of(catalogue.get(max(known)), METADATA_VERSION, level, current)
    return "" if undo is Undo.POSSIBLE else f"{source} {gap}"


def choose_lowering(
    refused: str, obstacles: Iterable[str], allowed: Lowering, *, lowers_binary: bool
) -> LoweringChoice:
    """Return the least disruptive way, and at most `allowed`.

    `refused`: empty if the controller accepts the level. `obstacles`: reasons against a live downgrade.
    `lowers_binary`: the plan replaces the binary; without that, only the controller can lower the level. It is
    ONLINE too if nothing else is allowed or possible: the finding about the refusal is then a blocker.
    """
    if not refused:
        return LoweringChoice(lowering=Lowering.ONLINE)
    not_live = few(list(obstacles))
    lowering = Lowering.ONLINE
    if lowers_binary and allowed is not Lowering.ONLINE:
        if not not_live:
            lowering = Lowering.LIVE
        elif allowed is Lowering.OFFLINE:
            lowering = Lowering.OFFLINE
    return LoweringChoice(lowering=lowering, refused=refused, not_live=not_live)


def live_obstacles(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, level: int, findings: Iterable[Finding]
) -> tuple[str, ...]:
    """Return why the controllers cannot be stopped and started at `level` while the brokers serve.

    Only reasons that do not pass by waiting; the gate before the stop checks the rest. `findings`: of the cluster, for
    the rolling downgrade that follows.
    """
    combined = [node.node_id for node in cluster.controllers if node.is_broker]
    why = "because a combined node is controller and broker"
    found = [f"{nodes(combined)} would stop serving, {why}"] if combined else []
    for node in cluster.nodes:
        seen = state.nodes.get(node.node_id)
        release = seen.release if seen is not None else None
        if release is None or release not in catalogue:
            found.append(f"the release of node {node.node_id} is unknown")
        elif level not in catalogue.get(release).features[METADATA_VERSION].supported:
            found.append(f"node {node.node_id} runs {release}, which does not support metadata.version {level}")
    found += [
        f"{one.code} of {one.subject} prevents a rolling downgrade"
        for one in findings
        if one.code in OF_ROLLS and one.severity is Severity.BLOCKER
    ]
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelUndo:
    """How a feature can return to its previous level."""

    feature: str
    undo: Undo
    """Whether it can."""
    lowering: Lowering | None
    """The least disruptive way; None if it cannot, or if it is unknown."""
    reason: str
    """The reason, as sentences."""

    @property
    def way(self) -> str:
        """The way in words."""
        if self.lowering is Lowering.ONLINE:
            return "by the controller"
        return self.lowering or ("not possible" if self.undo is Undo.IMPOSSIBLE else self.undo)


def level_undo(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, plan: Plan, change: FeatureChange
) -> LevelUndo:
    """Return how a change of `plan` can be undone, as the cluster is now.

    `state`: of the cluster on the plan's target release. A live or offline downgrade replaces the binary too, so it
    needs an older release that supports the level.
    """
    if change.feature != METADATA_VERSION or change.undo is Undo.POSSIBLE:
        way = Lowering.ONLINE if change.undo is Undo.POSSIBLE else None
        return LevelUndo(feature=change.feature, undo=change.undo, lowering=way, reason=change.undo_source)
    refused = refused_by_kafka(cluster, catalogue, state, change.target, change.current) or change.undo_source
    older = _older_release(catalogue, plan, change.current)
    why = _not_by_snapshot(catalogue, plan, change.current, older)
    if why or older is None:
        return LevelUndo(feature=METADATA_VERSION, undo=Undo.IMPOSSIBLE, lowering=None, reason=f"{refused} {why}")
    checked = check_cluster(cluster, catalogue, state, target=older, accept_unavailable=plan.accept_unavailable)
    obstacles = live_obstacles(cluster, catalogue, state, change.current, all_findings(checked))
    choice = choose_lowering(refused, obstacles, Lowering.OFFLINE, lowers_binary=True)
    way, stopped = Lowering.LIVE, "only the controllers are stopped"
    if choice.lowering is not Lowering.LIVE:
        way = Lowering.OFFLINE
        stopped = f"all nodes are stopped. A live downgrade is not possible: {choice.not_live}"
    lost = f"Metadata that needs a level above {change.current} is lost."
    reason = f"kafka_downgrade to {older} lowers it while {stopped}. {lost}"
    return LevelUndo(feature=METADATA_VERSION, undo=Undo.POSSIBLE, lowering=way, reason=reason)


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
