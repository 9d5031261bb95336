"""Findings for facts of the catalogue that a plan needs and that could not be derived from the jars of a release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_rollout.base.findings import BLOCKER, Check, CheckOf, Examined, Finding, FindingCode
from kafka_rollout.releases.facts import Catalogue, Release

# Fact → what the plan cannot check without it. `logging` and `has_snapshot_emitter_metrics` are in no plan. Without
# `new_group_coordinator`, the scan of a cluster that starts it has the verdict unknown.
_OF_EVERY_PLAN = {
    "config_defaults": "the defaults of its settings",
    "config_names": "which settings it ignores",
    "config_resources": "which dynamic configuration it keeps",
    "coordinator_logs": "whether it loads the coordinator logs",
    "feature_defaults": "which feature levels it finalizes by default",
    "feature_dependencies": "which feature levels require each other",
    "has_current_metadata_version_metric": "how its nodes report their metadata.version",
    "java_minimum": "which Java it requires",
    "oldest_requests": "which request versions of clients it rejects",
}
_OF_DOWNGRADES = {
    "lossy_downgrade_level": "whether its controller lowers metadata.version although metadata is lost",
    "metadata_log": "which metadata records it reads",
}
_OF_FEATURE_PLANS = {fact: _OF_EVERY_PLAN[fact] for fact in ("feature_defaults", "feature_dependencies")}


CATALOGUE_GAP = FindingCode(
    "CATALOGUE-GAP", BLOCKER, "The plan needs a fact of a release that could not be derived from its jars."
)
GAPS_CHECK = Check(
    "catalogue-facts",
    "Facts of the releases in the catalogue",
    "operations.md#kafkas-releases",
    (CATALOGUE_GAP,),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.FEATURES),
    needs=(),
    examines=Examined.RELEASES,
)


def gap_findings(catalogue: Catalogue, path: Iterable[Release], *, down: bool = False) -> tuple[Finding, ...]:
    """Return a blocker for each gap of a release on the path that the plan needs. `down`: the plan is a downgrade."""
    return _findings(catalogue, path, {**_OF_EVERY_PLAN, **_OF_DOWNGRADES} if down else _OF_EVERY_PLAN)


def feature_gap_findings(catalogue: Catalogue, releases: Iterable[Release]) -> tuple[Finding, ...]:
    """Return a blocker for each gap of `releases` because of which their default levels are unknown."""
    return _findings(catalogue, releases, _OF_FEATURE_PLANS)


def _findings(catalogue: Catalogue, releases: Iterable[Release], needed: Mapping[str, str]) -> tuple[Finding, ...]:
    return tuple(
        CATALOGUE_GAP.found(
            f"release {release}, {fact}",
            f"The catalogue does not contain {needed[fact.partition('.')[0]]}: {reason}",
            f"Choose another release, or update this tool and run `kafka-rollout catalogue add {release}` again.",
        )
        for release in dict.fromkeys(releases)
        for fact, reason in catalogue.get(release).gaps.items()
        if fact.partition(".")[0] in needed
    )
