"""KIP-584's validation of feature updates, done before the controller is asked.

The controller's own answer names one node and no remedy ("Broker 1 does not support this feature"), and it looks at
less: controllers check dependencies of the features in the request only, and accept the loss of what groups need. The
rules here ask every node itself, name all that stand in the way and say what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafka_rollout.domain.features.checks import missing_dependencies, undo_of
from kafka_rollout.domain.features.requests import FeatureRequest, RequestKind, levels_of
from kafka_rollout.domain.features.support import (
    dropped_registration,
    ghost_findings,
    highest_known,
    lowers_with_loss,
    support_findings,
)
from kafka_rollout.domain.features.users import user_findings
from kafka_rollout.domain.model.findings import Finding, Severity, Verdict
from kafka_rollout.domain.model.plan import Undo
from kafka_rollout.domain.model.releases import METADATA_VERSION, Catalogue
from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.model.topology import ClusterSpec

# Controllers cannot register below 3.7-IV0 (KIP-919), and nobody could tell what they support (KIP-1155).
METADATA_VERSION_FLOOR = 15

# No cluster could do what is asked for: bad input, not a refusal.
BAD_INPUT = frozenset({"FEATURE-UNKNOWN", "FEATURE-LEVEL-UNKNOWN"})


def check_requests(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    state: ClusterState,
    requests: Sequence[FeatureRequest],
    *,
    unsafe: bool = False,
) -> Verdict:
    """Every rule of KIP-584 and KIP-1155 for every request; `unsafe` turns losses for users into warnings."""
    targets = levels_of(requests)
    findings: list[Finding] = []
    for request in requests:
        if request.deletes:
            findings += _deletion(catalogue, state, request)
        else:
            findings += _level(cluster, catalogue, state, targets, request)
    if any(not request.deletes for request in requests):
        findings += ghost_findings(cluster, state)
    findings += _dependencies(catalogue, state, targets)
    findings += user_findings(state, targets, unsafe=unsafe)
    asked = ", ".join(f"{feature} {level}" for feature, level in sorted(targets.items()))
    return Verdict(question=f"May the features be set to {asked or 'what they are'}?", findings=tuple(findings))


def check_feature_support(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, targets: Mapping[str, int], *, unsafe: bool = False
) -> Verdict:
    """The same for a plan's levels, whose direction a person approved."""
    return check_requests(cluster, catalogue, state, requests_for(targets, state.finalized), unsafe=unsafe)


def requests_for(targets: Mapping[str, int], finalized: Mapping[str, int]) -> tuple[FeatureRequest, ...]:
    """Requests that bring the levels about, lowering and deleting where it takes that."""
    return tuple(
        FeatureRequest(feature=feature, level=level, kind=_kind(level, finalized.get(feature, 0)))
        for feature, level in targets.items()
    )


def _kind(level: int, current: int) -> RequestKind:
    if level >= max(1, current):
        return RequestKind.UPGRADE
    return RequestKind.DOWNGRADE if level >= 1 else RequestKind.DELETE


def _level(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, targets: Mapping[str, int], request: FeatureRequest
) -> Iterable[Finding]:
    feature, level, current = request.feature, request.level, state.finalized.get(request.feature, 0)
    highest = highest_known(catalogue, state, feature)
    if highest is None:
        every = {name for release in catalogue for name in catalogue.get(release).features}
        yield _blocker(
            "FEATURE-UNKNOWN",
            feature,
            f"There is no feature {feature}: no node of {cluster.name} and no release of the catalogue knows it.",
            f"Known are {', '.join(sorted(every))}.",
        )
        return
    if level > highest:
        yield _blocker(
            "FEATURE-LEVEL-UNKNOWN",
            feature,
            f"There is no {feature} {level}: the highest that a node or a release of the catalogue knows is {highest}.",
            "Choose a level that the nodes support (`features describe` shows them).",
        )
        return
    yield from support_findings(cluster, catalogue, state, feature, level)
    if level < current:
        yield from _falls(cluster, catalogue, state, request)
    elif request.kind is RequestKind.DOWNGRADE:
        yield _blocker(
            "FEATURE-NOT-LOWER",
            feature,
            f"{feature} is finalized at {current or 'no level'}, and a downgrade to {level} is not lower.",
            "Nothing to lower: leave it out, or ask for an upgrade." if level > current else "Leave it out.",
        )
    elif level > current:
        yield from _unstable(catalogue, state, feature, level)
        yield from dropped_registration(catalogue, state, targets, feature, level)


