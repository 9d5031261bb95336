"""Findings about groups that the next release of a path would not serve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, Examined, Finding, FindingCode, Need, Severity
from kafka_rollout.base.wording import few
from kafka_rollout.features.rules import GROUPS_LOSE_THEIR_PROTOCOL
from kafka_rollout.model.contents import SERVED_BY
from kafka_rollout.model.state import ClusterState
from kafka_rollout.releases.facts import Catalogue, Release

_NAMED = 30


GROUPS_NOT_SERVED = FindingCode(
    "GROUPS-NOT-SERVED",
    (BLOCKER, WARNING),
    "A release of the path does not serve active groups at the finalized levels.",
    "First convert or stop these groups. `kafka-rollout groups list --to classic` lists the steps.",
)
GROUPS_OF_A_PREVIEW = FindingCode(
    "GROUPS-OF-A-PREVIEW",
    WARNING,
    "A release of the path serves active groups only as a preview.",
    "Convert these groups to the classic protocol first, or make sure that the preview is enabled on every broker.",
)
GROUPS_CHECK = Check(
    "group-types",
    "Groups that the releases of the path serve",
    "rebalance.md#groups-in-a-rollout",
    (GROUPS_NOT_SERVED, GROUPS_OF_A_PREVIEW),
    needs=(Need.GROUPS,),
    examines=Examined.GROUPS,
)


def group_findings(catalogue: Catalogue, state: ClusterState, release: Release) -> tuple[Finding, ...]:
    """Return findings for active groups of types that `release` does not serve at the finalized levels.

    A release with the feature of a group type serves the type from level 1 (KafkaApis of 4.x). A release without the
    feature does not serve the type, except as a preview that the broker configuration enables: consumer groups up to
    3.9, share groups in 4.0, and streams groups in 4.1. In 4.1 streams.version is an unstable feature, so later
    releases serve its groups. Features that the plan itself lowers are checked by `user_findings`.
    """
    findings = []
    for feature, kind in SERVED_BY.items():
        active = sorted(group.group_id for group in state.groups if group.type == kind and group.is_active)
        if active and state.finalized.reported.get(feature, 0) < 1:
            findings.append(_not_served(release, feature, kind, active, known=_has(catalogue, release, feature)))
    return tuple(findings)


def find_unserved_on_path(
    catalogue: Catalogue, finalized: Mapping[str, int], path: Iterable[Release]
) -> frozenset[str]:
    """Return the group types that some release of the path would not serve at these levels (`GROUPS-NOT-SERVED`)."""
    releases = tuple(path)
    return frozenset(
        kind
        for feature, kind in SERVED_BY.items()
        if finalized.get(feature, 0) < 1 and any(_has(catalogue, release, feature) for release in releases)
    )


def leave_to_gate(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings for a run whose group gate comes later. The gate waits, so they do not block the plan."""
    return tuple(
        replace(
            finding,
            severity=Severity.WARNING,
            remedy=f"{finding.remedy} The run waits for that (gate groups) before it changes the cluster.",
        )
        if finding.code in (GROUPS_NOT_SERVED.code, GROUPS_LOSE_THEIR_PROTOCOL.code)
        and finding.severity is Severity.BLOCKER
        else finding
        for finding in findings
    )


def _has(catalogue: Catalogue, release: Release, feature: str) -> bool:
    return release in catalogue and feature in catalogue.get(release).features


def _not_served(release: Release, feature: str, kind: str, active: list[str], *, known: bool) -> Finding:
    names = few(active, limit=_NAMED)
    number = f"{len(active)} {kind} group{'s' if len(active) > 1 else ''} with members ({names})"
    if known:
        return GROUPS_NOT_SERVED.found(
            f"{release}, {kind} groups",
            f"Kafka {release} does not serve {kind} groups while {feature} is 0, and there are {number}.",
            severity=BLOCKER,
        )
    return GROUPS_OF_A_PREVIEW.found(
        f"{release}, {kind} groups",
        f"Kafka {release} serves {kind} groups only as a preview that the configuration of every broker "
        f"must enable, and there are {number}.",
    )
