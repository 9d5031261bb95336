"""Requests for feature changes (KIP-584): single levels, all features up, or all features down to a release."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.base.errors import UserError
from kafka_rollout.features.checks import lower_until_dependencies_are_met
from kafka_rollout.features.support import supported_range
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import KRAFT_VERSION, Catalogue, Release, VersionRange

_HIGHEST_LEVEL = 32767  # levels are int16 in the protocol
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")


class RequestKind(StrEnum):
    """The requested kind of change. Lowering and deleting must be requested explicitly (KIP-584's allowDowngrade)."""

    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRequest:
    """The requested maximum level of one feature.

    A level below 1 removes the finalization and is sent as 0, because 4.3.1 rejects negative levels.
    """

    feature: str
    level: int
    kind: RequestKind

    @property
    def deletes(self) -> bool:
        return self.level < 1

    def __str__(self) -> str:
        return f"{self.kind} of {self.feature}" + ("" if self.kind is RequestKind.DELETE else f" to {self.level}")


def parse_requests(
    upgrades: Iterable[str] = (), downgrades: Iterable[str] = (), deletions: Iterable[str] = ()
) -> tuple[FeatureRequest, ...]:
    """Parse `feature=level` or `feature:level` (deletions: `feature`). Each text can be a list with commas.

    Raises UserError for an invalid level, and for two requests for the same feature.
    """
    requests = [_with_level(text, RequestKind.UPGRADE) for text in _split(upgrades)]
    requests += [_with_level(text, RequestKind.DOWNGRADE) for text in _split(downgrades)]
    requests += [FeatureRequest(feature=_name(text), level=0, kind=RequestKind.DELETE) for text in _split(deletions)]
    seen: dict[str, FeatureRequest] = {}
    for request in requests:
        if request.feature in seen:
            raise UserError(
                f"There are two requests for {request.feature}: {seen[request.feature]}, and {request}.",
                remedy="Request each feature once.",
            )
        seen[request.feature] = request
    return tuple(requests)


class FeatureAction(StrEnum):
    """The purpose of a feature run."""

    UPGRADE_ALL = "upgrade_all"
    DOWNGRADE_ALL = "downgrade_all"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOrder:
    """A feature order, before the cluster is read.

    `named`: requests for single features. `release`: the release whose levels are requested; with `may_lower` levels
    can be lowered.
    """

    action: FeatureAction
    named: tuple[FeatureRequest, ...] = ()
    release: Release | None = None
    may_lower: bool = True

    def __post_init__(self) -> None:
        if self.action is FeatureAction.DOWNGRADE_ALL and self.release is None:
            raise UserError("A downgrade of all features needs a release.", remedy="Add the target release.")
        if self.action is FeatureAction.UPDATE and bool(self.named) == (self.release is not None):
            raise UserError(
                "The request must contain either features or a release.",
                remedy="List features to upgrade, downgrade or delete, or the release whose levels to set.",
            )

    def requests(self, cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> tuple[FeatureRequest, ...]:
        """Return the requests that the order means for the current cluster."""
        if self.action is FeatureAction.UPGRADE_ALL:
            return upgrade_all(cluster, catalogue, state)
        if self.release is None:
            return self.named
        if self.action is FeatureAction.DOWNGRADE_ALL:
            return downgrade_all(catalogue, state, self.release)
        found = release_levels(catalogue, state, self.release)
        return found if self.may_lower else without_permission(found)


def upgrade_all(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> tuple[FeatureRequest, ...]:
    """Request every feature at the default level of the running releases, if all nodes support it.

    kraft.version is never changed implicitly. A level above the default is raised only by name. A feature that a node
    does not support stays, as does one whose default is unknown, and no feature is lowered. A node that does not
    respond is ignored here; the checks refuse the run because of it.
    """
    current = state.finalized
    facts = [catalogue.get(release) for release in sorted(state.releases) if release in catalogue]
    names = {name for node in state.nodes.values() if node.features for name in node.features.supported}
    wanted = {}
    for name in names - {KRAFT_VERSION}:
        seen = (state.nodes.get(node.node_id) for node in cluster.nodes)
        ranges = ["not queried" if node is None else supported_range(catalogue, node, name) for node in seen]
        known = [found for found in ranges if isinstance(found, VersionRange)]
        defaults = [f.features[name].default_level for f in facts if name in f.features]
        if None in ranges or not defaults:
            continue
        level = min([found.max for found in known] + defaults)
        if level >= max(found.min for found in known):
            wanted[name] = level
    levels = lower_until_dependencies_are_met(facts, current, wanted)
    return tuple(
        FeatureRequest(feature=name, level=level, kind=RequestKind.UPGRADE) for name, level in sorted(levels.items())
    )


def downgrade_all(catalogue: Catalogue, state: ClusterState, release: Release) -> tuple[FeatureRequest, ...]:
    """Request every finalized feature at the highest stable level of `release`; delete unsupported features.

    No feature is raised. If the release can run at a level, the level stays.
    """
    return tuple(r for r in release_levels(catalogue, state, release) if r.kind is not RequestKind.UPGRADE)


def release_levels(catalogue: Catalogue, state: ClusterState, release: Release) -> tuple[FeatureRequest, ...]:
    """Request the levels that `release` would finalize. kraft.version is never changed implicitly.

    A level above the default of the release stays if the release supports it as a stable level.
    """
    known = catalogue.get(release).features
    requests = []
    for name in sorted(set(known) | set(state.finalized)):
        current = state.finalized.get(name, 0)
        default, highest = (known[name].default_level, known[name].latest_production) if name in known else (0, 0)
        if default > current and name != KRAFT_VERSION:
            requests.append(FeatureRequest(feature=name, level=default, kind=RequestKind.UPGRADE))
        elif highest < current:
            kind = RequestKind.DOWNGRADE if highest else RequestKind.DELETE
            requests.append(FeatureRequest(feature=name, level=highest, kind=kind))
    return tuple(requests)


def without_permission(requests: Sequence[FeatureRequest]) -> tuple[FeatureRequest, ...]:
    """Return the same levels without the permission to lower: the checks then refuse a lower level."""
    return tuple(FeatureRequest(feature=r.feature, level=r.level, kind=RequestKind.UPGRADE) for r in requests)


def levels_of(requests: Iterable[FeatureRequest]) -> Mapping[str, int]:
    """Return the levels as they are sent."""
    return {request.feature: max(0, request.level) for request in requests}


def _split(texts: Iterable[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def _with_level(text: str, kind: RequestKind) -> FeatureRequest:
    form = re.fullmatch(r"(.*)[:=](-?\d{1,9})", text)
    if form is None:
        raise UserError(f"'{text}' is not in the form feature=level.", remedy="Example: group.version=1.")
    name, level = form[1], form[2]
    if int(level) > _HIGHEST_LEVEL:
        raise UserError(f"'{text}' has a level above {_HIGHEST_LEVEL}.", remedy="Example: group.version=1.")
    if kind is RequestKind.DOWNGRADE and int(level) < 1:
        kind = RequestKind.DELETE
    return FeatureRequest(feature=_name(name), level=int(level), kind=kind)


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise UserError(f"'{text}' is not a feature name.", remedy="Example: group.version.")
    return text