def _falls(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, request: FeatureRequest
) -> Iterable[Finding]:
    feature, level, current = request.feature, request.level, state.finalized.get(request.feature, 0)
    if request.kind is RequestKind.UPGRADE:
        yield _not_allowed(feature, current, f"at {level} it would fall")
    if feature == METADATA_VERSION and level < METADATA_VERSION_FLOOR:
        yield _blocker(
            "METADATA-VERSION-FLOOR",
            feature,
            f"metadata.version is not lowered to {level}: below {METADATA_VERSION_FLOOR} (3.7-IV0) controllers cannot "
            "register, and nobody could tell what they support (KIP-1155, KIP-919).",
            f"Choose {METADATA_VERSION_FLOOR} or higher, or keep {current}.",
        )
    if feature != METADATA_VERSION or not lowers_with_loss(cluster, catalogue, state):
        yield from _refused_downgrade(catalogue, state, feature, level)


def _deletion(catalogue: Catalogue, state: ClusterState, request: FeatureRequest) -> Iterable[Finding]:
    """KIP-584: needs the permission to lower, and skips the checks of ranges and of unknown features."""
    feature, current = request.feature, state.finalized.get(request.feature, 0)
    if request.kind is RequestKind.UPGRADE:
        yield _not_allowed(feature, current, "a level below 1 takes its finalization away")
    elif current == 0:
        yield _blocker(
            "FEATURE-NOT-FINALIZED",
            feature,
            f"{feature} is not finalized: there is nothing to delete.",
            "Leave it out.",
        )
    elif feature == METADATA_VERSION:
        yield _blocker(
            "METADATA-VERSION-NEEDED",
            feature,
            "metadata.version cannot be deleted: a cluster in KRaft mode always runs at one.",
            "Lower it instead.",
        )
    else:
        yield from _refused_downgrade(catalogue, state, feature, 0)


def _refused_downgrade(catalogue: Catalogue, state: ClusterState, feature: str, level: int) -> Iterable[Finding]:
    current = state.finalized.get(feature, 0)
    known = [release for release in state.releases if release in catalogue]
    if not known:
        return
    undo, source = undo_of(catalogue.get(max(known)), feature, level, current)
    # A feature that the running release does not know may be taken away; a level of it cannot be judged.
    if undo is not Undo.POSSIBLE and not (undo is Undo.UNKNOWN and level == 0):
        yield _blocker(
            "FEATURE-DOWNGRADE-REFUSED",
            feature,
            f"{feature} cannot be lowered from {current} to {level} by the controller: {source}",
            "Keep the level, or use kafka_downgrade, which knows the offline way.",
        )


def _not_allowed(feature: str, current: int, why: str) -> Finding:
    return _blocker(
        "FEATURE-DOWNGRADE-NOT-ALLOWED",
        feature,
        f"{feature} is finalized at {current}; {why}, and an upgrade does not lower (KIP-584: allowDowngrade).",
        "Ask for a downgrade or a deletion of it.",
    )


def _unstable(catalogue: Catalogue, state: ClusterState, feature: str, level: int) -> Iterable[Finding]:
    known = [catalogue.get(release).features for release in state.releases if release in catalogue]
    stable = max((features[feature].latest_production for features in known if feature in features), default=level)
    if level > stable:
        yield Finding(
            code="FEATURE-UNSTABLE",
            severity=Severity.WARNING,
            subject=f"feature {feature}",
            sentence=f"{feature} {level} is not stable in the running release, whose highest stable level is {stable}: "
            "its records may change before it is, and there is no way on from it.",
            remedy=f"Outside a test choose {stable}.",
        )


def _dependencies(catalogue: Catalogue, state: ClusterState, targets: Mapping[str, int]) -> Iterable[Finding]:
    """Of all finalized features, not only of those that are asked for (3.9.1 looks at none, 4.0 on at those alone).

    What a feature outside the request would lack is a finding of the feature that is asked to fall.
    """
    levels = {**state.finalized, **targets}
    facts = [catalogue.get(release) for release in sorted(state.releases) if release in catalogue]
    for feature in sorted(levels):
        missing: dict[str, int] = {}
        for release in facts:
            missing |= missing_dependencies(release, feature, levels)
        if missing and feature not in targets and missing.keys() & targets.keys():
            for other in sorted(missing.keys() & targets.keys()):
                yield _blocker(
                    "FEATURE-DEPENDENCY",
                    other,
                    f"{feature} {levels[feature]}, which stays finalized, needs {other} {missing[other]}.",
                    f"Keep {other} at {missing[other]} or above, or lower {feature} first if Kafka can.",
                )
        elif missing:
            needs = ", ".join(f"{other} {level}" for other, level in sorted(missing.items()))
            yield _blocker(
                "FEATURE-DEPENDENCY",
                feature,
                f"{feature} {levels[feature]} needs {needs}.",
                f"Raise {', '.join(sorted(missing))} together with it, or keep {feature} lower.",
            )


def _blocker(code: str, feature: str, sentence: str, remedy: str) -> Finding:
    return Finding(code=code, severity=Severity.BLOCKER, subject=f"feature {feature}", sentence=sentence, remedy=remedy)
