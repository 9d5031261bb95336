"""Groups that the next release of a path would not serve."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_rollout.domain.findings import Finding, Severity
from kafka_rollout.domain.group_records import SERVED_BY
from kafka_rollout.domain.releases import Catalogue, Release
from kafka_rollout.domain.state import ClusterState
from kafka_rollout.domain.wording import few

_NAMED = 30


def group_findings(
    catalogue: Catalogue, state: ClusterState, release: Release, *, planned: Mapping[str, int] | None = None
) -> tuple[Finding, ...]:
    """Active groups of types that `release` does not serve at the finalized levels (`planned` ones instead of them).

    A release that has a type's feature serves the type from level 1 on (KafkaApis of 4.x). One that does not have the
    feature serves no such group, but for those of a preview that a broker's configuration switches on (3.7 to 3.9).
    """
    levels = {**state.finalized, **(planned or {})}
    findings = []
    for feature, kind in SERVED_BY.items():
        active = sorted(group.group_id for group in state.groups if group.type == kind and group.members)
        if active and levels.get(feature, 0) < 1:
            findings.append(_not_served(release, feature, kind, active, known=_has(catalogue, release, feature)))
    return tuple(findings)


def _has(catalogue: Catalogue, release: Release, feature: str) -> bool:
    return release in catalogue and feature in catalogue.get(release).features


def _not_served(release: Release, feature: str, kind: str, active: list[str], *, known: bool) -> Finding:
    names = few(active, limit=_NAMED)
    number = f"{len(active)} {kind} group{'s' if len(active) > 1 else ''} with members ({names})"
    if known:
        return Finding(
            code="GROUPS-NOT-SERVED",
            severity=Severity.BLOCKER,
            subject=f"{release}, {kind} groups",
            sentence=f"{release} serves no {kind} group while {feature} is 0, and there are {number}.",
            remedy="Convert or stop them first: `kafka-rollout groups plan --to classic` says how.",
        )
    return Finding(
        code="GROUPS-OF-A-PREVIEW",
        severity=Severity.WARNING,
        subject=f"{release}, {kind} groups",
        sentence=f"{release} serves {kind} groups as a preview at most, if its configuration says so, and there are "
        f"{number}.",
        remedy="Convert them to classic before, or know that the preview's switch is set on every broker.",
    )
