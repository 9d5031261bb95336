"""What lies in the coordinator logs, against the releases that a roll goes through: findings of its plan.

A node that takes a release loads what the old one wrote. Each release of the path must therefore load every partition
before the first node goes down. Records that it ignores (KIP-915) stop nothing: they stay in the log until a release
that knows them is back. They are a warning, for what they say is not served meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from kafka_rollout.domain.coordinator_logs.cleaning import defaults_of
from kafka_rollout.domain.coordinator_logs.failing import Failing
from kafka_rollout.domain.coordinator_logs.incompatible_records import (
    ENDED_WITH_GROUPS,
    facts_of_type,
    find_incompatible_records,
)
from kafka_rollout.domain.coordinator_logs.remedies import cleaned_when
from kafka_rollout.domain.coordinator_logs.scan import OFFSETS_TOPIC, LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.releases import Catalogue, Release

CLEANED_AT_GATE = "LOGS-TO-BE-CLEANED"
_ENDED_AND_CLEANED = (
    "End or convert what wrote these records (the scan's report names it) and wait until the cleaner has removed them"
)
_ENDINGS = {
    "__share_group_state": "Stop the members of the share groups, delete the groups, and then this topic, which no "
    "cleaner comes to: the next share group has it made anew"
}


def path_findings(
    scan: ScanResult | None, source: Release, path: Sequence[Release], *, gated: Catalogue | None = None
) -> tuple[Finding, ...]:
    """`source` runs now; `path` are the releases that the nodes will run, the target last (empty: nothing is rolled).

    `scan` is None when it could not be done. Without a coordinator log there is nothing to load, and nothing unknown.
    `gated`: the catalogue, where the run has a gate that waits until the releases of the path can load the log of
    groups: what only that gate can see to is no blocker then.
    """
    if scan is None:
        return tuple(_unknown(release) for release in path)
    if not scan.logs or not path:
        return ()
    by_release: dict[Release, dict[str, list[ReleaseVerdict]]] = defaultdict(lambda: defaultdict(list))
    for verdict in scan.verdicts:
        by_release[verdict.release][verdict.topic].append(verdict)
    findings = [
        _to_be_cleaned(finding, scan)
        if gated is not None and topic == OFFSETS_TOPIC and _ends_at_gate(scan, gated, source, release)
        else finding
        for release in path
        for topic, verdicts in sorted(by_release[release].items())
        if (finding := _of_path(release, topic, verdicts, scan)) is not None
    ]
    findings += [_unknown(release) for release in path if not by_release[release]]
    findings += [
        _of_origin(source, topic, failing)
        for topic, verdicts in sorted(by_release[source].items())
        if (failing := Failing.among(scan, verdicts))
    ]
    return tuple(findings)


def _of_path(release: Release, topic: str, verdicts: Sequence[ReleaseVerdict], scan: ScanResult) -> Finding | None:
    if failing := Failing.among(scan, verdicts):
        return Finding(
            code="LOGS-NOT-LOADABLE",
            severity=Severity.BLOCKER,
            subject=f"{release}, topic {topic}",
            sentence=failing.sentence,
            remedy=f"{failing.remedy(_ENDINGS.get(topic, _ENDED_AND_CLEANED))}, or go to a release that loads them.",
        )
    if ignored := sum(verdict.ignored for verdict in verdicts):
        return Finding(
            code="LOGS-IGNORED-IN-PART",
            severity=Severity.WARNING,
            subject=f"{release}, topic {topic}",
            sentence=f"{release} loads {topic} and ignores {ignored} records of types it does not know (KIP-915).",
            remedy="What they say is not served until a release runs that knows them; they stay in the log.",
        )
    unread = all(verdict.verdict is LoadVerdict.NOT_LOADED for verdict in verdicts)
    if unread and any(found.topic == topic for found in scan.classes):
        return Finding(
            code="LOGS-NOT-READ",
            severity=Severity.WARNING,
            subject=f"{release}, topic {topic}",
            sentence=f"{release} has no coordinator for {topic} and does not read what is in it.",
            remedy="What it says is not served until a release runs that has one.",
        )
    return None


def _ends_at_gate(scan: ScanResult, catalogue: Catalogue, source: Release, release: Release) -> bool:
    """Whether nothing stops the release but groups of the newer types, for whose records `source` writes tombstones."""
    stopping = [
        offence
        for offence in find_incompatible_records(scan, catalogue, release)
        if offence.stops and offence.topic == OFFSETS_TOPIC
    ]
    return bool(stopping) and all(
        offence.family in ENDED_WITH_GROUPS
        and offence.key_version is not None
        and source in dict(facts_of_type(catalogue, OFFSETS_TOPIC, offence.key_version))
        for offence in stopping
    )


def _to_be_cleaned(finding: Finding, scan: ScanResult) -> Finding:
    cleaning = scan.cleaning.get(OFFSETS_TOPIC, defaults_of(OFFSETS_TOPIC))
    return replace(
        finding,
        code=CLEANED_AT_GATE,
        severity=Severity.WARNING,
        remedy="Convert these groups (`kafka-rollout groups plan --to classic` says how) or delete them, and wait for "
        f"the cleaner: {cleaned_when(OFFSETS_TOPIC, cleaning)}. The run waits for both (gate groups) before it touches "
        "anything.",
    )


def _of_origin(source: Release, topic: str, failing: Failing) -> Finding:
    unavailable = "Expect their groups or transactional ids to be unavailable until the node with them is rolled"
    return Finding(
        code="ORIGIN-CANNOT-LOAD",
        severity=Severity.WARNING,
        subject=f"{source}, topic {topic}",
        sentence=f"{failing.sentence} It runs now, and a roll moves each coordinator between nodes still on it.",
        remedy=f"{failing.remedy(unavailable)}.",
    )


def _unknown(release: Release) -> Finding:
    return Finding(
        code="LOGS-NOT-SCANNED",
        severity=Severity.BLOCKER,
        subject=f"release {release}",
        sentence=f"No scan of the coordinator logs says whether {release} could load them.",
        remedy="See why the scan was not done, and scan again.",
    )
