"""The method that lowers metadata.version: the least disruptive one that is possible and allowed.

The controller lowers it online where no level in between changed metadata. A live downgrade stops only the controllers;
an offline downgrade stops all nodes. Both replace the metadata log by a snapshot at the lower level.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.features.checks import undo_of
from kafka_rollout.features.support import find_lossy_downgrade_gap
from kafka_rollout.model.plan import Undo
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.cluster import (
    MIN_ISR_EQUALS_RF,
    PARTITIONS_CHECK,
    QUORUM_CHECK,
    QUORUM_NO_SPARE,
    RF_ONE_TOPIC,
)
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release

OF_ROLLS = {one.code: one for one in (RF_ONE_TOPIC, MIN_ISR_EQUALS_RF, QUORUM_NO_SPARE)}
"""Codes of findings that apply only to rolling changes. During an offline downgrade no node serves requests."""
CHECKS_OF_ROLLS = frozenset(check.id for check in (PARTITIONS_CHECK, QUORUM_CHECK))
"""Ids of the checks that have these codes."""


class WhereRefused(StrEnum):
    """The most disruptive action that is allowed if Kafka rejects the lower metadata.version."""

    STOP = "stop"
    LIVE = "live"
    OFFLINE = "offline"


class LoweringMethod(StrEnum):
    CONTROLLER = "controller"
    LIVE = "live"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringChoice:
    """The chosen method. `refused`: why the controller rejects the level; `not_live`: why a live downgrade is not
    possible. Both are empty if the method is possible or was not needed.
    """

    method: LoweringMethod
    refused: str = ""
    not_live: str = ""


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
    refused: str, obstacles: Iterable[str], where_refused: WhereRefused, *, lowers_binary: bool
) -> LoweringChoice:
    """Return the least disruptive method.

    `refused`: empty if the controller accepts the level. `obstacles`: reasons against a live downgrade.
    `lowers_binary`: the plan replaces the binary; without that, only the controller can lower the level. The method is
    CONTROLLER too if nothing else is allowed or possible: the finding about the refusal is then a blocker.
    """
    if not refused:
        return LoweringChoice(method=LoweringMethod.CONTROLLER)
    not_live = few(list(obstacles))
    method = LoweringMethod.CONTROLLER
    if lowers_binary and where_refused is not WhereRefused.STOP:
        if not not_live:
            method = LoweringMethod.LIVE
        elif where_refused is WhereRefused.OFFLINE:
            method = LoweringMethod.OFFLINE
    return LoweringChoice(method=method, refused=refused, not_live=not_live)


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
        elif not _supports(catalogue, release, level):
            found.append(f"node {node.node_id} runs {release}, which does not support metadata.version {level}")
    found += [f"{f.code} of {f.subject} prevents a rolling downgrade" for f in findings if _prevents_rolls(f)]
    return tuple(found)


def _supports(catalogue: Catalogue, release: Release, level: int) -> bool:
    return level in catalogue.get(release).features[METADATA_VERSION].supported


def _prevents_rolls(finding: Finding) -> bool:
    return finding.code in OF_ROLLS and finding.severity is Severity.BLOCKER
