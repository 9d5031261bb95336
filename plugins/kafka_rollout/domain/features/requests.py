"""What a person asks of the features (KIP-584): single levels, everything up, everything down to a release."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.domain.features.checks import lower_until_dependencies_are_met
from kafka_rollout.domain.features.support import supported_range
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.releases import KRAFT_VERSION, Catalogue, Release, VersionRange
from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.model.topology import ClusterSpec

_HIGHEST_LEVEL = 32767  # levels are int16 on the wire
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")


class RequestKind(StrEnum):
    """What the person said. Lowering and deleting need to be said: that is KIP-584's allowDowngrade."""

    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRequest:
    """One feature's new maximum level; below 1 it takes the finalization away and is sent as 0 (4.3.1 refuses
    negative ones)."""

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
    """Read `feature:level` (deletions: `feature`); each text may be a comma-separated list, as in the KIP.

    Raises UserError for what is no level, and for two requests that name one feature.
    """
    requests = [_with_level(text, RequestKind.UPGRADE) for text in _split(upgrades)]
    requests += [_with_level(text, RequestKind.DOWNGRADE) for text in _split(downgrades)]
    requests += [FeatureRequest(feature=_name(text), level=0, kind=RequestKind.DELETE) for text in _split(deletions)]
    seen: dict[str, FeatureRequest] = {}
    for request in requests:
        if request.feature in seen:
            raise UserError(
                f"{request.feature} is asked for twice: {seen[request.feature]}, and {request}.",
                remedy="Name each feature once.",
            )
        seen[request.feature] = request
    return tuple(requests)


class FeatureAction(StrEnum):
    """What a run of features is for."""

    UPGRADE_ALL = "upgrade_all"
    DOWNGRADE_ALL = "downgrade_all"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOrder:
    """What a person ordered, before the cluster is looked at.

    `named` are single features; or `release` names whose levels are meant, and `may_lower` allows that they fall.
    """

    action: FeatureAction
    named: tuple[FeatureRequest, ...] = ()
    release: Release | None = None
    may_lower: bool = True

    def __post_init__(self) -> None:
        if self.action is FeatureAction.DOWNGRADE_ALL and self.release is None:
            raise UserError("A downgrade of all features needs a release.", remedy="Name the one to go down to.")
        if self.action is FeatureAction.UPDATE and bool(self.named) == (self.release is not None):
            raise UserError(
                "Say what is to be changed in one way.",
                remedy="Name features to upgrade, downgrade or delete, or a release whose levels are meant.",
            )

    def requests(self, cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> tuple[FeatureRequest, ...]:
        """What the order comes to on the cluster as it is now."""
        if self.action is FeatureAction.UPGRADE_ALL:
            return upgrade_all(cluster, catalogue, state)
        if self.release is None:
            return self.named
        if self.action is FeatureAction.DOWNGRADE_ALL:
            return downgrade_all(catalogue, state, self.release)
        found = release_levels(catalogue, state, self.release)
        return found if self.may_lower else without_permission(found)


def upgrade_all(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> tuple[FeatureRequest, ...]:
    """Every feature to the latest stable level that all nodes support; kraft.version never by implication.

    A feature that a node does not know stays as it is; none is lowered. A node that does not answer holds nothing back
    here: the checks refuse because of it.
    """
    current = state.finalized
    facts = [catalogue.get(release) for release in sorted(state.releases) if release in catalogue]
    names = {name for node in state.nodes.values() if node.features for name in node.features.supported}
    wanted = {}
    for name in names - {KRAFT_VERSION}:
        seen = (state.nodes.get(node.node_id) for node in cluster.nodes)
        ranges = ["not asked" if node is None else supported_range(catalogue, node, name) for node in seen]
        known = [found for found in ranges if isinstance(found, VersionRange)]
        if None in ranges:
            continue
        stable = [f.features[name].latest_production for f in facts if name in f.features]
        level = min([found.max for found in known] + stable)
        if level >= max(found.min for found in known):
            wanted[name] = level
    levels = lower_until_dependencies_are_met(facts, current, wanted)
    return tuple(
        FeatureRequest(feature=name, level=level, kind=RequestKind.UPGRADE) for name, level in sorted(levels.items())
    )


def downgrade_all(catalogue: Catalogue, state: ClusterState, release: Release) -> tuple[FeatureRequest, ...]:
    """Every finalized feature to the highest stable level that `release` knows; one that it does not know is deleted.

    None is raised. A release that runs at a level as it is leaves nothing to do.
    """
    return tuple(r for r in release_levels(catalogue, state, release) if r.kind is not RequestKind.UPGRADE)


def release_levels(catalogue: Catalogue, state: ClusterState, release: Release) -> tuple[FeatureRequest, ...]:
    """What makes the finalized levels those that `release` would finalize (kraft.version never by implication)."""
    known = catalogue.get(release).features
    requests = []
    for name in sorted(set(known) | set(state.finalized)):
        current = state.finalized.get(name, 0)
        level = known[name].latest_production if name in known else 0
        if level > current and name != KRAFT_VERSION:
            requests.append(FeatureRequest(feature=name, level=level, kind=RequestKind.UPGRADE))
        elif level < current:
            kind = RequestKind.DOWNGRADE if level else RequestKind.DELETE
            requests.append(FeatureRequest(feature=name, level=level, kind=kind))
    return tuple(requests)


def without_permission(requests: Sequence[FeatureRequest]) -> tuple[FeatureRequest, ...]:
    """The same levels, nothing of which may be lowered: the checks then refuse what would fall."""
    return tuple(FeatureRequest(feature=r.feature, level=r.level, kind=RequestKind.UPGRADE) for r in requests)


def levels_of(requests: Iterable[FeatureRequest]) -> Mapping[str, int]:
    """Levels as they are sent."""
    return {request.feature: max(0, request.level) for request in requests}


def _split(texts: Iterable[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def _with_level(text: str, kind: RequestKind) -> FeatureRequest:
    name, colon, level = text.rpartition(":")
    if not colon or not re.fullmatch(r"-?\d{1,9}", level) or int(level) > _HIGHEST_LEVEL:
        raise UserError(
            f"'{text}' is not feature:level.", remedy=f"For example group.version:1; at most {_HIGHEST_LEVEL}."
        )
    if kind is RequestKind.DOWNGRADE and int(level) < 1:
        kind = RequestKind.DELETE
    return FeatureRequest(feature=_name(name), level=int(level), kind=kind)


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise UserError(f"'{text}' is not the name of a feature.", remedy="For example group.version.")
    return text
