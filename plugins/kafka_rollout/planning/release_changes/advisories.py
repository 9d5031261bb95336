"""Known defects of the releases that the nodes run before, during and after a change (include/advisories.json)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.base.findings import INFO, WARNING, Check, Examined, Finding, FindingCode
from kafka_rollout.base.wording import few
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release

RELEASE_ADVISORY = FindingCode(
    "RELEASE-ADVISORY",
    (WARNING, INFO),
    "A release of the path has a known defect. Information if it is a defect of clients.",
)
ADVISORIES_CHECK = Check(
    "known-defects",
    "Known defects of the releases of the path",
    "releases.md#known-defects",
    (RELEASE_ADVISORY,),
    needs=(),
    examines=Examined.RELEASES,
)


def advisory_findings(
    catalogue: Catalogue, path: Sequence[Release], finalized: Mapping[str, int]
) -> tuple[Finding, ...]:
    """Return a finding for each known defect of a release of `path` (source release first).

    A defect of clients is only information: their release is not that of the nodes. `finalized`: level by feature.
    """
    found = []
    level = finalized.get(METADATA_VERSION, 0)
    for advisory in catalogue.advisories:
        affected = [release for release in dict.fromkeys(path) if advisory.affects(release)]
        if not affected or level >= (advisory.below_metadata_version or level + 1):
            continue
        found.append(
            RELEASE_ADVISORY.found(
                f"Kafka {few(affected)}, {advisory.id}",
                f"Known defect. Affected: {advisory.condition} {advisory.defect} Source: {advisory.source}.",
                advisory.remedy,
                severity=INFO if advisory.concerns == "clients" else WARNING,
            )
        )
    return tuple(found)
